"""Devices that send the same request again and again over connections that stay open, in a process of their own.

    python -m bench.gateway.http_devices PORT CONNECTIONS SECONDS RECORDS [PER_SECOND]

Prints a line of JSON: requests, seconds, and the milliseconds that half and 99 of 100 requests took. With PER_SECOND
the requests begin at that rate, spread over the connections, and a request that begins late counts from when it should
have begun.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

RECORD = b'{"device":%d,"temperature":21.5,"humidity":44}'


class Device(asyncio.Protocol):
    def __init__(self, request: bytes, on_answer: Callable[[Device], None]) -> None:
        self._request, self._on_answer = request, on_answer
        self._answer = b""
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, began: float) -> None:
        self.began = began
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        assert head.startswith(b"HTTP/1.1 200"), self._answer
        self._answer = b""
        self._on_answer(self)


async def send_for(port: int, connections: int, seconds: float, records: int, per_second: float) -> None:
    body = b"[" + b",".join(RECORD % number for number in range(records)) + b"]" if records > 1 else RECORD % 1
    request = (
        b"POST /topics/bench HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    took: list[float] = []
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + seconds
    left = connections
    ended = asyncio.Event()

    def again(device: Device) -> None:
        nonlocal left
        now = time.perf_counter()
        took.append(now - device.began)
        due = device.began + connections / per_second if per_second else now
        if max(due, now) >= end:
            left -= 1
            if not left:
                ended.set()
        elif due > now:
            loop.call_at(loop.time() + due - now, device.send, due)
        else:
            device.send(due)

    devices = [
        (await loop.create_connection(lambda: Device(request, again), "localhost", port))[1] for _ in range(connections)
    ]
    began = time.perf_counter()
    for number, device in enumerate(devices):
        if per_second:
            loop.call_later(number / per_second, device.send, began + number / per_second)
        else:
            device.send(began)
    await ended.wait()
    spent = time.perf_counter() - began
    took.sort()
    milliseconds = {name: 1000 * took[int(share * (len(took) - 1))] for name, share in (("p50", 0.5), ("p99", 0.99))}
    print(json.dumps({"requests": len(took), "seconds": spent, **milliseconds}))


if __name__ == "__main__":
    numbers = [float(each) for each in sys.argv[1:]]
    asyncio.run(
        send_for(int(numbers[0]), int(numbers[1]), numbers[2], int(numbers[3]), numbers[4] if len(numbers) > 4 else 0.0)
    )
