"""kafka-delegation-tokens: creates, renews, expires and describes delegation tokens, with the flags and the output of
Kafka's tool. It prints hmacs, which are passwords: that is what it is for.
"""

from __future__ import annotations

import binascii
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings.security import DELEGATION_TOKEN_SECRET_KEY
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.admin import connect_to_brokers
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.tool import ToolFailed, print_to_stderr, run
from moldau.security.principals import Principal, parse_principal

if TYPE_CHECKING:
    from moldau.client.admin.delegation_tokens import DelegationTokens, TokenWithHmac

WIDTHS: Final = (15, 30, 15, 15, 25, 15, 15, 15)
ACTIONS: Final = ("create", "renew", "expire", "describe")
HINTS: Final = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        f" Set {DELEGATION_TOKEN_SECRET_KEY} to the same text on all brokers and controllers."
    ),
}
FLAGS = ToolFlags(
    "This tool helps to create, renew, expire, or describe delegation tokens.",
    (
        Flag("bootstrap-server", "REQUIRED: brokers to connect to, HOST:PORT,…", "server(s) to connect to"),
        Flag(
            "command-config",
            "REQUIRED: a properties file with settings of the client: how to log in. Without authentication there are"
            " no tokens.",
            "command-config",
        ),
        Flag("create", "Create a token. --renewer-principal names who may renew it."),
        Flag("renew", "Renew a token for --renew-time-period."),
        Flag("expire", "Let a token expire after --expiry-time-period."),
        Flag("describe", "Describe the tokens of --owner-principal, or all that you own, may renew or may describe."),
        Flag("owner-principal", "An owner, as User:name. With --describe repeatable.", "owner-principal"),
        Flag("renewer-principal", "Who may renew the token, as User:name. Repeatable.", "renewer-principal"),
        Flag(
            "max-life-time-period",
            "For how long the token can be renewed, in milliseconds. -1 means delegation.token.max.lifetime.ms of the"
            " broker.",
            "max-life-time-period",
            "Long",
        ),
        Flag(
            "renew-time-period",
            "In milliseconds. -1 means delegation.token.expiry.time.ms of the broker.",
            "renew-time-period",
            "Long",
        ),
        Flag(
            "expiry-time-period",
            "In milliseconds. -1 means that the token is invalid at once.",
            "expiry-time-period",
            "Long",
        ),
        Flag("hmac", "The token's HMAC, as --create printed it.", "hmac"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-delegation-tokens", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    _check(arguments)
    java_config = properties.load(arguments.single_value("command-config"))
    action = next(name for name in ACTIONS if arguments.has(name))
    from moldau.client.admin.delegation_tokens import DelegationTokens

    try:
        with connect_to_brokers(arguments.single_value("bootstrap-server") or "", java_config) as admin:
            _RUN[action](DelegationTokens(admin), arguments)
    except KafkaError as error:
        print_to_stderr(exception_text(error) + HINTS.get(error.code, ""))
        return 1
    return 0


def _check(arguments: Arguments) -> None:
    if sum(map(arguments.has, ACTIONS)) != 1:
        raise UsageError("Command must include exactly one action: --create, --renew, --expire or --describe")
    arguments.require("bootstrap-server", "command-config")
    if arguments.has("create"):
        arguments.require("max-life-time-period")
    if arguments.has("renew"):
        arguments.require("hmac", "renew-time-period")
    if arguments.has("expire"):
        arguments.require("hmac", "expiry-time-period")
    arguments.forbid_together("create", "hmac", "renew-time-period", "expiry-time-period")
    others = ("max-life-time-period", "owner-principal")
    arguments.forbid_together("renew", "renewer-principal", "expiry-time-period", *others)
    arguments.forbid_together("expire", "renew-time-period", *others)
    arguments.forbid_together("describe", "renew-time-period", "max-life-time-period", "hmac", "expiry-time-period")


def _create(tokens: DelegationTokens, arguments: Arguments) -> None:
    renewers, owners = _principals(arguments, "renewer-principal"), _principals(arguments, "owner-principal")
    period_ms = _period_ms(arguments, "max-life-time-period")
    print(
        f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{period_ms}",
        flush=True,
    )
    created = tokens.create(renewers, period_ms, owners[0] if owners else None)
    print(f"Created delegation token with tokenId : {created.token.id}")
    _print_tokens([created])


def _renew(tokens: DelegationTokens, arguments: Arguments) -> None:
    text, period_ms = _hmac(arguments), _period_ms(arguments, "renew-time-period")
    print(f"Calling renew token operation with hmac :{text} , renew-time-period :{period_ms}", flush=True)
    expires_ms = tokens.renew(b64decode(text), period_ms)
    print(f"Completed renew operation. New expiry date : {_date(expires_ms)}", end="")


def _expire(tokens: DelegationTokens, arguments: Arguments) -> None:
    text, period_ms = _hmac(arguments), _period_ms(arguments, "expiry-time-period")
    print(f"Calling expire token operation with hmac :{text} , expire-time-period :{period_ms}", flush=True)
    expires_ms = tokens.expire(b64decode(text), period_ms)
    print(f"Completed expire operation. New expiry date : {_date(expires_ms)}", end="")


def _describe(tokens: DelegationTokens, arguments: Arguments) -> None:
    owners = _principals(arguments, "owner-principal")
    if owners:
        print(f"Calling describe token operation for owners: {_listed(owners)}", flush=True)
    else:
        print("Calling describe token operation for current user.", flush=True)
    found = tokens.describe(owners or None)
    print(f"Total number of tokens : {len(found)}", end="")
    _print_tokens(found)


_RUN: Final = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}


def _print_tokens(tokens: Iterable[TokenWithHmac]) -> None:
    rows = [["TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"]]
    for each in tokens:
        token = each.token
        hmac, owner, requester = b64encode(each.hmac).decode(), str(token.owner), str(token.requester)
        dates = map(_date, (token.issued_ms, token.expires_ms, token.max_ms))
        rows.append([token.id, hmac, owner, requester, _listed(token.renewers), *dates])
    for row in rows:
        print("\n" + " ".join(f"{cell:<{width}}" for cell, width in zip(row, WIDTHS, strict=True)))


def _principals(arguments: Arguments, flag: str) -> list[Principal]:
    try:
        return [parse_principal(text.strip()) for text in arguments.values_of(flag)]
    except ValueError as wrong:
        raise ToolFailed(f"--{flag}: {wrong}") from None


def _period_ms(arguments: Arguments, flag: str) -> int:
    period_ms = arguments.integer(flag)
    assert period_ms is not None, "required"
    return period_ms


def _hmac(arguments: Arguments) -> str:
    text = arguments.single_value("hmac") or ""
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ToolFailed("--hmac: is not base64; write it as --create printed it") from None
    return text


def _listed(principals: Iterable[Principal]) -> str:
    return f"[{', '.join(map(str, principals))}]"


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000).strftime("%Y-%m-%dT%H:%M")


if __name__ == "__main__":
    sys.exit(main())
