"""docs/security.md has the table of requirements as it is in the code, and names every counter and setting."""

from __future__ import annotations

from pathlib import Path

from moldau.base import counters
from moldau.base.config_def import rows_of
from moldau.base.settings import own
from moldau.server.apis import declared_handlers
from moldau.server.handler import is_audited
from moldau.wire.apis import APIS

DOCS = Path(__file__).parents[3] / "docs" / "security.md"


def test_every_counter_and_every_setting_of_our_own_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = [name for name in (*counters.NAMES, *(each.name for each in rows_of(own))) if f"`{name}`" not in text]
    assert not missing


def test_every_audited_api_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| `action` |"))
    names = [APIS[each.api].name for each in declared_handlers() if is_audited(each)]
    assert not [name for name in names if name not in line]
