"""Every defect can be injected: the names that it replaces exist. Few of them are tried without more depth."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster.defects import DEFECTS, OUTAGE_DEFECTS
from compaction.defects import RETENTION_DEFECTS
from groups.defects import DEFECTS as GROUP_DEFECTS
from shares.defects import DEFECTS as SHARE_DEFECTS
from transactions.defects import COMPACTION_DEFECTS, TRANSACTION_DEFECTS

ALL_DEFECTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    *DEFECTS, *OUTAGE_DEFECTS, *RETENTION_DEFECTS, *GROUP_DEFECTS, *COMPACTION_DEFECTS, *TRANSACTION_DEFECTS,
    *SHARE_DEFECTS,
]  # fmt: skip


@pytest.mark.parametrize("defect", ALL_DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_replaces_what_exists(
    defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)


def test_a_defect_of_views_replaces_what_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    from views.defects import VIEW_DEFECTS

    for defect in VIEW_DEFECTS:
        defect(monkeypatch)
