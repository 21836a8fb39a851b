"""Fetch sessions as a script can drive them: a node in memory on one side, any number of clients beside it.

    topic a partitions=2 flush.messages=1       makes a topic
    drop a                                      deletes it
    append a-0 records=3                        a batch of so many records
    delete-records a-0 before=2                 moves the start of the log
    flush                                       what waits for the disk gets there
    fetch S1 epoch=1 a-0@0 forget=a-1 wait=500 min=1 max=1000000
                                                S1 is the first session the broker gave; without a name, none
    advance ms=500                              lets time pass
    sessions                                    how many the broker holds

Fetches that wait are named W1, W2, …; whatever happens, those that it wakes are told of behind it.
"""

from __future__ import annotations

from conversation import Said
from fetch_requests import Key, PartitionResult, fetch, partition_results
from in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.wire.messages.fetch import FetchResponse


class SessionsActor:
    def __init__(self) -> None:
        self._node = InMemoryNode(session_slots=2).start()
        self._names: dict[int, str] = {}
        self._waiting: dict[str, Promise[FetchResponse]] = {}
        self._waited = 0

    def answer(self, said: Said) -> str:
        deed = getattr(self, "_" + said.name.replace("-", "_"))
        told = deed(said)
        self._node.timers.run_soon()
        return "\n".join([told or "ok", *self._woken()])

    def _woken(self) -> list[str]:
        done = {name: answer for name, answer in self._waiting.items() if answer.done}
        for name in done:
            del self._waiting[name]
        return [f"{name}: {self._described(answer.value())}" for name, answer in done.items()]

    # --- the cluster --------------------------------------------------------------------------------------------

    def _topic(self, said: Said) -> None:
        configs = {key.replace(".", "_"): value for key, value in said.values.items() if key != "partitions"}
        self._node.create_topic(said.words[0], said.number("partitions", 1), **configs)

    def _drop(self, said: Said) -> None:
        self._node.delete_topic(said.words[0])

    def _append(self, said: Said) -> None:
        self._node.append(*_partition(said.words[0]), count=said.number("records", 1))

    def _delete_records(self, said: Said) -> None:
        self._node.partition(*_partition(said.words[0])).delete_records(said.number("before", -1))

    def _flush(self, said: Said) -> None:
        self._node.flush()

    def _advance(self, said: Said) -> None:
        self._node.timers.advance(said.number("ms", 0))

    def _sessions(self, said: Said) -> str:
        return f"{len(self._node.sessions)} held"

    # --- clients ------------------------------------------------------------------------------------------------

    def _fetch(self, said: Said) -> str:
        positions: dict[Key, int] = {}
        session = 0
        for word in said.words:
            if "@" in word:
                partition, offset = word.split("@")
                positions[_partition(partition)] = int(offset)
            else:
                session = self._id(word)
        answer = fetch(
            self._node,
            positions,
            session=session,
            epoch=said.number("epoch", -1),
            forget=[_partition(word) for word in said.values.get("forget", "").split(",") if word],
            wait_ms=said.number("wait", 0),
            min_bytes=said.number("min", 1),
            max_bytes=said.number("max", 1 << 20),
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
        found = [f"{topic!s}-{index} {_news(each)}" for (topic, index), each in partition_results(response).items()]
        return "; ".join([session, *(found or ["no news"])])


def _partition(word: str) -> tuple[str, int]:
    topic, _, index = word.rpartition("-")
    return topic, int(index)


def _news(each: PartitionResult) -> str:
    if each.error:
        return ErrorCode(each.error).name
    return f"{'records' if each.size else 'empty'} start={each.log_start} hw={each.high_watermark}"
