"""The functions of each system that send a file, with real sockets; and the errors of a closed peer."""

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


class Connection(NamedTuple):
    file: int
    ours: socket.socket
    theirs: socket.socket


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with path.open("rb") as file, ours, theirs:
        yield Connection(file.fileno(), ours, theirs)


@pytest.fixture(params=["linux", "darwin", "freebsd14", "openbsd7"])
def send_file(request: pytest.FixtureRequest) -> SendFile:
    return send_file_of(request.param)


def test_a_part_of_the_file_is_sent(connection: Connection, send_file: SendFile) -> None:
    assert send_file(connection.ours.fileno(), connection.file, 100, 50) == 50
    assert connection.theirs.recv(1000) == CONTENT[100:150]


def test_zero_is_returned_at_the_end_of_the_file(connection: Connection, send_file: SendFile) -> None:
    assert send_file(connection.ours.fileno(), connection.file, len(CONTENT) - 6, 50) == 6
    assert send_file(connection.ours.fileno(), connection.file, len(CONTENT), 50) == 0


def test_a_full_socket_raises_blocking_io_error(connection: Connection, send_file: SendFile) -> None:
    with pytest.raises(BlockingIOError):  # noqa: PT012 - the system decides how much fits
        while True:
            assert send_file(connection.ours.fileno(), connection.file, 0, len(CONTENT)) > 0


def test_a_closed_peer_is_detected(connection: Connection, send_file: SendFile) -> None:
    connection.theirs.close()
    with pytest.raises(OSError) as failed:
        send_file(connection.ours.fileno(), connection.file, 0, 10)
    assert is_peer_gone(failed.value)


def test_a_count_of_zero_sends_nothing(connection: Connection) -> None:
    """For macOS a count of 0 means the rest of the file."""

    def to_the_end(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        return os.sendfile(out_fd, in_fd, offset, count or len(CONTENT) - offset)

    assert to_the_end(connection.ours.fileno(), connection.file, len(CONTENT) - 3, 0) == 3
    assert bounded_send_file(to_the_end)(connection.ours.fileno(), connection.file, len(CONTENT) - 3, 0) == 0
    assert connection.theirs.recv(1000) == CONTENT[-3:]


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.EPROTOTYPE, errno.EPIPE, errno.ECONNRESET])
def test_errors_of_a_closed_peer_are_recognised(number: int) -> None:
    assert is_peer_gone(OSError(number, os.strerror(number)))


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EBADF])
def test_other_errors_are_not_taken_for_a_closed_peer(number: int) -> None:
    assert not is_peer_gone(OSError(number, os.strerror(number)))


@linux_only
def test_linux_uses_the_system_call_directly() -> None:
    assert send_file_of("linux") is os.sendfile
    assert file_sending.send_file is os.sendfile
