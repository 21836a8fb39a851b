"""Requests that the controller decides, each passed on as it is and answered when what it changed is committed.

CreateTopics v2–7, DeleteTopics v1–6 (by id from v6), CreatePartitions v0–3, AlterConfigs v0–2 (what is not named falls
back to its default), IncrementalAlterConfigs v0–1 (KIP-339). What they mean is in `metadata/controller/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.base.later import Later
from moldau.runtime.admin import Admin
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message


class Controlled:
    """One such API."""

    def __init__(self, api: ApiKey, versions: tuple[int, int], decide: Callable[[Any], Later[Any]]) -> None:
        self.api = api
        self.versions = versions
        self._decide = decide

    def answer(self, ask: Message, caller: Caller) -> Later[Message]:
        return self._decide(ask)


def controlled(admin: Admin) -> list[Controlled]:
    return [
        Controlled(ApiKey.CREATE_TOPICS, (2, 7), admin.create_topics),
        Controlled(ApiKey.DELETE_TOPICS, (1, 6), admin.delete_topics),
        Controlled(ApiKey.CREATE_PARTITIONS, (0, 3), admin.create_partitions),
        Controlled(ApiKey.ALTER_CONFIGS, (0, 2), admin.alter_configs),
        Controlled(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), admin.incremental_alter_configs),
    ]
