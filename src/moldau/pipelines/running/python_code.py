"""Digests of the code of Python steps, which ignore layout and comments. The code is parsed, never run.

identity.py records them, and compares them before the next run.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

_END: Final = (")",)
"""Words of `_syntax` are tuples among the nodes, as no value in a tree is one."""


def code_digest(module: str, folder: Path) -> str:
    """Return digests of the module and of the modules in the folder that it imports: `<of ast.dump>-<of the syntax>`.

    What `ast.dump` returns differs from one version of Python to the next. Older versions recorded only its digest.
    """
    trees: dict[Path, ast.Module | str] = {}
    waiting = [_file(module, folder)]
    while waiting:
        file = waiting.pop()
        if file in trees or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # reported when the step is compiled
            trees[file] = text
            continue
        trees[file] = tree
        waiting += [_file(name, folder) for name in _imported(tree)]
    parts = [(file.name, trees[file]) for file in sorted(trees)]
    dumped = (f"{name} {tree if isinstance(tree, str) else ast.dump(tree)}" for name, tree in parts)
    written = (f"{name} {tree if isinstance(tree, str) else ' '.join(_syntax(tree))}" for name, tree in parts)
    return f"{_digest(dumped)}-{_digest(written)}"


def is_same_code(recorded: str | None, now: str | None) -> bool:
    if recorded is None or now is None:
        return recorded == now
    of_dump, _, of_syntax = now.partition("-")
    return recorded.partition("-")[2] == of_syntax if "-" in recorded else recorded == of_dump


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


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


def _file(module: str, folder: Path) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
