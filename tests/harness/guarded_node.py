"""An in-memory node with an authorizer: requests go through its routers, by default as a user without ACLs."""

from __future__ import annotations

from typing import Any

from harness.in_memory_node import InMemoryNode
from moldau.base.acl_operations import AclOperation
from moldau.base.promise import Promise
from moldau.security.acls.bindings import CLUSTER_NAME, PatternType, Permission, ResourceType
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.security.principals import parse_principal
from moldau.server.router import Router
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.wire.schema import Message

ALICE, SUPER_USER = "User:alice", "User:admin"
HOST = "10.0.0.1"
ANSWERED_S = 60
"""In so much virtual time every request is answered, also one that looks for what does not exist."""


class GuardedNode:
    def __init__(self) -> None:
        static = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": SUPER_USER}
        self.node = InMemoryNode(static=static).start()

    def router(self, *, of_controller: bool) -> Router:
        side = self.node.assembly.controller_side if of_controller else self.node.assembly.broker_side
        assert side is not None
        return side.router

    def ask(self, api: ApiKey, request: Message, version: int, who: str = ALICE, *, of_controller: bool = False) -> Any:
        """Send a request of this principal in that version, and return the response as the client reads it."""
        access = self.node.assembly.access(parse_principal(who), HOST)
        frame = request_frame(api, version, 7, "client", request)
        router = self.router(of_controller=of_controller)
        reply = router.answer("PLAINTEXT", f"{HOST}:5555", access, memoryview(bytearray(frame))[4:])
        if isinstance(reply, Promise):
            self.node.flush()
            for _ in range(ANSWERED_S):
                if not reply.done:
                    self.node.timers.advance(1000)
            reply = reply.value()
        assert reply is not None
        return read_response(response_class(api), bytes(reply)[4:], api, version)[1]

    def allow(
        self,
        operation: AclOperation,
        resource: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        who: str = ALICE,
        permission: Permission = Permission.ALLOW,
    ) -> None:
        """Create an ACL as the super user does."""
        acl = AclCreation(resource, name, PatternType.LITERAL, who, "*", operation, permission)
        created = self.ask(ApiKey.CREATE_ACLS, CreateAclsRequest([acl]), 3, SUPER_USER).results[0]
        assert created.error_code == 0, created.error_message

    def allow_cluster(self, operation: AclOperation) -> None:
        self.allow(operation, ResourceType.CLUSTER)

    def allow_topic(self, operation: AclOperation, name: str) -> None:
        self.allow(operation, ResourceType.TOPIC, name)

    @property
    def end_offset(self) -> int:
        """The end of the metadata log: a denied request does not move it."""
        return self.node.assembly.driver.end_offset

    @property
    def topics(self) -> set[str]:
        return set(self.node.current.image.topics)
