"""Webhooks a second by the HTTP backend, beside a bare loop over one connection as the limit, and the sender's memory.

    python -m bench.webhooks
    python -m bench.webhooks --rounds 5 --rows 50000 --markdown webhooks.md

A server in a process of its own answers 200, at once or after a pause. Each measurement is a process too, so that
its largest resident memory is its own. Spark has no part in this: a task calls the same code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from moldau.backends.catalog import KINDS
from moldau.backends.delivery import Delivery
from moldau.backends.interface import Row
from moldau.backends.options import Options
from moldau.backends.policy import Traffic
from moldau.backends.sending import Sending

BODY = json.dumps({"order": "o-1234567", "books": ["The Trial"] * 20, "total": 12.5})
"""About 300 bytes, as rows of orders have."""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
BARE = "bare loop, 1 connection"
CASES = (
    (BARE, 0.0, 1),
    ("backend, parallel: 1", 0.0, 1),
    ("backend, parallel: 16", 0.0, 16),
    ("backend, parallel: 16, answers after 5 ms", 0.005, 16),
    ("backend, parallel: 64, answers after 20 ms", 0.020, 64),
    ("backend, parallel: 16, answers after 5 ms, four times the rows", 0.005, 16),
)


# --- the server -------------------------------------------------------------------------------------------------------


class Answering(asyncio.Protocol):
    def __init__(self, pause_s: float) -> None:
        self._pause_s, self._received = pause_s, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            match = LENGTH.search(self._received[:end])
            total = end + 4 + (int(match[1]) if match else 0)
            if len(self._received) < total:
                return
            self._received = self._received[total:]
            if self._pause_s:
                asyncio.get_running_loop().call_later(self._pause_s, self._answer)
            else:
                self._answer()

    def _answer(self) -> None:
        self._transport.write(ANSWER)  # type: ignore[attr-defined]


def serve(listeners: list[tuple[socket.socket, float]]) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        for listener, pause_s in listeners:
            await loop.create_server(lambda pause_s=pause_s: Answering(pause_s), sock=listener)  # type: ignore[misc]
        await asyncio.Event().wait()

    asyncio.run(run())


# --- the senders, each in a process of its own ------------------------------------------------------------------------


def send_bare(url: str, rows: int) -> None:
    parts = urlsplit(url)
    head = f"POST / HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    request = (head + BODY).encode()
    with socket.create_connection((parts.hostname or "", parts.port or 80)) as connection:
        for _ in range(rows):
            connection.sendall(request)
            received = b""
            while not received.endswith(b"\r\n\r\nok"):
                received += connection.recv(65_536)


def send_by_backend(url: str, rows: int, parallel: int) -> None:
    delivery = Delivery(parallel=parallel)
    make = KINDS["http"].prepare(url, Options({}), delivery)

    def read() -> Iterator[Row]:
        return (Row(str(number), {"body": BODY}) for number in range(rows))

    assert list(Sending(make, delivery, Traffic(delivery.limits(), lambda: 0.5)).send(read())) == []


def measure(url: str, rows: int, parallel: int, is_bare: bool) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    began_s = time.perf_counter()
    if is_bare:
        send_bare(url, rows)
    else:
        send_by_backend(url, rows, parallel)
    took_s = time.perf_counter() - began_s
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"rows/s": rows / took_s, "us": 1e6 * cpu_s / rows, "MB": after.ru_maxrss / 1024}


def in_a_process(url: str, rows: int, parallel: int, is_bare: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.webhooks", "--one", url, str(rows), str(parallel), str(int(is_bare))]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def rounds(count: int, rows: int) -> Iterator[tuple[str, dict[str, float]]]:
    pauses = sorted({pause_s for _, pause_s, _ in CASES})
    listeners = {pause_s: socket.create_server(("127.0.0.1", 0), backlog=256) for pause_s in pauses}
    context = multiprocessing.get_context("fork")
    server = context.Process(
        target=serve, args=([(each, pause_s) for pause_s, each in listeners.items()],), daemon=True
    )
    server.start()
    try:
        for _ in range(count):
            for name, pause_s, parallel in CASES:
                url = f"http://127.0.0.1:{listeners[pause_s].getsockname()[1]}/"
                times = 4 if "four times" in name else 1
                yield name, in_a_process(url, times * rows, parallel, name == BARE)
    finally:
        server.terminate()
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Webhooks a second beside a bare loop.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        url, rows, parallel, is_bare = args.one
        print(json.dumps(measure(url, int(rows), int(parallel), is_bare == "1")))
        return
    results: dict[str, list[dict[str, float]]] = {}
    for name, result in rounds(args.rounds, args.rows):
        print(name, {key: round(value) for key, value in result.items()}, flush=True)
        results.setdefault(name, []).append(result)
    lines = ["| | requests/s | CPU µs/request | memory MB |", "|---|--:|--:|--:|"]
    for name, each in results.items():
        middle = {key: median(one[key] for one in each) for key in each[0]}
        lines.append(f"| {name} | {middle['rows/s']:,.0f} | {middle['us']:.0f} | {middle['MB']:.0f} |")
    print("\n".join(lines))
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
