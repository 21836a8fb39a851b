"""What an API is to a node: a class that declares in its attributes what everything else must know of the API, and
answers the requests.

The router, the table of required permissions (`server/apis.py`), the audit log, the error responses, the quotas and
the tables in docs/compatibility.md and docs/security.md are derived from these declarations. Nothing else in the
server names an API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from moldau.base.errors import KafkaError
from moldau.base.limits import DEFAULT_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, no_steps
from moldau.coordinator.machine import Client as GroupClient
from moldau.security.acls.access import UNRESTRICTED, Access, Needs
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.codec import NoReply
from moldau.wire.decoder_source import REQUEST_ELEMENTS_MAX
from moldau.wire.schema import Message

DECODED_ON_LOOP_BYTES: Final = 32 << 10
"""A larger request is decoded in a thread: 32 KiB of the smallest list elements take some milliseconds."""
DECODED_ON_LOOP_ELEMENTS: Final = 1_000
"""So is one with an array of more elements."""
ELEMENTS_MAX: Final = 10_000
"""The most elements of one array in a request; integers, such as the partitions of a topic, may be 50,000. They are
handled in turns, but the parts of the response are put together in one."""
LONG_ELEMENTS_MAX: Final = REQUEST_ELEMENTS_MAX
"""The same for APIs whose requests name all partitions of a topic, or all that a node has."""


@dataclass(slots=True)
class Caller:
    """The client that sent a request, the version of the request, and what the client may do. All requests of an API
    and version on a connection share one, as long as the client id stays."""

    listener: str
    address: str
    client_id: str | None
    version: int
    access: Access = UNRESTRICTED
    group_client: GroupClient = field(init=False, compare=False, repr=False)
    """The client as group coordinators know it."""
    is_unrestricted: bool = field(init=False, compare=False, repr=False)
    """Whether `access` allows everything, so that it need not be asked."""

    def __post_init__(self) -> None:
        self.is_unrestricted = self.access.is_unrestricted
        host = "/" + self.address.rpartition(":")[0].strip("[]")
        self.group_client = GroupClient(self.client_id or "", host, self.version)

    @property
    def client(self) -> Client:
        """The client as quotas count it."""
        return Client(self.access.principal, self.client_id or "")


class Handler:
    """One API. `__init__` names what it needs of a node: the parameters are fields of `BrokerParts` or
    `ControllerParts`."""

    api: ApiKey
    versions: tuple[int, int]
    listed_from: ClassVar[int | None] = None
    """The version from which on ApiVersions lists the API, if it is not the lowest that is served."""
    answers_unknown_versions: ClassVar[bool] = False
    """Whether it answers any other version too, in the format of version 0 (KIP-511)."""
    is_on_brokers: ClassVar[bool] = True
    is_on_controllers: ClassVar[bool] = False

    needs: ClassVar[tuple[Needs, ...]]
    """What a client may have to be allowed to do. Where there are alternatives, one of them is enough; the handler
    knows which, and docs/security.md has them in words."""

    request_bytes_max: int = DEFAULT_REQUEST_BYTES_MAX
    decoded_on_loop_bytes: ClassVar[int] = DECODED_ON_LOOP_BYTES
    decoded_on_loop_elements: ClassVar[int] = DECODED_ON_LOOP_ELEMENTS
    elements_max: ClassVar[int] = ELEMENTS_MAX
    total_elements_max: ClassVar[int | None] = None
    """The most elements of all arrays of a request together."""

    counts_as_produced: ClassVar[bool] = False
    """Whether the bytes of its requests count for the quota of producers."""
    mutation_error_from: ClassVar[int | None] = None
    """For APIs with a quota that the controller counts (KIP-599): the first version that knows the error
    THROTTLING_QUOTA_EXCEEDED. The connection pauses for the time that the response says."""

    logs_once_a_minute: ClassVar[bool] = False
    """Whether the audit log gets a line about the same principal and group only once a minute."""

    def answer(self, request: Any, caller: Caller) -> Message | Promise[Any] | NoReply:
        """Answer a request. It is plain code without `await`, so that the order on the wire is the order in the log."""
        raise NotImplementedError

    def refuse(self, request: Any, error: KafkaError) -> Steps[Message]:
        """Return the response that reports the error for everything in the request, which may name thousands of
        things. This is the one of APIs with one error code for the whole request."""
        response: Any = response_class(self.api)()
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = error.message
        return no_steps(response)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterable[AdminAction]:
        """Return what the request changed, or tried to change, for the audit log. An API that changes nothing keeps
        this function, and is not audited."""
        return ()

    @staticmethod
    def is_administrative(request: Any) -> bool:
        """Return whether a request of an audited API is to be logged."""
        return not getattr(request, "validate_only", False)

    @staticmethod
    def is_of_node(request: Any) -> bool:
        """Return whether only nodes of the cluster send such a request. It is then not counted for quotas if the
        client may act as a node."""
        return False


Answer = Callable[[Any, Caller], Message | Promise[Any] | NoReply]
"""Answers the requests of one API."""


def is_audited(handler: Handler | type[Handler]) -> bool:
    return handler.admin_actions is not Handler.admin_actions
