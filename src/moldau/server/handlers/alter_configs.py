"""AlterConfigs v0–2. Sets all configs of a resource; the others fall back to their defaults. The controller decides."""

from __future__ import annotations

from moldau.base.later import Later
from moldau.runtime.admin import Admin
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse


class AlterConfigs:
    api = ApiKey.ALTER_CONFIGS
    versions = (0, 2)

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def answer(self, ask: AlterConfigsRequest, caller: Caller) -> Later[AlterConfigsResponse]:
        return self._admin.alter_configs(ask)
