"""Each system's way of sending a file, to a real socket; and what tells that nobody is there to take it."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from running_here import linux_only

from moldau.platforms import file_sending
from moldau.platforms.file_sending import SendFile, bounded_send_file, is_peer_gone, send_file_of

CONTENT = bytes(range(256)) * 16


class Line(NamedTuple):
    file: int
    ours: socket.socket
    theirs: socket.socket


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with path.open("rb") as file, ours, theirs:
        yield Line(file.fileno(), ours, theirs)


@pytest.fixture(params=["linux", "darwin", "freebsd14", "openbsd7"])
def send_file(request: pytest.FixtureRequest) -> SendFile:
    return send_file_of(request.param)


def test_a_part_of_the_file_is_sent(line: Line, send_file: SendFile) -> None:
    assert send_file(line.ours.fileno(), line.file, 100, 50) == 50
    assert line.theirs.recv(1000) == CONTENT[100:150]


def test_the_end_of_the_file_is_told(line: Line, send_file: SendFile) -> None:
    assert send_file(line.ours.fileno(), line.file, len(CONTENT) - 6, 50) == 6
    assert send_file(line.ours.fileno(), line.file, len(CONTENT), 50) == 0


def test_a_socket_that_is_full_says_so(line: Line, send_file: SendFile) -> None:
    with pytest.raises(BlockingIOError):  # noqa: PT012 - how much fits is the system's affair
        while True:
            assert send_file(line.ours.fileno(), line.file, 0, len(CONTENT)) > 0


def test_a_peer_that_is_gone_is_told_from_a_fault(line: Line, send_file: SendFile) -> None:
    line.theirs.close()
    with pytest.raises(OSError) as gone:
        send_file(line.ours.fileno(), line.file, 0, 10)
    assert is_peer_gone(gone.value)


def test_nothing_is_not_everything(line: Line) -> None:
    """To macOS a count of 0 means all that is left of the file."""

    def to_the_end(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        return os.sendfile(out_fd, in_fd, offset, count or len(CONTENT) - offset)

    assert to_the_end(line.ours.fileno(), line.file, len(CONTENT) - 3, 0) == 3
    assert bounded_send_file(to_the_end)(line.ours.fileno(), line.file, len(CONTENT) - 3, 0) == 0
    assert line.theirs.recv(1000) == CONTENT[-3:]


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.EPROTOTYPE, errno.EPIPE, errno.ECONNRESET])
def test_ways_in_which_a_peer_is_gone(number: int) -> None:
    assert is_peer_gone(OSError(number, os.strerror(number)))


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EBADF])
def test_faults_that_are_ours(number: int) -> None:
    assert not is_peer_gone(OSError(number, os.strerror(number)))


@linux_only
def test_linux_calls_the_kernel_with_nothing_in_between() -> None:
    assert send_file_of("linux") is os.sendfile
    assert file_sending.send_file is os.sendfile
