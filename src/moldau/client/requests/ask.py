"""What sends a request, and error codes of responses as KafkaErrors."""

from __future__ import annotations

from typing import Protocol, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

M = TypeVar("M", bound=Message)


class Ask(Protocol):
    """Sends a request to a node and returns its response: `Channel.ask`, `Cluster.ask_any`, `ClusterAdmin.ask`."""

    def __call__(self, key: ApiKey, request: Message, response_type: type[M], /) -> M: ...


def error_of(error_code: int, message: str | None = None) -> KafkaError | None:
    return KafkaError(ErrorCode(error_code), message) if error_code else None


def raise_error(error_code: int, message: str | None = None) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), message)


def raise_refusal(response: Message) -> None:
    """Raise the error that a response has for the whole request, if it has such a field."""
    raise_error(getattr(response, "error_code", 0), getattr(response, "error_message", None))
