"""The APIs that the controller decides, one module each: what the node to which the client is connected does, and what
the controller does.

A request is authorized where the client is connected. A broker then forwards it to the node that leads the quorum; on
the controllers' own listener the controller is called directly. The response to a change is sent when it is committed.
The decisions themselves are pure functions in `metadata/controller/`; the quorum's are in `raft/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.limits import CONTROLLER_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, WaitingSteps, no_steps
from moldau.runtime.controller.admin import Admin
from moldau.runtime.controller.broker_requests import BrokerRequests
from moldau.runtime.controller.channel import AskController
from moldau.runtime.controller.delegation_tokens import ControllerTokens
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.security.acls.access import Access
from moldau.security.acls.denials import denied
from moldau.security.principals import Client
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.authorized_requests.authorized import Authorized, unchanged
from moldau.server.handlers.replies import run_steps, steps_when_ready
from moldau.wire.apis import response_class
from moldau.wire.schema import Message


@dataclass(frozen=True, slots=True)
class Deciders:
    """The parts of a controller that decide requests."""

    admin: Admin
    broker_requests: BrokerRequests
    tokens: ControllerTokens
    driver: QuorumDriver


class DecidedHandler(Handler):
    """An API that the controller decides, also for requests of its own node."""

    is_on_controllers = True

    @staticmethod
    def decide(deciders: Deciders, request: Any, version: int, client: Client | None) -> Promise[Any]:
        """Return a promise of the response, or of KafkaError NOT_CONTROLLER if this node is not the leader. `client` is
        the one for which a broker forwards the request; None if a broker sends it for itself."""
        raise NotImplementedError


class ForwardedHandler(DecidedHandler):
    request_bytes_max = CONTROLLER_REQUEST_BYTES_MAX

    def __init__(self, forward: AskController, timers: Timers) -> None:
        self._forward = forward
        self._timers = timers

    def authorize(self, request: Any, access: Access) -> WaitingSteps[Authorized]:
        """Take what the client may not do out of the request. This is the function of APIs that need one permission,
        whatever the request contains."""
        (needs,) = self.needs
        return no_steps(
            Authorized(request, unchanged) if access.allows(needs) else self.refused(request, denied(needs))
        )

    def refused(self, request: Any, error: KafkaError) -> Authorized:
        return Authorized(None, lambda _: self.refuse(request, error))

    def answer(self, request: Any, caller: Caller) -> Message | Promise[Any]:
        return run_steps(self._timers, self._steps(request, caller))

    def _steps(self, request: Message, caller: Caller) -> WaitingSteps[Message | Promise[Message]]:
        allowed, with_refused = yield from self.authorize(request, caller.access)
        if allowed is None:
            return (yield from with_refused(response_class(self.api)()))

        def whole_response(response: Message | KafkaError) -> Steps[Message | Promise[Message]]:
            if isinstance(response, KafkaError):
                response = yield from self.refuse(allowed, response)
            return (yield from with_refused(response))

        reply = self._forward(self.api, allowed, caller.version, caller.client)
        # Encoded in a thread: the response may name all partitions of the cluster, or have all configs of thousands of
        # topics. Later requests of the connection are handled meanwhile.
        return steps_when_ready(self._timers, reply, whole_response)
