"""The type of bytes that are read or sent without a copy."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
