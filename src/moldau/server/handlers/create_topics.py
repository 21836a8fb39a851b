"""CreateTopics v2–7. Makes topics; each of them succeeds or fails by itself. The controller decides."""

from __future__ import annotations

from moldau.base.later import Later
from moldau.runtime.admin import Admin
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse


class CreateTopics:
    api = ApiKey.CREATE_TOPICS
    versions = (2, 7)

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def answer(self, ask: CreateTopicsRequest, caller: Caller) -> Later[CreateTopicsResponse]:
        return self._admin.create_topics(ask)
