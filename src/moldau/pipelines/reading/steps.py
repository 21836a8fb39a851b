"""The `steps` of a pipeline file: SQL or a Python function, in order, each a view for the steps after it.

Spark checks later whether SQL compiles and which views it uses. The file names the inputs of a Python step, so this
module checks them. It parses the user's modules but never imports them.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from moldau.pipelines.problems import did_you_mean, quoted
from moldau.pipelines.reading.paths import Folder
from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.yaml_tree import MappingNode, ScalarNode
from moldau.pipelines.spec import PythonStep, SqlStep, Step

OTHER_KEYS: Final = ("name", "watermark", "deduplicate", "inputs", "args")
SYNONYMS: Final = {"query": "sql", "select": "sql", "function": "python", "from": "inputs", "input": "inputs"}
_FUNCTION: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)


def read_step(
    name: str, section: Section, folder: Folder, above: Collection[str], all_names: Collection[str]
) -> Step | None:
    """Read one step. `above` are the views it may use; `all_names` also has the later ones."""
    section.known_keys.add("name")
    kind = section.only_one_of(("sql", "python"), "what does it do?", OTHER_KEYS, SYNONYMS)
    if kind is None:
        return None
    if kind == "sql":
        step: Step = _sql_step(name, section)
    else:
        step = _python_step(name, section, folder, above, all_names)
    section.finish(SYNONYMS)
    return step


def _sql_step(name: str, section: Section) -> SqlStep:
    section.refuse_keys(("inputs", "args"), lambda key: f"'{key}' is for python steps: SQL names its tables itself")
    scalar = section.scalar("sql", "a text")
    return SqlStep(
        name=name,
        place=section.place,
        sql=section.text("sql") or "" if scalar else "",
        sql_place=scalar.map.at(0) if scalar else section.place,
        watermark=section.watermark(),
        deduplicate=section.texts("deduplicate"),
    )


def _python_step(
    name: str, section: Section, folder: Folder, above: Collection[str], all_names: Collection[str]
) -> PythonStep:
    module, function = _function(section, folder)
    return PythonStep(
        name=name,
        place=section.place,
        module=module,
        function=function,
        inputs=_inputs(section, above, all_names),
        args=read_args(section),
        watermark=section.watermark(),
        deduplicate=section.texts("deduplicate"),
    )


def _function(section: Section, folder: Folder) -> tuple[str, str]:
    written = section.text("python") or ""
    match = _FUNCTION.fullmatch(written)
    place = section.value_place("python")
    if match is None:
        if written:
            section.refuse(f"{quoted(written)} is not module:function", place)
        return "", ""
    module, function = match.groups()
    if folder.files_must_exist:
        _check_function(section, module, function, folder.path)
    return module, function


def _check_function(section: Section, module: str, function: str, folder: Path) -> None:
    """Refuse a missing module or function; the problem points at the module, or at the function after the colon."""
    place = section.value_place("python")
    problem = module_problem(module, folder)
    if problem is None and (problem := function_problem(module, function, folder)) is not None:
        scalar = section.node("python")
        if isinstance(scalar, ScalarNode) and scalar.plain:
            place = replace(place, column=place.column + len(module) + 1)
    if problem is not None:
        section.refuse(problem, place)


def module_problem(module: str, folder: Path) -> str | None:
    """Return why a module beside the pipeline's file cannot be used, as far as its source shows; else None."""
    file = _module_file(module, folder)
    if not file.is_file():
        suggestion = did_you_mean(module, (path.stem for path in folder.glob("*.py")))
        name = file.relative_to(folder).as_posix()
        return f"there is no module {quoted(name)} beside the pipeline's file{suggestion}"
    try:
        _parse(file)
    except SyntaxError as error:
        return f"{file.name}, line {error.lineno}: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        return f"{file.name} cannot be read: {error}"
    return None


def function_problem(module: str, function: str, folder: Path, what: str = "function") -> str | None:
    """Return a message if a usable module lacks the function, or the class."""
    file = _module_file(module, folder)
    module_ast = _parse(file)
    names = sorted(set(_bound_names(module_ast)))
    if function in names or "*" in names:
        return None
    defined = [node.name for node in module_ast.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    suggestion = did_you_mean(function, defined) or did_you_mean(function, names)
    return f"{file.name} has no {what} {quoted(function)}{suggestion}"


def _module_file(module: str, folder: Path) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def _parse(file: Path) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(file.read_bytes())


def _bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module binds, also in its `if` and `try`, but not the local names of its functions and
    classes; "*" for `from … import *`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            yield from (name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        yield from _bound_names(node)


def _inputs(section: Section, above: Collection[str], all_names: Collection[str]) -> tuple[str, ...]:
    if not section.has("inputs"):
        section.refuse("missing key 'inputs': which views does the function get?")
    inputs = section.scalars("inputs")
    for scalar in inputs:
        if scalar.text in above:
            continue
        if scalar.text in all_names:
            section.refuse(f"the step {quoted(scalar.text)} is not above this one", scalar.place)
        else:
            suggestion = did_you_mean(scalar.text, above)
            hint = None if suggestion else f"there are: {', '.join(above)}" if above else None
            section.refuse(f"unknown input {quoted(scalar.text)}{suggestion}", scalar.place, hint)
    return tuple(scalar.text for scalar in inputs)


def read_args(section: Section) -> dict[str, object]:
    """Return the arguments of a function or class of the user."""
    node = section.node("args")
    if node is None:
        return {}
    if not isinstance(node, MappingNode):
        section.refuse("'args' must be a mapping of the function's arguments", section.value_place("args"))
        return {}
    for name in node.values:
        if not name.isidentifier():
            section.refuse(f"{quoted(name)} cannot be an argument's name", node.keys[name])
    return {name: section.python_value(value) for name, value in node.values.items()}
