"""CreatePartitions v0–3. Gives topics more partitions. The controller decides."""

from __future__ import annotations

from moldau.base.later import Later
from moldau.runtime.admin import Admin
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse


class CreatePartitions:
    api = ApiKey.CREATE_PARTITIONS
    versions = (0, 3)

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def answer(self, ask: CreatePartitionsRequest, caller: Caller) -> Later[CreatePartitionsResponse]:
        return self._admin.create_partitions(ask)
