"""An in-memory node with both coordinators, two topics, and a client whose ACLs the test adds; at first it has none."""

from __future__ import annotations

from typing import Any

from harness.in_memory_node import InMemoryNode
from moldau.base.acl_operations import AclOperation
from moldau.base.promise import Promise
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.security.acls.access import UNRESTRICTED, Access, Needs, Restricted
from moldau.security.acls.authorizer import Authorizer
from moldau.security.acls.bindings import CLUSTER_NAME, AclBinding, PatternType, Permission, ResourceType
from moldau.security.principals import Principal
from moldau.server.handler import Caller, Handler
from moldau.wire.apis import ApiKey
from moldau.wire.frames import Framing
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.wire.schema import Message

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
PUBLIC, SECRET = "public", "secret"
"""The two topics, with two partitions each."""


class CoordinatorNode:
    def __init__(self, *, has_coordinators: bool = True) -> None:
        self.in_memory = InMemoryNode(static=SETTINGS).start()
        broker = self.in_memory.assembly.broker_side
        assert broker is not None
        self.groups, self.transactions = broker.groups, broker.transactions
        self._handlers: dict[ApiKey, Handler] = {handler.api: handler for handler in broker.handlers}
        self._authorizer = Authorizer()
        self.refusals: list[tuple[Needs, str]] = []
        self.ids = {name: self.in_memory.create_topic(name, 2) for name in (PUBLIC, SECRET)}
        for key_type in (0, 1) if has_coordinators else ():
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
            self.ask_as_admin(ApiKey.FIND_COORDINATOR, request, 4)

    def allow(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> None:
        self._authorizer.change([_binding(operation, resource, name)])

    def withdraw(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> None:
        self._authorizer.change([], [_binding(operation, resource, name)])

    def ask(self, api: ApiKey, request: Message, version: int | None = None) -> Any:
        """Send a request as the restricted client."""
        return self._ask(
            api,
            request,
            version,
            Restricted(self._authorizer, Principal("User", "ann"), "10.0.0.1", self._note_refusal),
        )

    def begin(self, api: ApiKey, request: Message, version: int | None = None) -> Any:
        """Send a request as an administrator; return the response or its promise, and run nothing else."""
        handler = self._handlers[api]
        actual_version = handler.versions[1] if version is None else version
        return handler.answer(request, Caller("PLAINTEXT", "test:1", "test", actual_version))

    def ask_refused(self, api: ApiKey, request: Message, version: int | None = None) -> Any:
        """Like `ask`, and check that the request writes nothing to any log."""
        before = self.end_offsets()
        response = self.ask(api, request, version)
        assert self.end_offsets() == before, "the refused request wrote to a log"
        return response

    def ask_as_admin(self, api: ApiKey, request: Message, version: int | None = None) -> Any:
        return self._ask(api, request, version, UNRESTRICTED)

    def committed_offsets(self) -> dict[str, list[int]]:
        """Return the offsets that group `g` has committed, by topic."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        topics = self.ask_as_admin(ApiKey.OFFSET_FETCH, request, 9).groups[0].topics
        return {topic.name: [each.committed_offset for each in topic.partitions] for topic in topics}

    def topics(self) -> set[str]:
        return set(self.in_memory.current.image.topics)

    def _note_refusal(self, principal: str, host: str, needs: Needs, name: str, decide: object) -> None:
        self.refusals.append((needs, name))

    def _ask(self, api: ApiKey, request: Message, version: int | None, access: Access) -> Any:
        handler = self._handlers[api]
        actual_version = handler.versions[1] if version is None else version
        answer = handler.answer(request, Caller("PLAINTEXT", "10.0.0.1:1", "test", actual_version, access))
        self.run_until_idle()
        response = answer.value() if isinstance(answer, Promise) else answer
        assert response is not None
        Framing(api, actual_version).frame(0, response)  # raises if this version cannot carry a field's value
        return response

    def run_until_idle(self) -> None:
        """Run everything that is due within a millisecond, such as the rebalance of a new group."""
        for _ in range(2):
            self.in_memory.flush()
            while self.in_memory.timers.run_soon():
                self.in_memory.flush()
            self.in_memory.timers.advance(1)

    def end_offsets(self) -> list[int]:
        """Return the log end offsets of the coordinators' partitions, and then those of both topics."""
        return [
            self.in_memory.partition(topic, index).log.end_offset
            for topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, PUBLIC, SECRET)
            if topic in self.topics()
            for index in (0, 1)
        ]


def _binding(operation: AclOperation, resource: ResourceType, name: str) -> AclBinding:
    return AclBinding(resource, name, PatternType.LITERAL, "User:ann", "*", operation, Permission.ALLOW)
