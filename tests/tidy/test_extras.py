"""The extras of pyproject.toml: `moldau[all]` has everything that a user may be told to install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
NAMED = re.compile(r"moldau\[([a-z,]+)\]")


def named_in(text: str) -> set[str]:
    return {extra for names in NAMED.findall(text) for extra in names.split(",")}


def test_all_has_every_extra_that_docs_and_messages_name() -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    for_users = set().union(*(named_in(path.read_text(encoding="utf-8")) for path in texts)) - {"all"}
    assert for_users >= {"spark", "tls"}
    [everything] = EXTRAS["all"]
    assert named_in(everything) == for_users


def test_constraints_pin_every_package_of_the_extras() -> None:
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    requirements = [each for extra in EXTRAS.values() for each in extra if not each.startswith("moldau[")]
    names = {re.match(r"[A-Za-z0-9-]+", each)[0].lower() for each in requirements}  # type: ignore[index]
    assert names - pinned == set()
