"""Files on an object store or in a directory: the rows of each `write` as the lines of one file.

A file is named after a digest of its rows, so a call that is repeated writes the same file again, and other rows never
replace it. It appears when it is complete: an object store shows it at its end, and in a directory it is written under
another name first.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from moldau.backends.interface import Failed, Refused, Row
from moldau.backends.options import Options

SUFFIXES: Final = {"none": ".jsonl", "gzip": ".jsonl.gz"}
S3_OPTIONS: Final = ("access_key", "secret_key", "session_token", "region", "endpoint_override", "scheme")
NAMES_OF_S3: Final = {"scheme": ("https", "http")}
NEW: Final = ".new"


@dataclass(frozen=True, slots=True)
class FilesSettings:
    url: str
    compression: str
    suffix: str
    options: Options

    @staticmethod
    def read(url: str, options: Options) -> FilesSettings:
        """Raises ValueError for what cannot work."""
        scheme = url.partition("://")[0] if "://" in url else "file"
        if scheme not in ("file", "s3", "gs"):
            raise ValueError("files are written to a directory, or to s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        if scheme != "s3" and (named := [name for name in S3_OPTIONS if options.text(name) is not None]):
            raise ValueError(f"the option '{named[0]}' is for s3://")
        options.choice("scheme", NAMES_OF_S3["scheme"], "https")
        compression = options.choice("compression", tuple(SUFFIXES), "none")
        suffix = options.text("suffix", SUFFIXES[compression])
        if not re.fullmatch(r"[A-Za-z0-9._-]{0,40}", suffix):
            raise ValueError("the option 'suffix' is the end of a file's name, such as .jsonl")
        return FilesSettings(url, compression, suffix, options)


def file_name(rows: Sequence[tuple[str, bytes]], suffix: str) -> str:
    """Return the name of the file with these rows: their keys and lines."""
    digest = sha256()
    for key, line in rows:
        digest.update(sha256(key.encode()).digest() + line + b"\n")
    return f"{digest.hexdigest()}{suffix}"


class FilesBackend:
    def __init__(self, settings: FilesSettings) -> None:
        self._settings = settings
        self._system: Any = None
        self._folder = ""

    def open(self) -> None:
        self._system, self._folder = _file_system(self._settings)
        if self._is_local:
            self._system.create_dir(self._folder, recursive=True)

    def write(self, rows: Sequence[Row]) -> list[Failed]:
        failures: list[Failed] = []
        written: list[tuple[str, bytes]] = []
        for index, row in enumerate(rows):
            line = row.values.get("line")
            content = line if isinstance(line, bytes) else str(line or "").encode()
            if b"\n" in content or b"\r" in content:
                failures.append(Failed(index, Refused("the line has a line end")))
            else:
                written.append((row.key, content))
        if written:
            content = b"".join(line + b"\n" for _, line in written)
            self._write(f"{self._folder}/{file_name(written, self._settings.suffix)}", content)
        return failures

    def close(self) -> None:
        """Nothing is open between two writes."""

    @property
    def _is_local(self) -> bool:
        return str(self._system.type_name) == "local"

    def _write(self, path: str, content: bytes) -> None:
        if self._settings.compression == "gzip":
            content = gzip.compress(content, mtime=0)  # the same bytes in each attempt
        written = f"{path}{NEW}" if self._is_local else path
        with self._system.open_output_stream(written) as stream:
            stream.write(content)
        if written != path:
            os.replace(written, path)


def _file_system(settings: FilesSettings) -> tuple[Any, str]:
    """Return the file system, and the folder in it."""
    from pyarrow import fs

    url, options = settings.url, settings.options
    if "://" not in url:
        return fs.LocalFileSystem(), url.rstrip("/")
    named = {name: value for name in S3_OPTIONS if (value := options.text(name)) is not None}
    if url.startswith("s3://") and named:
        return fs.S3FileSystem(**named), url.removeprefix("s3://").rstrip("/")
    system, folder = fs.FileSystem.from_uri(url)
    return system, str(folder).rstrip("/")
