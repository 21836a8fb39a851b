"""docs/security.md has the table of requirements as it is in the code."""

from __future__ import annotations

from pathlib import Path

from moldau.security.acls.requirements import REQUIREMENTS
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
