"""Clients that misuse a broker, and idle ones, all in one event loop. Each hostile one comes back when it is
disconnected. A test runs a few of them; `bench.hostile` runs many, in a process of their own.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
METADATA: Final = 3
SOURCE: Final = "127.0.0.2"
"""Hostile clients come from another address than well-behaved ones."""
PAUSE_S: Final = 0.2
"""Before a hostile client comes back."""
CONNECTS_AT_ONCE: Final = 50
BAD_USER: Final = ("mallory", "mallory-secret")

CLIENT_ID: Final = b"hostile"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Target:
    """The listeners of the broker: one with SASL, and one with TLS."""

    sasl: str
    tls: str
    source: str | None = SOURCE
    disconnects: Counter[str] = field(default_factory=Counter)
    """How often the broker ended a connection, by the kind of client."""
    _opened: dict[object, list[asyncio.StreamWriter]] = field(default_factory=dict)
    """The connections of each task."""

    async def connect(self, address: str, context: ssl.SSLContext | None = None) -> Streams:
        host, _, port = address.rpartition(":")
        local = None if self.source is None else (self.source, 0)
        streams = await asyncio.open_connection(host, int(port), local_addr=local, ssl=context)
        self._opened.setdefault(asyncio.current_task(), []).append(streams[1])
        return streams

    def disconnect(self) -> None:
        """Close all connections of the current task."""
        for writer in self._opened.pop(asyncio.current_task(), []):
            writer.transport.abort()


def request(api_key: int, version: int, body: bytes) -> bytes:
    """Return a whole frame with correlation id 1."""
    head = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def sasl_frames(user: str, password: str) -> list[bytes]:
    """The requests of a login with PLAIN: SaslHandshake v1 and SaslAuthenticate v0."""
    token = f"\0{user}\0{password}".encode()
    return [
        request(SASL_HANDSHAKE, 1, struct.pack(">h", 5) + b"PLAIN"),
        request(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token),
    ]


def metadata_request() -> bytes:
    """All topics, Metadata v1."""
    return request(METADATA, 1, struct.pack(">i", -1))


async def receive_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def log_in(streams: Streams, user: str, password: str) -> None:
    reader, writer = streams
    for frame in sasl_frames(user, password):
        writer.write(frame)
        await receive_frame(reader)


async def until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


# --- the kinds of hostile clients: each attacks once, until it is disconnected ------------------------------------


async def half_frame(target: Target) -> None:
    """Half a request, and then nothing."""
    reader, writer = await target.connect(target.sasl)
    writer.write(request(API_VERSIONS, 0, b"")[:9])
    await until_closed(reader)


async def byte_by_byte(target: Target) -> None:
    """A byte every second."""
    reader, writer = await target.connect(target.sasl)
    ended = asyncio.ensure_future(until_closed(reader))
    for byte in request(METADATA, 1, bytes(1 << 16)):
        writer.write(bytes([byte]))
        if (await asyncio.wait([ended], timeout=1.0))[0]:
            break
    await ended


async def garbage(target: Target) -> None:
    reader, writer = await target.connect(target.sasl)
    writer.write(random.randbytes(1 << 12))
    await until_closed(reader)


async def huge_claim(target: Target) -> None:
    """The largest request that may come before authentication, of which little comes."""
    reader, writer = await target.connect(target.sasl)
    writer.write(struct.pack(">i", 524_288) + bytes(100))
    await until_closed(reader)


async def unauthenticated_flood(target: Target) -> None:
    """Many requests before authentication."""
    reader, writer = await target.connect(target.sasl)
    writer.write(request(API_VERSIONS, 0, b"") * 1000)
    await until_closed(reader)


async def wrong_password(target: Target) -> None:
    streams = await target.connect(target.sasl)
    await log_in(streams, "mallory", "wrong")
    await until_closed(streams[0])


async def half_handshake(target: Target) -> None:
    """The first bytes of a TLS handshake."""
    reader, writer = await target.connect(target.tls)
    writer.write(first_hello()[:60])
    await until_closed(reader)


async def second_hello(target: Target) -> None:
    """A handshake, and then bytes of another one, in the clear, as a renegotiation would begin."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await target.connect(target.tls, context)
    raw = writer.get_extra_info("socket")
    os.write(raw.fileno(), first_hello())
    await until_closed(reader)


