"""DescribeQuorum v0–2, AddRaftVoter v0–1 and RemoveRaftVoter v0 (KIP-853). A broker forwards them; on the controllers'
own listener the quorum answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import DESCRIBE_QUORUM_BYTES_MAX, QUORUM_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, resolved
from moldau.runtime.controller.channel import AskController
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ALTER, CLUSTER_DESCRIBE
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handler import Caller
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from moldau.wire.schema import Message


class QuorumAdmin(ForwardedHandler):
    def __init__(self, forward: AskController, timers: Timers, driver: QuorumDriver | None = None) -> None:
        """`driver` is that of a controller; brokers have none."""
        super().__init__(forward, timers)
        self._driver = driver
        if driver is not None:
            self.request_bytes_max = min(self.request_bytes_max, QUORUM_REQUEST_BYTES_MAX)

    def answer(self, request: Message, caller: Caller) -> Message | Promise[Any]:
        if self._driver is None:
            return super().answer(request, caller)
        (needs,) = self.needs
        if not caller.access.allows(needs):
            return run_steps(self._timers, self.refuse(request, denied(needs)))
        return self._driver.answer(request, caller.version)

    @staticmethod
    def decide(deciders: Deciders, request: Message, version: int, client: Client | None) -> Promise[Any]:
        if not deciders.driver.is_leader:
            return resolved(KafkaError(ErrorCode.NOT_CONTROLLER))
        return resolved(deciders.driver.answer(request, version))


class DescribeQuorum(QuorumAdmin):
    api = ApiKey.DESCRIBE_QUORUM
    versions = (0, 2)
    needs = (CLUSTER_DESCRIBE,)
    request_bytes_max = DESCRIBE_QUORUM_BYTES_MAX


class AddRaftVoter(QuorumAdmin):
    api = ApiKey.ADD_RAFT_VOTER
    versions = (0, 1)
    needs = (CLUSTER_ALTER,)

    @staticmethod
    def admin_actions(request: AddRaftVoterRequest, response: AddRaftVoterResponse) -> Iterator[AdminAction]:
        yield AdminAction(f"voter:{request.voter_id}", response.error_code)


class RemoveRaftVoter(QuorumAdmin):
    api = ApiKey.REMOVE_RAFT_VOTER
    versions = (0, 0)
    needs = (CLUSTER_ALTER,)

    @staticmethod
    def admin_actions(request: RemoveRaftVoterRequest, response: RemoveRaftVoterResponse) -> Iterator[AdminAction]:
        yield AdminAction(f"voter:{request.voter_id}", response.error_code)
