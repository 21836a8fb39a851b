"""A small client in a process of its own: asks a broker the smallest request every few milliseconds.

For each line on stdin it prints a JSON list: the longest and the median time the broker took for a reply since the last
line, in ms, and the number of requests. It is a process of its own because a thread beside a busy client would measure
the client.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from select import select
from typing import NamedTuple, Self

from bench.brokers.connection import BrokerRefused, Connection
from bench.brokers.frames import api_versions_request

EVERY_S = 0.003


class Silence(NamedTuple):
    """How long a small client waited for its answers, in milliseconds."""

    longest_ms: float
    median_ms: float
    requests: int


class Probe:
    """The process, as the benchmark uses it."""

    def __init__(self, address: str) -> None:
        self._address = address
        command = [sys.executable, "-m", "bench.stalls.probe", address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.take()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what could not be written to a dead process is written again
                    pipe.close()

    def take(self) -> Silence:
        """Return what was measured since the last call; raise BrokerRefused if the broker no longer answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise BrokerRefused(f"{self._address} no longer answers a small client")
        return Silence(*json.loads(answer))


def main(address: str) -> None:
    frame = api_versions_request()
    with Connection(address) as connection:
        took_s: list[float] = []
        while True:
            began_s = time.perf_counter()
            connection.ask(frame)
            took_s.append(time.perf_counter() - began_s)
            if select([sys.stdin], [], [], EVERY_S)[0]:
                if not sys.stdin.readline():
                    return
                silence = Silence(max(took_s) * 1000, statistics.median(took_s) * 1000, len(took_s))
                print(json.dumps(silence), flush=True)
                took_s.clear()


if __name__ == "__main__":
    main(sys.argv[1])
