"""Writes the tables of APIs in docs/compatibility.md and docs/security.md, from what the handlers declare.

python tools/generate_api_tables.py            write
python tools/generate_api_tables.py --check    exit 1 if the checked-in tables differ
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from moldau.server.apis import broker_handlers, controller_handlers, requirements
from moldau.server.handler import Handler
from moldau.server.handlers.forwarded import ForwardedHandler
from moldau.wire.apis import APIS

DOCS = Path(__file__).parent.parent / "docs"
WIDTH = 120


def of_brokers() -> str:
    cells = [f"{name_of(each)} | {versions_of(each)}" for each in broker_handlers()]
    cells += ["|"] * (len(cells) % 2)
    rows = [f"| {left} | {right} |" for left, right in zip(cells[::2], cells[1::2], strict=True)]
    return "\n".join(["| API | versions | API | versions |", "|---|---|---|---|", *rows])


def of_controllers() -> str:
    own = (each for each in controller_handlers() if not issubclass(each, ForwardedHandler))
    names = ", ".join(f"{name_of(each)} {versions_of(each)}" for each in own)
    text = f"The controllers' listener supports {names}, and those of the APIs above that the controller decides."
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def of_requirements() -> str:
    rows = sorted(
        f"| {APIS[api].name} | {', '.join(f'{each.operation.name} {each.resource.name}' for each in needs)} |"
        for api, needs in requirements().items()
    )
    return "\n".join(["| API | needs |", "|---|---|", *rows])


def name_of(handler: type[Handler]) -> str:
    return APIS[handler.api].name


def versions_of(handler: type[Handler]) -> str:
    lowest, highest = handler.versions
    served = str(lowest) if lowest == highest else f"{lowest}–{highest}"
    return served if handler.listed_from is None else f"{served} (advertised from {handler.listed_from})"


TABLES = {
    "compatibility.md": {"of brokers": of_brokers, "of controllers": of_controllers},
    "security.md": {"requirements": of_requirements},
}


def stale_pages() -> Iterable[tuple[Path, str]]:
    """Yield the pages that differ, and what they must be."""
    for page, tables in TABLES.items():
        path = DOCS / page
        text = new = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            begin, end = f"<!-- APIs {name}: written by tools/generate_api_tables.py -->", "<!-- end -->"
            pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
            written = f"{begin}\n{table()}\n{end}"
            new, count = pattern.subn(lambda _, written=written: written, new)
            assert count == 1, f"{page} has the mark of one table {name}"
        if new != text:
            yield path, new


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    is_check = parser.parse_args().check
    stale = list(stale_pages())
    for path, text in stale:
        if not is_check:
            path.write_text(text, encoding="utf-8")
    what = "differs" if is_check else "written"
    print("\n".join(f"{what}: {path.name}" for path, _ in stale) or "up to date")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    raise SystemExit(main())