async def connection_flood(target: Target) -> None:
    """Connections that are closed at once."""
    for _ in range(20):
        _, writer = await target.connect(target.sasl)
        writer.close()


async def request_flood(target: Target) -> None:
    """An authenticated user who asks without a pause, and reads the responses."""
    reader, writer = streams = await target.connect(target.sasl)
    await log_in(streams, *BAD_USER)
    frame = metadata_request()
    while True:
        writer.write(frame)
        await receive_frame(reader)


async def never_reads(target: Target) -> None:
    """An authenticated user who asks and does not read."""
    streams = await target.connect(target.sasl)
    await log_in(streams, *BAD_USER)
    _, writer = streams
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    while True:
        writer.write(metadata_request() * 10)
        await writer.drain()


KINDS: Final[Mapping[str, Callable[[Target], Awaitable[None]]]] = {
    attack.__name__.replace("_", " "): attack
    for attack in (
        half_frame,
        byte_by_byte,
        garbage,
        huge_claim,
        unauthenticated_flood,
        wrong_password,
        half_handshake,
        second_hello,
        connection_flood,
        request_flood,
        never_reads,
    )
}


def first_hello() -> bytes:
    to_server = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client = context.wrap_bio(ssl.MemoryBIO(), to_server, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return to_server.read()


async def attack_forever(kind: str, target: Target) -> None:
    attack = KINDS[kind]
    while True:
        try:
            with suppress(OSError, EOFError):
                await attack(target)
        finally:
            target.disconnect()
        target.disconnects[kind] += 1
        await asyncio.sleep(PAUSE_S)


async def logged_in(target: Target, login: tuple[str, str]) -> Streams | None:
    """Return the streams of a connection after its login; None if the broker ended it before."""
    try:
        streams = await target.connect(target.sasl)
        await log_in(streams, *login)
    except (OSError, EOFError):
        return None
    return streams


async def stay_idle(target: Target, login: tuple[str, str], gate: asyncio.Semaphore, ready: asyncio.Queue[int]) -> None:
    """Log in and do nothing. On a busy machine a login may take longer than the broker allows: then try again."""
    try:
        async with gate:
            while (streams := await logged_in(target, login)) is None:
                target.disconnect()
        await ready.put(1)
        await until_closed(streams[0])
        target.disconnects["idle"] += 1
    finally:
        target.disconnect()


class Crowd:
    """Idle and hostile clients, as tasks of this event loop."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._tasks: list[asyncio.Task[None]] = []

    async def open_idle(self, count: int, login: tuple[str, str]) -> None:
        """Return when all are connected and logged in."""
        gate, ready = asyncio.Semaphore(CONNECTS_AT_ONCE), asyncio.Queue[int]()
        idle = Target(self.target.sasl, self.target.tls, None, self.target.disconnects)
        self._tasks += [asyncio.create_task(stay_idle(idle, login, gate, ready)) for _ in range(count)]
        for _ in range(count):
            await ready.get()

    def attack(self, count: int, only: str = "") -> None:
        """Start hostile clients, of all kinds in turn, or of those with this text in their name."""
        kinds = [kind for kind in KINDS if only in kind]
        self._tasks += [
            asyncio.create_task(attack_forever(kinds[number % len(kinds)], self.target)) for number in range(count)
        ]

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports close their sockets in the next turn


def has_address(address: str) -> bool:
    """Whether a client here can come from that address: macOS has only 127.0.0.1."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
