"""The delegation tokens of a user, in one line: they outlive the password."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from moldau.base.errors import ErrorCode, KafkaError
from moldau.operations.next_steps import NextStep, Note
from moldau.security.principals import USER, Principal

if TYPE_CHECKING:
    from moldau.client.admin.delegation_tokens import DelegationTokens


def tokens_note(name: str, tokens: DelegationTokens, now_ms: int) -> Note | None:
    """Ask a broker. Return None if the user has no tokens."""
    how = "only their owner and renewers can expire them earlier"
    owner = Principal(USER, name)
    try:
        found = [each.token for each in tokens.describe([owner])]
    except KafkaError as error:
        if error.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
            return None
        text = f"delegation tokens of {name}, if there are any, keep working until they expire; {how}"
        return Note(text, NextStep.EXPIRE_TOKENS)
    # Without those that the user may only renew, or has requested for others.
    own = [token for token in found if (token.owner.type, token.owner.name) == (owner.type, owner.name)]
    ends_ms = [min(token.max_ms, token.expires_ms) for token in own]
    valid_until_ms = [end_ms for end_ms in ends_ms if end_ms > now_ms]
    if not valid_until_ms:
        return None
    last = datetime.fromtimestamp(max(valid_until_ms) / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    what = "1 delegation token" if len(valid_until_ms) == 1 else f"{len(valid_until_ms)} delegation tokens"
    text = f"{what} of {name} can be used until {last}, also without the user's password; {how}"
    return Note(text, NextStep.EXPIRE_TOKENS)
