"""Runs scripts about brokers and the controller that watches them.

    register 1 incarnation=2 dir=n              BrokerRegistration; the epoch, or the error
    beat 1 2 offset=7 fence stop                BrokerHeartbeat of each; by default with the newest metadata offset
    beat 1 full | beat 1 writable               the same, of a broker that cannot write, or can again
    disconnect 1                                the connection of its heartbeats breaks
    wait ms=300                                 time passes, and brokers without heartbeats are fenced
    unregister 1
    takeover                                    another controller becomes the active one
    topic a 1,2,3 2,3,1                         a topic, and the replicas of its partitions
    unclean a                                   allows unclean elections of a topic
    isr a 0 1,2                                 AlterPartition by the leader
    elect preferred a 0 1                       ElectLeaders, preferred or unclean
    move a 0 4,5 | move a 0 cancel              AlterPartitionReassignments, or its cancellation
    balance                                     elects preferred leaders
    brokers                                     the brokers and their states

Every answer ends with the partitions that changed: `leader:isr of replicas @leader epoch`, `+` the replicas that are
being added and `-` those that are being removed.
"""

from __future__ import annotations

from harness.controlled_cluster import HEARTBEAT_INTERVAL_MS, ControlledCluster
from script import Command, error_name

from moldau.base.steps import finish
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import decide_balance
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord


class BrokersActor:
    def __init__(self) -> None:
        self._cluster = ControlledCluster()

    def answer(self, command: Command) -> str:
        before = self._partition_states()
        lines = getattr(self, "_" + command.name)(command)
        after = self._partition_states()
        changed = [f"{place} {after[place]}" for place in after if before.get(place) != after[place]]
        return "\n".join([*lines, *changed]) or "nothing"

    def _partition_states(self) -> dict[str, str]:
        topics = self._cluster.image.topics
        return {
            f"{name}-{index}": self._cluster.summary(name, index)
            for name in sorted(topics)
            for index in range(len(topics[name].partitions))
        }

    # --- brokers ------------------------------------------------------------------------------------------------

    def _register(self, command: Command) -> list[str]:
        broker_id = int(command.words[0])
        directory = command.values.get("dir")
        response = self._cluster.register(
            broker_id,
            command.number("incarnation", 1),
            log_dirs=None if directory is None else [directory.encode() * 16],
        )
        return [f"epoch {response.broker_epoch}" if response.error_code == 0 else error_name(response.error_code)]

    def _beat(self, command: Command) -> list[str]:
        lines = []
        for broker_id in [int(word) for word in command.words if word.isdecimal()]:
            response = self._cluster.beat(
                broker_id,
                offset=int(command.values["offset"]) if "offset" in command.values else None,
                want_fence="fence" in command.words,
                want_shut_down="stop" in command.words,
                cannot_write={"full": True, "writable": False}.get(command.words[-1]),
            )
            state = "may stop" if response.should_shut_down else "fenced" if response.is_fenced else "unfenced"
            lines.append(f"{broker_id} {error_name(response.error_code) if response.error_code else state}")
        return lines

    def _disconnect(self, command: Command) -> list[str]:
        self._cluster.sessions.connection_lost(int(command.words[0]), self._cluster.now_ms)
        return []

    def _wait(self, command: Command) -> list[str]:
        self._cluster.now_ms += command.number("ms", HEARTBEAT_INTERVAL_MS)
        return [f"fenced {broker_id}" for broker_id in self._cluster.fence_stale()]

    def _unregister(self, command: Command) -> list[str]:
        return [error_name(self._cluster.unregister(int(command.words[0])))]

    def _takeover(self, command: Command) -> list[str]:
        self._cluster.take_over()
        return []

    def _brokers(self, command: Command) -> list[str]:
        brokers = self._cluster.image.brokers
        return [
            f"{broker_id} {'fenced' if brokers[broker_id].fenced else 'unfenced'}"
            + (" in controlled shutdown" if brokers[broker_id].in_controlled_shutdown else "")
            + (" cannot write" if brokers[broker_id].cannot_write else "")
            for broker_id in sorted(brokers)
        ]

    # --- partitions ---------------------------------------------------------------------------------------------

    def _topic(self, command: Command) -> list[str]:
        self._cluster.create(command.words[0], *[_ids(word) for word in command.words[1:]])
        return []

    def _unclean(self, command: Command) -> list[str]:
        record = ConfigRecord(ConfigResource.TOPIC, command.words[0], "unclean.leader.election.enable", "true")
        self._cluster.do(Decision(None, (record,)))
        return []

    def _isr(self, command: Command) -> list[str]:
        name, index, isr = command.words
        return [error_name(self._cluster.alter(name, _ids(isr), int(index)).error_code)]

    def _elect(self, command: Command) -> list[str]:
        kind, name, *indexes = command.words
        return [error_name(code) for code in self._cluster.elect(int(kind == "unclean"), name, *map(int, indexes))]

    def _move(self, command: Command) -> list[str]:
        name, index, target = command.words
        return [error_name(self._cluster.reassign(name, None if target == "cancel" else _ids(target), int(index)))]

    def _balance(self, command: Command) -> list[str]:
        self._cluster.do(finish(decide_balance(self._cluster.image)))
        return []


def _ids(word: str) -> list[int]:
    return [int(each) for each in word.split(",")]
