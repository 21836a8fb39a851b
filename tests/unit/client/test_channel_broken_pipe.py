"""A connection closed by a broker must not look like a closed output (`| head`), which is not an error."""

from __future__ import annotations

import socket
import ssl

import pytest

from moldau.client.channel import Channel, Security


class BrokenSocket:
    """A connection that the other side has closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def setsockopt(self, *_: object) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    def close(self) -> None:
        self.is_closed = True


class BrokenTls(ssl.SSLContext):
    def wrap_socket(self, *_: object, **__: object) -> ssl.SSLSocket:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("tls", [None, BrokenTls(ssl.PROTOCOL_TLS_CLIENT)])
def test_a_broken_pipe_is_raised_as_a_connection_error(
    tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = BrokenSocket()
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: broken)
    with pytest.raises(ConnectionError, match="the broker closed the connection") as failed:
        Channel("localhost", 9092, Security(tls))
    assert not isinstance(failed.value, BrokenPipeError)
    assert broken.is_closed
