"""Access tokens of a client, from files and from token endpoints that may be slow or hostile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.certificates import Vault
from harness.patience import PATIENCE_S
from harness.tokens import Issuer, Provider, provider

from moldau.client import access_tokens
from moldau.client.access_tokens import AccessTokens
from moldau.client.web_requests import RequestFailed, WebRequest, fetch
from moldau.security.sasl.client import LoginFailed
from moldau.security.sasl.oauthbearer.settings import TokenRequest

SECRET = "n0de-secret"


@pytest.fixture
def running() -> Iterator[Provider]:
    with provider(Issuer()) as found:
        yield found


def request_to(running: Provider, **more: object) -> TokenRequest:
    return TokenRequest(f"{running.url}/token", "node", SECRET, **{"retry_ms_max": 300, **more})  # type: ignore[arg-type]


def test_a_token_is_kept_for_most_of_its_life(running: Provider) -> None:
    tokens = AccessTokens(request_to(running))
    first, expires = tokens.with_expiry()
    assert abs(expires - time.time() - 600) < 100
    assert tokens.current() == first
    assert len(running.token_requests) == 1
    running.lifetime_s = 0.0
    short = AccessTokens(request_to(running))
    assert short.current() != short.current()


def test_a_wrong_secret_is_reported_at_once_and_not_printed(running: Provider) -> None:
    tokens = AccessTokens(TokenRequest(f"{running.url}/token", "node", "wr0ng-planted"))
    with pytest.raises(LoginFailed, match=f"no token from {running.url}/token: the server answered 401") as failed:
        tokens.current()
    assert "wr0ng" not in str(failed.value)
    assert len(running.token_requests) == 1


def test_a_failing_endpoint_is_asked_again(running: Provider) -> None:
    running.status = 503
    with pytest.raises(LoginFailed, match="the server answered 503"):
        AccessTokens(request_to(running)).current()
    threading.Timer(0.1, lambda: setattr(running, "status", 200)).start()
    assert AccessTokens(request_to(running, retry_ms_max=60_000)).current()


class MovedTime:
    """Python's `time`, with a wall clock that the test moves."""

    sleep = staticmethod(time.sleep)
    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.moved_s = 0.0

    def time(self) -> float:
        return time.time() + self.moved_s


def test_a_token_is_used_until_it_expires_if_it_cannot_be_renewed(
    running: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedTime()
    monkeypatch.setattr(access_tokens, "time", clock)
    tokens = AccessTokens(request_to(running))
    first = tokens.current()
    clock.moved_s, running.status = 500.0, 503
    assert tokens.current() == first
    running.status = 200
    assert tokens.current() == first, "the next attempt comes after a pause: it may wait for long"
    clock.moved_s += 2 * access_tokens.RETRY_SECONDS
    running.status = 503
    assert tokens.current() == first
    clock.moved_s = 700.0
    with pytest.raises(LoginFailed, match="the server answered 503"):
        tokens.current()
    running.status = 200
    assert tokens.current() != first


def test_the_scope_and_the_header_are_encoded_if_configured(running: Provider) -> None:
    running.clients["a:b c"] = "x%"
    encoded = TokenRequest(f"{running.url}/token", "a:b c", "x%", "s&t u", is_header_url_encoded=True)
    running.clients["a%3Ab+c"] = "x%25"
    assert AccessTokens(encoded).current()
    assert running.token_requests == ["grant_type=client_credentials&scope=s%26t+u"]


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = AccessTokens(TokenRequest(file.as_uri()))
    with pytest.raises(LoginFailed, match="cannot be read: No such file"):
        tokens.current()
    issuer = Issuer()
    for token in (issuer.token("a"), issuer.token("b")):
        file.write_text(f" {token}\n")
        assert tokens.current() == token
    for wrong in ("", "two words", "a\x01b", "x" * 300_000):
        file.write_text(wrong)
        with pytest.raises(LoginFailed) as failed:
            tokens.current()
        assert len(str(failed.value)) < 300
    file.write_text("opaque")
    token, expires = tokens.with_expiry()
    assert token == "opaque"
    assert expires > time.time()


# --- hostile servers --------------------------------------------------------------------------------------------


@contextmanager
def server_that_sends(data: bytes, then_waits: bool) -> Iterator[str]:
    """Send the bytes to each client, then close the connection, or wait."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.recv(65_536)
                try:
                    client.sendall(data)
                    if then_waits:
                        over.wait()
                except OSError:
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("data", "then_waits", "sentence"),
    [
        (b"", False, "not HTTP|no connection"),
        (b"", True, "no answer in time"),
        (OK, True, "no answer in time"),
        (OK + b"Content-Length: 100\r\n\r\nhalf", True, "no answer in time"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", True, "no answer in time"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nXYZ\r\n", False, "not HTTP"),
        (b"\x16\x03\x01 garbage", False, "not HTTP"),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", False, "the server answered 302"),
        (OK + b"X: " + b"y" * 200_000 + b"\r\n\r\n", False, "not HTTP"),
        (OK + b"\r\n" + b"z" * 2_000_000, False, "it has more than 1000 bytes"),
        (OK + b"Content-Length: 99999999999\r\n\r\n" + b"z" * 2000, True, "it has more than 1000 bytes"),
    ],
)
def test_requests_to_hostile_servers_fail_with_a_short_error(data: bytes, then_waits: bool, sentence: str) -> None:
    with server_that_sends(data, then_waits) as url:
        with pytest.raises(RequestFailed, match=sentence) as failed:
            fetch(WebRequest(url, 1000, read_timeout_s=0.3 if "in time" in sentence else PATIENCE_S))
        assert len(str(failed.value)) < 200


def test_https_needs_a_trusted_certificate(tmp_path: Path) -> None:
    import ssl

    vault = Vault(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(vault.node)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"https://127.0.0.1:{listening.getsockname()[1]}/"

    def serve() -> None:
        for _ in range(2):
            plain, _ = listening.accept()
            try:
                with context.wrap_socket(plain, server_side=True) as client:
                    client.recv(65_536)
                    client.sendall(OK + b"Content-Length: 2\r\n\r\nhi")
            except ssl.SSLError:
                plain.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(RequestFailed, match="TLS: certificate verify failed"):
        fetch(WebRequest(url, 100))
    trusted = (("ssl.truststore.location", vault.trusted), ("ssl.truststore.type", "PEM"))
    assert fetch(WebRequest(url, 100, tls=trusted)) == b"hi"
    thread.join()
    listening.close()
    missing = (("ssl.truststore.location", "/nowhere"), ("ssl.truststore.type", "PEM"))
    with pytest.raises(RequestFailed, match="nowhere"):
        fetch(WebRequest(url, 100, tls=missing))
