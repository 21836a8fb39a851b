"""Digests of the code of Python steps, which ignore layout and comments. The code is parsed, never run."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path


def code_digest(module: str, folder: Path) -> str:
    """Return a digest of the module and of the modules in the folder that it imports."""
    seen: dict[Path, str] = {}
    waiting = [_file(module, folder)]
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # reported when the step is compiled
            seen[file] = text
            continue
        seen[file] = ast.dump(tree)
        waiting += [_file(name, folder) for name in _imported(tree)]
    code = "\n".join(f"{file.name} {seen[file]}" for file in sorted(seen))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _file(module: str, folder: Path) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
