"""Whether a path in a pipeline is on this machine: plain paths, `file:/path` and `file:///path` are."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_url(path: str) -> bool:
    return _URL.match(path) is not None


def local_path(path: str) -> str | None:
    """Return the path on this machine; None for a URL of another file system or host."""
    if not is_url(path):
        return path
    scheme, _, rest = path.partition(":")
    rest = "//" + rest.removeprefix("//localhost") if rest.startswith("//localhost/") else rest
    if scheme.lower() != "file" or (rest.startswith("//") and not rest.startswith("///")):
        return None
    return "/" + rest.lstrip("/")


def local_table(path: str) -> str | None:
    """Return the path of a table on this machine; None for other URLs. In the URL of a table %20 is a space, unlike in
    that of files."""
    local = local_path(path)
    return unquote(local) if local is not None and is_url(path) else local
