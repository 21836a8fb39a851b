"""Runs scripts about brokers that replicate to each other. Their code is real, in memory; the script is the controller.

    begin nodes=3 flush.messages=1 min.insync.replicas=2
                                        begins; the topic has one partition, led by broker 1
    run ms=10                           lets time pass; the network takes 1 ms each way
    append records=3 acks=all           to the leader
    cut 1-2, restore                    cuts the network between two brokers; restores all of it
    kill 3, start 3                     kills a process, and starts it with its disk; `start 3 wiped` with an empty one
    fence 3                             the controller fences a broker: it leaves the ISR and no longer leads
    elect 2 isr=2                       the controller elects a leader; with `isr` the election may be unclean
    controller unreachable, controller reachable        whether leaders reach the controller
    delete-records before=3             DeleteRecords, with a timeout of one second
    state                               the controller's state, and each broker's

Waiting requests are named W1, W2, …; those that a command completes are listed after its answer.
"""

from __future__ import annotations

from typing import Any

from harness.in_memory_node import batch
from harness.replica_world import TOPIC, Node, ReplicaWorld
from script import Command

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.replica.partition import ACKS_ALL
from moldau.server.handler import Caller
from moldau.testing.files import MemoryFiles
from moldau.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

CALLER = Caller("PLAINTEXT", "test:1", "test", 2)
ACKS = {"all": ACKS_ALL, "1": 1}


class ReplicationActor:
    def __init__(self) -> None:
        self._world = ReplicaWorld()
        self._disks: dict[int, MemoryFiles] = {}
        self._waiting: dict[str, Promise[Any]] = {}
        self._waited = 0

    def answer(self, command: Command) -> str:
        answer = getattr(self, "_" + command.name.replace("-", "_"))(command)
        return "\n".join([answer or "ok", *self._answered(), *self._reported()])

    def _answered(self) -> list[str]:
        done = {name: answer for name, answer in self._waiting.items() if answer.done}
        for name in done:
            del self._waiting[name]
        return [f"{name}: {_outcome(answer.value())}" for name, answer in done.items()]

    def _reported(self) -> list[str]:
        reports = [f"broker {node.id} reports: {report}" for node in self._nodes() for report in node.reports]
        for node in self._nodes():
            node.reports.clear()
        return reports

    def _nodes(self) -> list[Node]:
        return [self._world.nodes[node_id] for node_id in sorted(self._world.nodes)]

    # --- the cluster --------------------------------------------------------------------------------------------

    def _begin(self, command: Command) -> None:
        configs = {key.replace(".", "_"): value for key, value in command.values.items() if key != "nodes"}
        self._world = ReplicaWorld(command.number("nodes", 3), **configs)
        self._world.run(2_000)

    def _run(self, command: Command) -> None:
        self._world.run(command.number("ms", 0))

    def _cut(self, command: Command) -> None:
        self._world.cuts |= {frozenset(int(end) for end in word.split("-")) for word in command.words}

    def _restore(self, command: Command) -> None:
        self._world.cuts.clear()

    def _kill(self, command: Command) -> None:
        node_id = int(command.words[0])
        self._disks[node_id] = self._world.kill(node_id)

    def _start(self, command: Command) -> None:
        node_id = int(command.words[0])
        files = self._disks.pop(node_id)
        self._world.start(node_id, None if "wiped" in command.words else files)
        self._world.controller.publish(node_id)
        self._world.run(0)

    def _fence(self, command: Command) -> None:
        self._world.controller.fence(int(command.words[0]))
        self._world.run(0)

    def _elect(self, command: Command) -> None:
        fields: dict[str, Any] = {"leader": int(command.words[0])}
        if "isr" in command.values:
            fields["isr"] = tuple(int(each) for each in command.values["isr"].split(","))
        self._world.controller.change(0, **fields)
        self._world.controller.publish()
        self._world.run(0)

    def _controller(self, command: Command) -> None:
        self._world.controller.is_reachable = command.words[0] == "reachable"

    def _state(self, command: Command) -> str:
        state = self._world.controller.partitions[0]
        isr = ",".join(str(each) for each in state.isr)
        return "\n".join([f"leader={state.leader} isr={isr}", *(_shown(node) for node in self._nodes())])

    # --- clients ------------------------------------------------------------------------------------------------

    def _append(self, command: Command) -> str:
        leader = self._world.nodes[self._world.controller.partitions[0].leader]
        acks = ACKS[command.values.get("acks", "all")]
        now_ms = self._world.clock.now_ms()
        try:
            appended = leader.partition().append(batch(command.number("records", 1), timestamp=now_ms), acks, now_ms)
        except KafkaError as refused:
            return refused.code.name
        return self._wait(leader.partition().acknowledged(appended.last_offset, acks), "acknowledged")

    def _delete_records(self, command: Command) -> str:
        leader = self._world.nodes[self._world.controller.partitions[0].leader]
        wanted = [DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, command.number("before", -1))])]
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
        return f"{node.id} has no replica"
    log = partition.log
    role = "leads" if partition.is_leader else f"follows {partition.state.leader}"
    epochs = " ".join(f"{entry.epoch}@{entry.start_offset}" for entry in log.epochs.entries)
    return f"{node.id} {role} {log.start_offset}..{log.end_offset} hw={partition.high_watermark} epochs {epochs}"
