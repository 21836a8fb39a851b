"""An in-memory node with an authorizer; its handlers are called as any user, without a router."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.in_memory_node import InMemoryNode
from moldau.base.acl_operations import AclOperation
from moldau.base.promise import Promise
from moldau.security.acls.access import Needs, Unrestricted
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.security.principals import Principal
from moldau.server.handler import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

HOST = "10.0.0.1"


class NoPermissions(Unrestricted):
    """The access of a client without any permission."""

    is_unrestricted = False  # type: ignore[misc, assignment]

    def allows(self, needs: Needs, name: str = "") -> bool:
        return False

    allows_quietly = allows
    allows_any = allows  # type: ignore[assignment]

    def is_known_to_allow(self, needs: Needs, names: Iterable[str]) -> bool:
        return False


class RestrictedNode(InMemoryNode):
    def __init__(self, **static: str) -> None:
        properties = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}
        super().__init__(static={**properties, **static})

    def allow(self, operation: AclOperation, resource: ResourceType, name: str, principal: str = "User:ann") -> None:
        self._add(operation, resource, name, principal, Permission.ALLOW)

    def deny(self, operation: AclOperation, resource: ResourceType, name: str, principal: str = "User:ann") -> None:
        self._add(operation, resource, name, principal, Permission.DENY)

    def _add(
        self, operation: AclOperation, resource: ResourceType, name: str, principal: str, permission: Permission
    ) -> None:
        assert self.assembly.authorizer is not None
        self.assembly.authorizer.change(
            [AclBinding(resource, name, PatternType.LITERAL, principal, "*", operation, permission)]
        )

    def ask(self, api: ApiKey, request: Message, version: int, user: str = "ann", listener: str = "PLAINTEXT") -> Any:
        """Return the response to a request of this user, or a promise of it."""
        broker = self.assembly.broker_side
        assert broker is not None
        route = broker.router.find_route(api, version)
        assert route is not None
        access = self.assembly.access(Principal("User", user), HOST)
        return route.answer(request, Caller(listener, f"{HOST}:5", "test", version, access))

    def completed(self, reply: Any) -> Any:
        """Flush until the reply is complete, and return the response."""
        if isinstance(reply, Promise):
            for _ in range(100):
                if reply.done:
                    break
                self.flush()
                self.timers.run_soon()
            return reply.value()
        return reply
