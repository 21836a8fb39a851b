"""A broker that ends must not look like a reader of our output that ends (`| head`), which is no error."""

from __future__ import annotations

import socket
import ssl

import pytest

from moldau.client.channel import Channel, Security


class BrokenSocket:
    """A connection whose other side is gone."""

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
def test_it_is_an_error_of_the_connection(tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BrokenSocket()
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: broken)
    with pytest.raises(ConnectionError, match="the broker closed the connection") as failed:
        Channel("localhost", 9092, Security(tls))
    assert not isinstance(failed.value, BrokenPipeError)
    assert broken.is_closed
