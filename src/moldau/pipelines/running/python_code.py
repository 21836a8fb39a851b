"""Digests of the code of Python steps, which ignore layout and comments. The code is parsed, never run.

identity.py records them, and compares them before the next run.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any, Final

Tree = ast.Module | str
"""A module, or its text if that is no Python."""
_END: Final = (")",)
"""Words of `_syntax` are tuples among the nodes, as no value in a tree is one."""


def code_digest(module: str, folder: Path) -> str:
    """Return digests of the module and of the modules in the folder that it imports: `<of ast.dump>-<of the syntax>`.

    What `ast.dump` returns differs from one version of Python to the next. Older versions of Moldau recorded only its
    digest, without the modules of packages.
    """
    file = _module_file(module, folder)
    plain = _reachable(file, lambda _, tree: (_module_file(name, folder) for name in _names_after_import(tree)))
    whole = _reachable(file, lambda file, tree: _imported_files(file.relative_to(folder), tree, folder))
    dumped = (f"{file.name} {tree if isinstance(tree, str) else _dump(tree)}" for file, tree in plain)
    written = (
        f"{file.relative_to(folder).as_posix()} {tree if isinstance(tree, str) else ' '.join(_syntax(tree))}"
        for file, tree in whole
    )
    return f"{_digest(dumped)}-{_digest(written)}"


def _dump(tree: ast.Module) -> str:
    """Return what `ast.dump` does; "" for a sum of more than a thousand terms, which is too deep for it."""
    try:
        return ast.dump(tree)
    except RecursionError:
        return ""


def is_same_code(recorded: str | None, now: str | None) -> bool:
    if recorded is None or now is None:
        return recorded == now
    of_dump, _, of_syntax = now.partition("-")
    return recorded.partition("-")[2] == of_syntax if "-" in recorded else recorded == of_dump


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _reachable(first: Path, imports: Callable[[Path, ast.Module], Iterable[Path]]) -> list[tuple[Path, Tree]]:
    """Return a module and all that it imports, directly or through others, sorted by file."""
    trees: dict[Path, Tree] = {}
    waiting = [first]
    while waiting:
        file = waiting.pop()
        if file in trees or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        try:
            trees[file] = tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # reported when the step is compiled
            trees[file] = text
        else:
            waiting += imports(file, tree)
    return sorted(trees.items(), key=lambda item: item[0])


# --- imports --------------------------------------------------------------------------------------------------------


def _module_file(module: str, folder: Path) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def _names_after_import(tree: ast.Module, level: int | None = None) -> Iterator[str]:
    """Yield the names of modules, and of what may be modules, that imports name; of this number of dots, if given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and not level:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and level in (None, node.level):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and level == node.level:  # from . import name
            yield from (alias.name for alias in node.names)


def _imported_files(importer: PurePath, tree: ast.Module, folder: Path) -> Iterator[Path]:
    """Yield the files that may be imported: modules, packages, and the packages around them. `importer` is relative to
    the folder."""
    levels = {node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for level in {0, *levels}:
        packages = importer.parent.parts
        base = packages[: len(packages) - (level - 1)] if level else ()
        for name in _names_after_import(tree, level):
            parts = (*base, *name.split("."))
            yield folder.joinpath(*parts).with_suffix(".py")
            yield from (folder.joinpath(*parts[:end], "__init__.py") for end in range(1, len(parts) + 1))


# --- syntax ---------------------------------------------------------------------------------------------------------


def _syntax(tree: ast.Module) -> Iterator[str]:
    """Yield the tree as words. Fields without a value are left out: each version of Python adds some."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.AST):
            yield f"{type(node).__name__}("
            waiting.append(_END)
            fields = [(name, value) for name, value in ast.iter_fields(node) if value is not None and value != []]
            waiting += [part for name, value in reversed(fields) for part in (value, (f"{name}=",))]
        elif isinstance(node, list):
            yield "["
            waiting += [_END, *reversed(node)]
        elif isinstance(node, tuple):
            yield from node
        else:
            yield repr(node)
