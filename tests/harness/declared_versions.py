"""The versions that the handlers declare, by kind of API."""

from __future__ import annotations

from moldau.server.apis import declared_handlers
from moldau.server.handler import Handler
from moldau.server.handlers.controller.broker_apis import BrokerApiHandler
from moldau.server.handlers.forwarded import ForwardedHandler
from moldau.server.handlers.quorum.quorum_admin import QuorumAdmin
from moldau.server.handlers.quorum.raft_apis import RaftHandler
from moldau.wire.apis import ApiKey


def versions_of(*kinds: type[Handler]) -> dict[ApiKey, tuple[int, int]]:
    return {each.api: each.versions for each in declared_handlers() if issubclass(each, kinds)}


FORWARDED = versions_of(ForwardedHandler)
QUORUM_VERSIONS = versions_of(QuorumAdmin, RaftHandler)
BROKER_APIS = versions_of(BrokerApiHandler)
