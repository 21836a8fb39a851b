"""Runs scripts about fetch sessions: one node in memory and any number of clients.

    topic a partitions=2 flush.messages=1       creates a topic
    delete-topic a                              deletes it
    append a-0 records=3                        appends a batch of three records
    delete-records a-0 before=2                 moves the log start offset
    flush                                       flushes the logs
    fetch S1 epoch=1 a-0@0 forget=a-1 wait=500 min=1 max=1000000
                                                S1 is the first session of the broker; without it, no session
    advance ms=500                              lets time pass
    sessions                                    the number of sessions in the broker

Waiting fetches are named W1, W2, …; those that a command wakes are listed after its answer.
"""

from __future__ import annotations

from harness.fetch_requests import Key, PartitionResult, fetch, partition_results
from harness.in_memory_node import InMemoryNode
from script import Command

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.wire.messages.fetch import FetchResponse


class SessionsActor:
    def __init__(self) -> None:
        self._node = InMemoryNode(session_slots=2).start()
        self._names: dict[int, str] = {}
        self._waiting: dict[str, Promise[FetchResponse]] = {}
        self._waited = 0

    def answer(self, command: Command) -> str:
        answer = getattr(self, "_" + command.name.replace("-", "_"))(command)
        self._node.timers.run_soon()
        return "\n".join([answer or "ok", *self._woken()])

    def _woken(self) -> list[str]:
        done = {name: answer for name, answer in self._waiting.items() if answer.done}
        for name in done:
            del self._waiting[name]
        return [f"{name}: {self._described(answer.value())}" for name, answer in done.items()]

    # --- the cluster --------------------------------------------------------------------------------------------

    def _topic(self, command: Command) -> None:
        configs = {key.replace(".", "_"): value for key, value in command.values.items() if key != "partitions"}
        self._node.create_topic(command.words[0], command.number("partitions", 1), **configs)

    def _delete_topic(self, command: Command) -> None:
        self._node.delete_topic(command.words[0])

    def _append(self, command: Command) -> None:
        self._node.append(*_partition(command.words[0]), count=command.number("records", 1))

    def _delete_records(self, command: Command) -> None:
        self._node.partition(*_partition(command.words[0])).delete_records(command.number("before", -1))

    def _flush(self, command: Command) -> None:
        self._node.flush()

    def _advance(self, command: Command) -> None:
        self._node.timers.advance(command.number("ms", 0))

    def _sessions(self, command: Command) -> str:
        return f"{len(self._node.sessions)} sessions"

    # --- clients ------------------------------------------------------------------------------------------------

    def _fetch(self, command: Command) -> str:
        positions: dict[Key, int] = {}
        session = 0
        for word in command.words:
            if "@" in word:
                partition, offset = word.split("@")
                positions[_partition(partition)] = int(offset)
            else:
                session = self._id(word)
        answer = fetch(
            self._node,
            positions,
            session=session,
            epoch=command.number("epoch", -1),
            forget=[_partition(word) for word in command.values.get("forget", "").split(",") if word],
            wait_ms=command.number("wait", 0),
            min_bytes=command.number("min", 1),
            max_bytes=command.number("max", 1 << 20),
        )
        if isinstance(answer, Promise):
            self._waited += 1
            name = f"W{self._waited}"
            self._waiting[name] = answer
            return f"waits as {name}"
        return self._described(answer)

    def _id(self, name: str) -> int:
        return next((number for number, known in self._names.items() if known == name), 999)

    def _described(self, response: FetchResponse) -> str:
        if response.error_code:
            return ErrorCode(response.error_code).name
        session = "no session"
        if response.session_id:
            session = self._names.setdefault(response.session_id, f"S{len(self._names) + 1}")
        found = [
            f"{topic!s}-{index} {_partition_line(each)}" for (topic, index), each in partition_results(response).items()
        ]
        return "; ".join([session, *(found or ["no changes"])])


def _partition(word: str) -> tuple[str, int]:
    topic, _, index = word.rpartition("-")
    return topic, int(index)


def _partition_line(each: PartitionResult) -> str:
    if each.error:
        return ErrorCode(each.error).name
    return f"{'records' if each.size else 'empty'} start={each.log_start} hw={each.high_watermark}"
