"""Which records the cleaner may remove: tombstones are kept while a replica is out of sync and could miss them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.runtime.cleaning.choice import DirtyLog


@pytest.mark.parametrize(("isr", "are_all_in_sync"), [((1, 2, 3), True), ((1, 3), False), ((1,), False)])
def test_expired_tombstones_are_removed_only_while_all_replicas_are_in_sync(
    isr: tuple[int, ...], are_all_in_sync: bool
) -> None:
    partition: Any = SimpleNamespace(state=SimpleNamespace(isr=isr, replicas=(1, 2, 3)))
    dirty = DirtyLog(partition, 0, 0, 0, 0, False)
    assert dirty.are_all_in_sync is are_all_in_sync
