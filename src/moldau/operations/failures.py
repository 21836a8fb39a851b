"""How an operation fails: with a reason, and with what helps as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.operations.next_steps import NextStep, Note

D = TypeVar("D")
Described = Mapping[str, D | KafkaError]

NEXT_STEPS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: NextStep.SEE_GROUPS,
    ErrorCode.NON_EMPTY_GROUP: NextStep.STOP_MEMBERS,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NextStep.SEE_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NextStep.SEE_TOPICS,
}
ADVICE: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group got members meanwhile: stop them first",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available; try again in a moment",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for an ACL on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for an ACL on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask for an ACL on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ask for an ACL on the transactional id",
    ErrorCode.SECURITY_DISABLED: (
        "everybody may do everything there; set authorizer.class.name and super.users on all nodes (docs/security.md)"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "this broker does not offer it",
}
"""Part of the reason: it is the same in each front end."""


class OperationFailed(Exception):
    """The cluster refuses it, then with an `error`, or its present state does."""

    def __init__(
        self, reason: str, step: NextStep | None = None, subject: str = "", error: KafkaError | None = None
    ) -> None:
        super().__init__(reason)
        self.note, self.error = Note(reason, step, subject), error


class NotFound(OperationFailed):
    """What was named does not exist."""


class InvalidChoice(OperationFailed):
    """What was chosen cannot be done in this cluster."""


def kafka_failure(error: KafkaError, subject: str = "") -> OperationFailed:
    """Return the error with what it is about, and what helps."""
    message = (error.message or error.code.name.lower().replace("_", " ")).rstrip(".")
    advice = ADVICE.get(error.code)
    reason = (f"{subject}: " if subject else "") + message + (f"; {advice}" if advice else "")
    return OperationFailed(reason, NEXT_STEPS.get(error.code), error=error)


def describe_existing(
    names: Iterable[str],
    describe: Callable[[list[str]], Described[D]],
    is_unknown: Callable[[D | KafkaError], bool],
    *,
    kind: str,
    step: NextStep,
) -> list[D]:
    """Return the descriptions of these names, in their order; fail with the names that do not exist."""
    names = list(dict.fromkeys(names))
    described = describe(names)
    unknown = [name for name in names if is_unknown(described[name])]
    if unknown:
        raise NotFound(f"no {kind} {', '.join(unknown)}", step)
    existing_values = []
    for name in names:
        description = described[name]
        if isinstance(description, KafkaError):
            raise kafka_failure(description, f"{kind} {name}") from description
        existing_values.append(description)
    return existing_values
