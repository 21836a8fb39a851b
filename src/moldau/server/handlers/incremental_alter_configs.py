"""IncrementalAlterConfigs v0–1. Sets, deletes, appends to and subtracts from single configs. The controller decides."""

from __future__ import annotations

from moldau.base.later import Later
from moldau.runtime.admin import Admin
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class IncrementalAlterConfigs:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    versions = (0, 1)

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def answer(self, ask: IncrementalAlterConfigsRequest, caller: Caller) -> Later[IncrementalAlterConfigsResponse]:
        return self._admin.incremental_alter_configs(ask)
