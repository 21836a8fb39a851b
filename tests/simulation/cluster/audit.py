"""Checks what must hold after every step, whatever faults were injected, against the logs of the nodes and the
responses that clients got.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compaction.watch import CleaningWatch

from cluster.ledger import Ledger
from moldau.base.ids import Uuid
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.wire.batch import BatchHeader, split_batches

if TYPE_CHECKING:
    from machines.machine import Machine

    from cluster.world import ClusterWorld

READ_BYTES = 1 << 20
Place = tuple[Uuid, int]


@dataclass(slots=True)
class Scan:
    """How far the log of one replica was compared."""

    log: Any
    generation: int
    offset: int = 0


class Audit:
    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self.ledgers: dict[Place, Ledger] = {}
        self._topic_order: dict[Uuid, int] = {}
        self._image_offset = -2
        self._quorum_leaders: dict[int, int] = {}
        self._partition_leaders: dict[tuple[Uuid, int, int], int] = {}
        self._producer_ids: dict[int, str] = {}
        self._scans: dict[tuple[int, Uuid, int], Scan] = {}
        self._metadata: dict[int, tuple[int, int, int]] = {}
        """Base offset, leader epoch and CRC of each committed batch of the metadata log, by its next offset."""
        self._metadata_end = 0
        self._unseen_metadata: set[int] = set()
        """The offsets before that end which snapshots of all nodes replaced before a check."""
        self._metadata_scans: dict[int, int] = {}
        self.batches = 0
        """Number of batches that were compared."""
        self.cleanings = CleaningWatch(world, self.ledger)

    # --- responses to clients -------------------------------------------------------------------------------------

    def producer_id_given(self, name: str, producer_id: int) -> None:
        owner = self._producer_ids.setdefault(producer_id, name)
        if owner != name:
            self._world.violated(f"{owner} and {name} got the same producer id, {producer_id}")

    def acknowledged(self, topic_id: Uuid, partition: int, offset: int, values: Sequence[bytes]) -> None:
        self.ledger(topic_id, partition).promise(offset, values)

    def was_read(self, who: str, topic_id: Uuid, partition: int, header: BatchHeader, batch: memoryview) -> None:
        self.ledger(topic_id, partition).show(who, header, batch)

    def was_created_later(self, topic_id: Uuid, than: Uuid) -> bool:
        self._note_topics()
        return self._topic_order.get(topic_id, 1 << 60) > self._topic_order.get(than, 1 << 60)

    def ledger(self, topic_id: Uuid, partition: int) -> Ledger:
        found = self.ledgers.get((topic_id, partition))
        if found is None:
            name = self._world.newest_image().topic_names.get(topic_id, topic_id.hex()[:6])
            found = self.ledgers[topic_id, partition] = self._world.new_ledger(name, partition)
        return found

    def _note_topics(self) -> None:
        image = self._world.newest_image()
        if image.offset != self._image_offset:
            self._image_offset = image.offset
            new = [topic_id for topic_id in image.topic_names if topic_id not in self._topic_order]
            for topic_id in sorted(new, key=lambda each: image.topic_names[each]):
                self._topic_order[topic_id] = len(self._topic_order)

    # --- what nodes report ----------------------------------------------------------------------------------------

    def quorum_leads(self, node_id: int, epoch: int) -> None:
        leader = self._quorum_leaders.setdefault(epoch, node_id)
        self._world.trace(f"n{node_id} leads the quorum in epoch {epoch}")
        if leader != node_id:
            self._world.violated(f"n{leader} and n{node_id} lead the quorum in epoch {epoch}")
        self._world.faults.quorum_elected(node_id)

    def process_ended(self, node_id: int) -> None:
        """Forget how far this node's logs were compared: the next process is compared from the beginning."""
        self._metadata_scans.pop(node_id, None)
        for place in [place for place in self._scans if place[0] == node_id]:
            del self._scans[place]

    # --- after every step -----------------------------------------------------------------------------------------

    def check(self) -> None:
        self._note_topics()
        running = [machine for machine in self._world.machines.values() if machine.assembly is not None]
        # A node that skipped batches with a snapshot shows only later ones: those of others must be known first.
        for machine in sorted(running, key=self._next_metadata):
            self._check_metadata(machine)
        for machine in running:
            self._check_partitions(machine)
        self.cleanings.check()

    def _next_metadata(self, machine: Machine) -> int:
        """The offset of the first metadata of a node that was not compared yet. A snapshot replaces earlier ones."""
        return max(self._metadata_scans.get(machine.node_id, 0), machine.metadata_bounds()[1])

    def _check_metadata(self, machine: Machine) -> None:
        """Check that every node has the same committed metadata, up to its own high watermark."""
        next_offset, high_watermark = self._next_metadata(machine), machine.metadata_bounds()[0]
        if high_watermark <= next_offset:
            return
        for header in machine.metadata_batches(next_offset, high_watermark):
            self._show_metadata(machine.host, header)
            self._metadata_scans[machine.node_id] = header.next_offset

    def _show_metadata(self, who: str, header: BatchHeader) -> None:
        self.batches += 1
        shown = (header.base_offset, header.leader_epoch, header.crc)
        offsets = range(header.base_offset, header.next_offset)
        if header.base_offset >= self._metadata_end:
            self._unseen_metadata.update(range(self._metadata_end, header.base_offset))
            self._metadata_end = header.next_offset
            self._metadata[header.next_offset] = shown
        elif self._unseen_metadata.issuperset(offsets):  # a node that was down shows them after all
            self._unseen_metadata.difference_update(offsets)
            self._metadata[header.next_offset] = shown
        elif (expected := self._metadata.get(header.next_offset)) != shown:
            self._world.violated(f"{who} has committed metadata (offset, epoch, CRC) {shown}, others have {expected}")

    def _check_partitions(self, machine: Machine) -> None:
        image = self._world.image
        for partition in machine.partitions():
            topic = image.topics.get(partition.name.topic)
            if topic is None or topic.id != partition.topic_id:
                continue  # deleted, though its leaders may not know yet
            is_leader = partition.is_leader
            if is_leader:
                self._check_leader(machine, partition, topic)
            if partition.name.topic != CONSUMER_OFFSETS_TOPIC or is_leader or partition.high_watermark:
                self._compare(machine, partition, is_leader and self._is_newest(partition, topic))

    def _is_newest(self, partition: Any, topic: Any) -> bool:
        index = partition.name.partition
        if index >= len(topic.partitions):
            return False
        return bool(topic.partitions[index].leader_epoch == partition.state.leader_epoch)

    def _check_leader(self, machine: Machine, partition: Any, topic: Any) -> None:
        place = (topic.id, partition.name.partition, partition.state.leader_epoch)
        leader = self._partition_leaders.setdefault(place, machine.node_id)
        if leader != machine.node_id:
            self._world.violated(f"n{leader} and {machine.host} lead {partition.name} in epoch {place[2]}")
        if not self._is_newest(partition, topic) or partition.log.fault is not None:
            return
        ledger = self.ledger(topic.id, partition.name.partition)
        needed = max(ledger.end, ledger.promised_end)
        if partition.log.end_offset < needed:
            self._world.violated(
                f"{machine.host} leads {partition.name} in epoch {place[2]} with log end {partition.log.end_offset}, "
                f"but offsets up to {needed} were committed"
            )

    def _compare(self, machine: Machine, partition: Any, is_newest_leader: bool) -> None:
        """Check that all replicas have the same batches below the high watermark, and the leader also those shown
        before."""
        log = partition.log
        place = (machine.node_id, partition.topic_id, partition.name.partition)
        scan = self._scans.get(place)
        if scan is None or scan.log is not log or scan.generation != log.generation:
            scan = self._scans[place] = Scan(log, log.generation)
        scan.offset = max(scan.offset, log.start_offset)
        up_to = partition.high_watermark
        ledger = self.ledger(partition.topic_id, partition.name.partition)
        if not log.config.is_compacted:
            ledger.begins(machine.host, log.start_offset)
        if is_newest_leader:
            up_to = max(up_to, ledger.end)
        up_to = min(up_to, log.end_offset)
        while scan.offset < up_to:
            found = log.read(scan.offset, READ_BYTES, up_to, at_least_one=True)
            if found is None:
                break
            for header, batch in split_batches(memoryview(found.read())):
                self.batches += 1
                ledger.show(machine.host, header, batch)
                scan.offset = header.next_offset

    # --- at the end -----------------------------------------------------------------------------------------------

    def unread(self) -> str:
        """Name an acknowledged record of an existing topic that was never seen as committed; return "" if there is
        none."""
        image = self._world.image
        for (topic_id, _), ledger in self.ledgers.items():
            if topic_id in image.topic_names and ledger.promised_end > ledger.end:
                return f"{ledger.name}: acknowledged up to {ledger.promised_end}, committed up to {ledger.end}"
        return ""
