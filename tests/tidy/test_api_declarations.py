"""An API is one class: nothing else in the server names it, and what follows from the declarations is up to date."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from collections import defaultdict
from inspect import Parameter, signature
from pathlib import Path

import pytest

from moldau.server.apis import broker_handlers, controller_handlers, declared_handlers
from moldau.server.handler import Handler
from moldau.server.parts import BrokerParts, ControllerParts
from moldau.wire.apis import APIS

ROOT = Path(__file__).parents[2]
SERVING = ("server", "security", "assembly", "metadata", "coordinator", "replica")
"""Packages that serve requests. Others name the APIs that they ask for, as clients do."""


def test_each_api_is_named_in_one_place() -> None:
    places = defaultdict(list)
    for package in SERVING:
        for path in sorted((ROOT / "src" / "moldau" / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "ApiKey" in text else ():
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ApiKey":
                    places[node.attr].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not {name: found for name, found in places.items() if len(found) > 1}
    assert places.keys() == {each.api.name for each in declared_handlers()}


def test_each_side_has_one_handler_for_an_api() -> None:
    for handlers in (broker_handlers(), controller_handlers()):
        assert len({each.api for each in handlers}) == len(handlers)
    assert {*broker_handlers(), *controller_handlers()} == set(declared_handlers())


@pytest.mark.parametrize("handler", declared_handlers(), ids=lambda each: each.__name__)
def test_declared_versions_exist(handler: type[Handler]) -> None:
    assert APIS[handler.api].lowest <= handler.versions[0] <= handler.versions[1] <= APIS[handler.api].highest


@pytest.mark.parametrize(
    ("parts", "handlers"), [(BrokerParts, broker_handlers()), (ControllerParts, controller_handlers())]
)
def test_nodes_have_what_handlers_need(parts: type, handlers: list[type[Handler]]) -> None:
    """A parameter has the name and the type of a field."""
    fields = {each.name: str(each.type) for each in dataclasses.fields(parts)}
    used = set()
    for handler in handlers:
        for name, parameter in signature(handler).parameters.items():
            used.add(name)
            if name not in fields:
                assert parameter.default is not Parameter.empty, f"{handler.__name__} needs {name}"
                continue
            wanted = parameter.annotation.removesuffix(" | None")
            assert wanted == fields[name], f"{handler.__name__}: {name} is a {fields[name]}"
    assert fields.keys() <= used, "a field that no handler needs"


def test_the_tables_in_the_docs_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_api_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun python tools/generate_api_tables.py"
