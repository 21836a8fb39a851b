"""The client processes of a run: they are started, killed and stopped here, and their journals show who makes progress.

A client that is started again has a new journal and a new number, which is in the values that it writes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from chaos_journal import LOST_STATUS, Event, Tail
from harness.patience import PATIENCE_S

DEBUG = os.environ.get("MOLDAU_CHAOS_DEBUG")
"""Contexts of which librdkafka logs everything, such as eos or cgrp; the lines go to clients.output."""
WRITERS = ("writer", "transactor")
READERS = ("reader", "member")
STACKS_S = 5.0
"""How long a stuck client has to write where it is."""
IDS = 10_000
"""More than there are clients: the producers of a transactor have its number, plus multiples of this."""
Where = tuple[str, int]
"""Topic and partition."""


@dataclass
class Progress:
    """When the newest record was sent, or read, that came through, by partition."""

    topics: Mapping[str, int]
    newest_s: dict[Where, float] = field(default_factory=dict)
    read_to: dict[Where, int] = field(default_factory=dict)
    """The last offset that was read."""
    _sent_s: dict[tuple[str, int, int], float] = field(default_factory=dict)
    _begun_s: dict[str, float] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        for topic, partition, number, _ in event.get("sent", ()):
            if "txn" in event:
                self._begun_s.setdefault(event["txn"], event["t"])
            else:
                self._sent_s[topic, partition, number] = event["t"]
        for topic, partition, number, _ in event.get("acked", ()):
            self._came_through((topic, partition), self._sent_s.pop((topic, partition, number), 0.0))
        for topic, partition, offset, _ in event.get("reads", ()):
            self.read_to[topic, partition] = max(offset, self.read_to.get((topic, partition), -1))
            self._came_through((topic, partition), event["t"])
        if event.get("outcome"):
            begun_s = self._begun_s.pop(event["txn"], 0.0)
            for where in self.places() if event["outcome"] == "committed" else ():
                self._came_through(where, begun_s)

    def _came_through(self, where: Where, at_s: float) -> None:
        self.newest_s[where] = max(at_s, self.newest_s.get(where, 0.0))

    def places(self) -> list[Where]:
        return [(topic, partition) for topic, count in self.topics.items() for partition in range(count)]

    def stuck_since(self, since_s: float) -> list[Where]:
        return [where for where in self.places() if self.newest_s.get(where, 0.0) <= since_s]


@dataclass
class Client:
    name: str
    role: str
    options: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    journals: list[Path] = field(default_factory=list)
    tail: Tail | None = None
    starts: int = 0


class Clients:
    """All of them. Members of a group make progress together."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.all: dict[str, Client] = {}
        self.progress: dict[str, Progress] = {}
        self._next_id = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.all.values():
            if client.process is not None:
                client.process.kill()
                client.process.wait()

    def add(self, name: str, role: str, topics: Mapping[str, int], settings: Mapping[str, Any], **more: Any) -> None:
        debug = {"debug": DEBUG, "log_level": 7} if DEBUG else {}
        options = {"topics": topics, "settings": {**settings, **debug}, "bootstrap": self._bootstrap, **more}
        self.all[name] = Client(name, role, options | {"ids": IDS, "patience_s": PATIENCE_S})
        self.progress.setdefault(self.unit(name), Progress(topics))
        self.start(name)

    def unit(self, name: str) -> str:
        """Return the name under which progress is counted: that of the group, or of the client."""
        return str(self.all[name].options["settings"].get("group.id", name))

    def start(self, name: str) -> None:
        client = self.all[name]
        self._read(client)
        client.starts += 1
        path = self._folder / f"{name}.{client.starts}.jsonl"
        client.journals.append(path)
        client.tail = Tail(path)
        options = json.dumps(client.options | {"id": self._next_id})
        self._next_id += 1
        script = Path(__file__).with_name("chaos_client.py")
        with (self._folder / "clients.output").open("ab") as output:
            command = [sys.executable, str(script), client.role, str(path), options]
            path_of_modules = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            client.process = subprocess.Popen(command, stdout=output, stderr=output, env=path_of_modules)

    def note_stacks(self, client: Client) -> None:
        """Write into `clients.output` where each thread of a stuck client is."""
        output = self._folder / "clients.output"
        with output.open("a") as file:
            file.write(f"where {client.name} is stuck:\n")
        size, until_s = output.stat().st_size, time.monotonic() + STACKS_S
        assert client.process is not None
        client.process.send_signal(signal.SIGUSR1)
        while output.stat().st_size == size and time.monotonic() < until_s:
            time.sleep(0.05)

    def restart_stuck(self, name: str) -> None:
        self.note_stacks(self.all[name])
        self.kill_and_start(name)

    def kill_and_start(self, name: str) -> None:
        process = self.all[name].process
        assert process is not None
        process.kill()
        process.wait()
        self.start(name)

    def stop(self, role: str) -> list[str]:
        """Stop the clients of this role in order; return what went wrong."""
        clients = [client for client in self.all.values() if client.role == role and client.process is not None]
        for client in clients:
            assert client.process is not None
            client.process.terminate()
        return [fault for client in clients if (fault := self._await_end(client))]

    def _await_end(self, client: Client) -> str | None:
        process = client.process
        assert process is not None
        try:
            status = process.wait(2 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.note_stacks(client)
            process.kill()
            process.wait()
            return f"stuck client: {client.name} does not end, see clients.output"
        finally:
            client.process = None
            self._read(client)
        return f"crashed client: {client.name} ended with {status}" if status not in (0, LOST_STATUS) else None

    def crashed(self) -> list[str]:
        """Start clients again that ended by themselves; return what to say about them, unless they lacked a
        connection."""
        found = []
        for client in self.all.values():
            if client.process is not None and (status := client.process.poll()) is not None:
                if status != LOST_STATUS:
                    found.append(f"crashed client: {client.name} ended by itself with {status}")
                self.start(client.name)
        return found

    def look(self) -> None:
        for client in self.all.values():
            self._read(client)

    def _read(self, client: Client) -> None:
        for event in client.tail.read() if client.tail else ():
            self.progress[self.unit(client.name)].add(event)

    def stuck(self, since_s: float, roles: Collection[str]) -> dict[str, list[Where]]:
        """Return who of these roles got nothing through in which partitions since then."""
        self.look()
        names = {self.unit(name) for name, client in self.all.items() if client.role in roles}
        lacks = {name: self.progress[name].stuck_since(since_s) for name in sorted(names)}
        return {name: places for name, places in lacks.items() if places}

    def unread(self, last: Mapping[Where, int]) -> dict[str, dict[Where, int]]:
        """Return who has not read up to these offsets, and how far."""
        self.look()
        readers = {self.unit(name) for name, client in self.all.items() if client.role in READERS}
        lacks = {
            name: {
                where: self.progress[name].read_to.get(where, -1)
                for where in self.progress[name].places()
                if self.progress[name].read_to.get(where, -1) < last.get(where, -1)
            }
            for name in readers
        }
        return {name: places for name, places in lacks.items() if places}

    def events(self, name: str) -> Iterator[tuple[int, Event]]:
        """Yield all that a client did, with the number of its start."""
        for number, path in enumerate(self.all[name].journals):
            for event in Tail(path).read():
                yield number, event
