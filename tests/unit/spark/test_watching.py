"""Waiting for responses on several connections."""

from __future__ import annotations

import os
import resource
import socket
from typing import Any

import pytest

from moldau.spark.watching import _readable

BEYOND_SELECT = 1100


def test_a_file_descriptor_beyond_the_limit_of_select_is_watched() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= BEYOND_SELECT:
        pytest.skip(f"this process may not have {BEYOND_SELECT} files open")
    here, there = socket.socketpair()
    high = os.dup2(here.fileno(), BEYOND_SELECT)
    try:

        class Numbered:
            has_buffered = False

            def fileno(self) -> int:
                return high

        channel: Any = Numbered()
        assert _readable([channel], 0) == []
        there.send(b"x")
        assert _readable([channel], 5) == [channel]
    finally:
        os.close(high)
        here.close()
        there.close()


def test_a_response_already_decrypted_by_tls_is_readable_at_once() -> None:
    """The socket has nothing more to read: `select` would wait."""

    class Buffered:
        def __init__(self, has_buffered: bool) -> None:
            self.has_buffered = has_buffered

    channels: list[Any] = [Buffered(False), Buffered(True)]
    assert _readable(channels, 3600) == [channels[1]]
