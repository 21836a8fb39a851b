"""Brokers that replicate to each other, as a script can drive them: real parts in memory, the controller is the script.

    begin nodes=3 flush.messages=1 min.insync.replicas=2
                                        begins; the topic has one partition, led by broker 1
    run ms=10                           lets time pass; the network takes 1 ms each way
    append records=3 acks=all           to whoever leads
    cut 1-2, mend                       the network between two brokers; all of it again
    kill 3, start 3                     a process dies, and starts with what is on its disk; `start 3 wiped` without
    fence 3                             the controller takes a broker for dead: out of the ISR, and of leadership
    elect 2 isr=2                       the controller makes a leader; with an ISR of its own making it may be unclean
    controller away, controller back    whether leaders reach it
    delete before=3                     records, with a second's patience
    state                               what the controller holds true, and what each broker has

Those who wait are named W1, W2, …; whatever happens, those who are answered by it are told of behind it.
"""

from __future__ import annotations

from typing import Any

from conversation import Said
from in_memory_node import batch
from replica_world import TOPIC, Node, World

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.replica.partition import ACKS_ALL
from moldau.server.router import Caller
from moldau.testing.files import MemoryFiles
from moldau.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

CALLER = Caller("PLAINTEXT", "test:1", "test", 2)
ACKS = {"all": ACKS_ALL, "1": 1}


class ReplicationActor:
    def __init__(self) -> None:
        self._world = World()
        self._disks: dict[int, MemoryFiles] = {}
        self._waiting: dict[str, Promise[Any]] = {}
        self._waited = 0

    def answer(self, said: Said) -> str:
        told = getattr(self, "_" + said.name)(said)
        return "\n".join([told or "ok", *self._answered(), *self._reported()])

    def _answered(self) -> list[str]:
        done = {name: answer for name, answer in self._waiting.items() if answer.done}
        for name in done:
            del self._waiting[name]
        return [f"{name}: {_outcome(answer.value())}" for name, answer in done.items()]

    def _reported(self) -> list[str]:
        told = [f"broker {node.id} reports: {report}" for node in self._nodes() for report in node.reports]
        for node in self._nodes():
            node.reports.clear()
        return told

    def _nodes(self) -> list[Node]:
        return [self._world.nodes[node_id] for node_id in sorted(self._world.nodes)]

    # --- the cluster --------------------------------------------------------------------------------------------

    def _begin(self, said: Said) -> None:
        configs = {key.replace(".", "_"): value for key, value in said.values.items() if key != "nodes"}
        self._world = World(said.number("nodes", 3), **configs)
        self._world.run(2_000)

    def _run(self, said: Said) -> None:
        self._world.run(said.number("ms", 0))

    def _cut(self, said: Said) -> None:
        self._world.cuts |= {frozenset(int(end) for end in word.split("-")) for word in said.words}

    def _mend(self, said: Said) -> None:
        self._world.cuts.clear()

    def _kill(self, said: Said) -> None:
        node_id = int(said.words[0])
        self._disks[node_id] = self._world.kill(node_id)

    def _start(self, said: Said) -> None:
        node_id = int(said.words[0])
        files = self._disks.pop(node_id)
        self._world.start(node_id, None if "wiped" in said.words else files)
        self._world.controller.publish(node_id)
        self._world.run(0)

    def _fence(self, said: Said) -> None:
        self._world.controller.fence(int(said.words[0]))
        self._world.run(0)

    def _elect(self, said: Said) -> None:
        fields: dict[str, Any] = {"leader": int(said.words[0])}
        if "isr" in said.values:
            fields["isr"] = tuple(int(each) for each in said.values["isr"].split(","))
        self._world.controller.change(0, **fields)
        self._world.controller.publish()
        self._world.run(0)

    def _controller(self, said: Said) -> None:
        self._world.controller.is_reachable = said.words[0] == "back"

    def _state(self, said: Said) -> str:
        state = self._world.controller.partitions[0]
        isr = ",".join(str(each) for each in state.isr)
        return "\n".join([f"leader={state.leader} isr={isr}", *(_shown(node) for node in self._nodes())])

    # --- clients ------------------------------------------------------------------------------------------------

    def _append(self, said: Said) -> str:
        leader = self._world.nodes[self._world.controller.partitions[0].leader]
        acks = ACKS[said.values.get("acks", "all")]
        now_ms = self._world.clock.now_ms()
        try:
            appended = leader.partition().append(batch(said.number("records", 1), timestamp=now_ms), acks, now_ms)
        except KafkaError as refused:
            return refused.code.name
        return self._wait(leader.partition().acknowledged(appended.last_offset, acks), "acknowledged")

    def _delete(self, said: Said) -> str:
        leader = self._world.nodes[self._world.controller.partitions[0].leader]
        wanted = [DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, said.number("before", -1))])]
        answer = leader.delete_records.answer(DeleteRecordsRequest(wanted, 1_000), CALLER)
        if isinstance(answer, Promise):
            return self._wait(answer.map(lambda done: ErrorCode(done.topics[0].partitions[0].error_code)), "")
        return _outcome(ErrorCode(answer.topics[0].partitions[0].error_code))

    def _wait(self, promise: Promise[Any] | None, otherwise: str) -> str:
        if promise is None:
            return otherwise
        self._waited += 1
        self._waiting[f"W{self._waited}"] = promise
        return f"waits as W{self._waited}"


def _outcome(code: ErrorCode) -> str:
    return "done" if code is ErrorCode.NONE else code.name


def _shown(node: Node) -> str:
    partition = node.partitions.find(TOPIC, 0)
    if partition is None:
        return f"{node.id} has nothing"
    log = partition.log
    role = "leads" if partition.is_leader else f"follows {partition.state.leader}"
    epochs = " ".join(f"{entry.epoch}@{entry.start_offset}" for entry in log.epochs.entries)
    return f"{node.id} {role} {log.start_offset}..{log.end_offset} hw={partition.high_watermark} epochs {epochs}"
