"""docs/security.md has the table of requirements as it is in the code, and names every counter and setting."""

from __future__ import annotations

from pathlib import Path

from moldau.base import counters
from moldau.base.config_def import rows_of
from moldau.base.settings import own
from moldau.security.acls.requirements import REQUIREMENTS
from moldau.server.admin_actions import ADMIN_ACTIONS
from moldau.wire.apis import APIS

DOCS = Path(__file__).parents[3] / "docs" / "security.md"


def test_the_documented_requirements_are_those_of_the_table() -> None:
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = lines.index("| API | needs |") + 2
    documented = lines[start : lines.index("", start)]
    expected = sorted(
        f"| {APIS[api].name} | {', '.join(f'{each.operation.name} {each.resource.name}' for each in needs)} |"
        for api, needs in REQUIREMENTS.items()
    )
    assert sorted(documented) == expected


def test_every_counter_and_every_setting_of_our_own_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = [name for name in (*counters.NAMES, *(each.name for each in rows_of(own))) if f"`{name}`" not in text]
    assert not missing


def test_every_audited_api_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| `action` |"))
    assert not [APIS[api].name for api in ADMIN_ACTIONS if APIS[api].name not in line]
