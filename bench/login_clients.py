"""Clients that connect, do a TLS handshake or log in with SCRAM, and leave, again and again: several threads in several
processes, so that the broker and not the client is measured.
"""

from __future__ import annotations

import hashlib
import hmac
import multiprocessing
import os
import socket
import ssl
import struct
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import lru_cache
from typing import Final, NamedTuple

from bench.brokers.connection import BrokerRefused, Connection
from bench.brokers.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, api_versions_request, request

PROCESSES: Final = 2
THREADS: Final = 4
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Login(NamedTuple):
    """How a client connects. It can be sent to another process."""

    address: str
    authority: str | None = None
    """The certificate to trust, for TLS."""
    mechanism: str | None = None
    user: str = ""
    password: str = ""


class LoggedIn(NamedTuple):
    logins: int
    seconds: float


class Crowd:
    """The processes; they are started before anything is measured."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes = ProcessPoolExecutor(PROCESSES, mp_context=context)
        list(self._processes.map(_noop, range(PROCESSES * 2)))

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.shutdown()

    def log_in(self, login: Login, seconds: float) -> LoggedIn:
        """Log in for that long with all threads of all processes; return how often it succeeded."""
        began = time.perf_counter()
        works = [self._processes.submit(_work, login, seconds) for _ in range(PROCESSES)]
        return LoggedIn(sum(work.result() for work in works), time.perf_counter() - began)


def _noop(_: int) -> None:
    time.sleep(0.05)


def _work(login: Login, seconds: float) -> int:
    context = None if login.authority is None else ssl.create_default_context(cadata=login.authority)
    until = time.perf_counter() + seconds
    with ThreadPoolExecutor(THREADS) as threads:
        counts = threads.map(lambda _: _repeat(lambda: log_in_once(login, context), until), range(THREADS))
        return sum(counts)


def _repeat(once: Callable[[], None], until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        once()
        count += 1
    return count


def log_in_once(login: Login, context: ssl.SSLContext | None) -> None:
    """Connect, log in, ask one thing, and leave."""
    with Connection(login.address, 1 << 12) as connection:
        if context is not None:
            connection.socket = context.wrap_socket(connection.socket, server_hostname="127.0.0.1")
        if login.mechanism is not None:
            _scram(connection, login, login.mechanism)
        _ask(connection, api_versions_request())
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no TIME_WAIT


def _scram(connection: Connection, login: Login, mechanism: str) -> None:
    name = HASHES[mechanism]
    chosen = mechanism.encode()
    _check(_ask(connection, request(SASL_HANDSHAKE, 1, struct.pack(">h", len(chosen)) + chosen))[4:6])
    nonce = os.urandom(12).hex()
    bare = f"n={login.user},r={nonce}"
    server_first = _token(connection, f"n,,{bare}")
    fields = dict(field.split("=", 1) for field in server_first.split(","))
    client_key, stored_key = _keys(name, login.password, fields["s"], int(fields["i"]))
    final = f"c=biws,r={fields['r']}"
    signature = hmac.digest(stored_key, f"{bare},{server_first},{final}".encode(), name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    _token(connection, f"{final},p={b64encode(proof).decode()}")


@lru_cache
def _keys(name: str, password: str, salt: str, iterations: int) -> tuple[bytes, bytes]:
    """Derived once, as a client does that keeps its keys: it is the broker that is measured."""
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b64decode(salt), iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return client_key, hashlib.new(name, client_key).digest()


def _token(connection: Connection, text: str) -> str:
    """Send a token with SaslAuthenticate v0; return the broker's."""
    data = text.encode()
    reply = _ask(connection, request(SASL_AUTHENTICATE, 0, struct.pack(">i", len(data)) + data))
    _check(reply[4:6])
    message_bytes = max(0, int.from_bytes(reply[6:8], "big", signed=True))
    return reply[8 + message_bytes + 4 :].decode()


def _ask(connection: Connection, frame: bytes) -> bytes:
    connection.socket.sendall(frame)
    received = connection.receive_some(0)
    while received < 4 or received < 4 + int.from_bytes(connection.buffer[:4], "big"):
        received = connection.receive_some(received)
    return bytes(connection.buffer[4:received])


def _check(error: bytes) -> None:
    if error != b"\0\0":
        raise BrokerRefused(f"the login was refused with error {int.from_bytes(error, 'big')}")
