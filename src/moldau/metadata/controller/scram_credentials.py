"""Changing users' SCRAM credentials: AlterUserScramCredentials v0 (KIP-554). Each user succeeds or fails alone.

The request has the salted password, computed by the client; the records have only the keys that check it. A cluster
with users also has a secret, from which the salts of unknown users are derived: a client cannot tell them from others.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import CHANGES_A_TURN
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.scram_secret import scram_secret, scram_secret_record
from moldau.security.sasl.scram_messages import ITERATIONS_MAX, ITERATIONS_MIN, ScramKeys
from moldau.security.scram_credentials import ScramMechanism
from moldau.wire.log_records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.wire.schema import MetadataRecord

Change = ScramCredentialDeletion | ScramCredentialUpsertion
SECRET_BYTES: Final = 32
TWICE: Final = "A user credential cannot be altered twice in the same request"


def new_scram_secret(rng: Random) -> str:
    return rng.randbytes(SECRET_BYTES).hex()


def decide_scram_secret(image: MetadataImage, new_secret: Callable[[], str]) -> Decision[None]:
    """Create the secret of a cluster that has users but no secret: `kafka-storage format --add-scram` writes none."""
    is_missing = bool(image.scram_credentials) and scram_secret(image) is None
    return Decision(None, (scram_secret_record(new_secret()),) if is_missing else ())


def decide_alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest, new_secret: Callable[[], str]
) -> Steps[Decision[AlterUserScramCredentialsResponse]]:
    """Change the credentials. With the first one, also create the cluster's secret."""
    outcomes: dict[str, MetadataRecord | KafkaError] = {}
    changes: list[Change] = [*request.deletions, *request.upsertions]
    turn = TurnItems(CHANGES_A_TURN)
    for change in changes:
        if turn.ends_after(1):
            yield
        earlier = outcomes.get(change.name)
        if earlier is None:
            outcomes[change.name] = _outcome(image, change)
        elif not isinstance(earlier, KafkaError):
            outcomes[change.name] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, TWICE)
    results = yield from map_in_steps(turn, list(outcomes.items()), _result)
    records = tuple(outcome for outcome in outcomes.values() if not isinstance(outcome, KafkaError))
    if records and scram_secret(image) is None:
        records = (scram_secret_record(new_secret()), *records)
    return Decision(AlterUserScramCredentialsResponse(results=results), records)


def _result(user_outcome: tuple[str, MetadataRecord | KafkaError]) -> AlterUserScramCredentialsResult:
    user, outcome = user_outcome
    if isinstance(outcome, KafkaError):
        return AlterUserScramCredentialsResult(user, outcome.code, outcome.message)
    return AlterUserScramCredentialsResult(user, error_message=None)


def _outcome(image: MetadataImage, change: Change) -> MetadataRecord | KafkaError:
    """Return the record of a change, or the error why it is refused."""
    mechanism = ScramMechanism(change.mechanism)
    if not change.name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is ScramMechanism.UNKNOWN:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (mechanism, change.name) not in image.scram_credentials:
            return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(change.name, mechanism)
    if change.iterations < ITERATIONS_MIN:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    credential = ScramKeys(mechanism).credential(bytes(change.salted_password), bytes(change.salt), change.iterations)
    return UserScramCredentialRecord(change.name, mechanism, *credential)
