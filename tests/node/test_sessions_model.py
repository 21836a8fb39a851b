"""Random fetch sessions, compared with a model that evaluates every partition each time: an incremental response has
exactly the partitions that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from harness.depth import deep
from harness.fetch_requests import BY_ID, BY_NAME, Key, PartitionResult, fetch, immediate, partition_results
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode
from moldau.replica.partition import Partition

TOPICS = ["a", "b", "c"]
PARTITIONS = 2
SESSIONS = 3
NO_OFFSETS = (-1, -1)
Action = Callable[["SessionsModel", int, list[int]], None]


@dataclass
class ModelSession:
    """The state of a fetch session that client and broker share."""

    id: int
    version: int
    epoch: int = 1
    positions: dict[Key, int] = field(default_factory=dict)
    last_offsets: dict[Key, tuple[int, int]] = field(default_factory=dict)


class SessionsModel:
    def __init__(self) -> None:
        self.node = InMemoryNode().start()
        self.topic_ids = {name: self.node.create_topic(name, PARTITIONS) for name in TOPICS}
        self.every_id = dict(self.topic_ids)
        self.sessions: dict[int, ModelSession] = {}

    # --- the model ----------------------------------------------------------------------------------------------

    def partition(self, key: Key) -> Partition | None:
        topic, index = key
        if isinstance(topic, bytes):
            names = [name for name, topic_id in self.topic_ids.items() if topic_id == topic]
            return self.node.partitions.find(names[0], index) if names else None
        return self.node.partitions.find(topic, index)

    def expected(self, key: Key, offset: int) -> PartitionResult:
        partition = self.partition(key)
        if partition is None:
            is_unknown_id = isinstance(key[0], bytes) and key[0] not in self.node.current.image.topic_names
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return PartitionResult(unknown, -1, -1, 0)
        log = partition.log
        if not log.start_offset <= offset <= log.end_offset:
            return PartitionResult(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, 0)
        size = log.size_bytes * (partition.high_watermark - offset) // max(1, log.end_offset)
        return PartitionResult(0, partition.high_watermark, log.start_offset, size)

    def answer(self, session: ModelSession, is_full: bool) -> dict[Key, PartitionResult]:
        results = {}
        for key, offset in session.positions.items():
            expected = self.expected(key, offset)
            offsets = expected.high_watermark, expected.log_start
            if is_full or expected.error or expected.size or offsets != session.last_offsets.get(key, NO_OFFSETS):
                results[key] = expected
                session.last_offsets[key] = offsets
        return results

    # --- the actions --------------------------------------------------------------------------------------------

    def key(self, session_version: int, choice: int) -> Key:
        name = TOPICS[choice % len(TOPICS)]
        index = choice // len(TOPICS) % (PARTITIONS + 1)
        return (self.every_id[name] if session_version == BY_ID else name), index

    def positions(self, version: int, choices: list[int]) -> dict[Key, int]:
        """Return positions of a client: at the start, at the end, or one beyond the end."""
        results = {}
        for choice in choices:
            key = self.key(version, choice)
            partition = self.partition(key)
            end = partition.high_watermark if partition else 0
            results[key] = [end, end, 0, end + 1, end, end, end, max(0, end - 1)][choice // 8]
        return results

    def open(self, slot: int, choices: list[int]) -> None:
        version = BY_ID if slot % 2 else BY_NAME
        old = self.sessions.get(slot % SESSIONS)
        positions = self.positions(version, choices)
        response = immediate(fetch(self.node, positions, session=old.id if old else 0, epoch=0, version=version))
        assert response.error_code == 0
        assert response.session_id > 0
        session = ModelSession(response.session_id, version, positions=positions)
        self.sessions[slot % SESSIONS] = session
        assert partition_results(response) == self.answer(session, is_full=True)

    def resume(self, slot: int, choices: list[int]) -> None:
        session = self.sessions.get(slot % SESSIONS)
        if session is None:
            return
        update = self.positions(session.version, choices[: len(choices) // 2])
        forget = [self.key(session.version, choice) for choice in choices[len(choices) // 2 :]]
        response = immediate(
            fetch(self.node, update, session=session.id, epoch=session.epoch, forget=forget, version=session.version)
        )
        assert (response.error_code, response.session_id) == (0, session.id)
        session.epoch += 1
        session.positions |= update
        for key in forget:
            session.positions.pop(key, None)
            session.last_offsets.pop(key, None)
        assert partition_results(response) == self.answer(session, is_full=False)

    def close(self, slot: int, choices: list[int]) -> None:
        session = self.sessions.pop(slot % SESSIONS, None)
        if session is not None:
            positions = self.positions(session.version, choices)
            response = immediate(fetch(self.node, positions, session=session.id, epoch=-1, version=session.version))
            assert (response.error_code, response.session_id) == (0, 0)
            assert set(partition_results(response)) == set(positions)
            closed = immediate(fetch(self.node, session=session.id, epoch=session.epoch, version=session.version))
            assert closed.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def send_wrong_epoch(self, slot: int, choices: list[int]) -> None:
        session = self.sessions.get(slot % SESSIONS)
        if session is not None:
            wrong = session.epoch + 1 + len(choices)
            response = immediate(fetch(self.node, session=session.id, epoch=wrong, version=session.version))
            assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
            assert partition_results(response) == {}

    def append(self, slot: int, choices: list[int]) -> None:
        for choice in choices:
            name, index = TOPICS[choice % len(TOPICS)], choice // len(TOPICS) % PARTITIONS
            if name in self.topic_ids:
                self.node.append(name, index)

    def delete_records(self, slot: int, choices: list[int]) -> None:
        for choice in choices[:1]:
            partition = self.node.partitions.find(TOPICS[choice % len(TOPICS)], 0)
            if partition is not None:
                partition.delete_records(-1)

    def delete_or_create_topic(self, slot: int, choices: list[int]) -> None:
        for choice in choices[:1]:
            name = TOPICS[choice % len(TOPICS)]
            if name in self.topic_ids:
                self.node.delete_topic(name)
                del self.topic_ids[name]
            else:
                self.topic_ids[name] = self.every_id[name] = self.node.create_topic(name, PARTITIONS)


ACTIONS = {
    SessionsModel.open: 1, SessionsModel.resume: 10, SessionsModel.append: 6, SessionsModel.delete_records: 1,
    SessionsModel.delete_or_create_topic: 1, SessionsModel.close: 1, SessionsModel.send_wrong_epoch: 1,
}  # fmt: skip
SEEDS, STEPS = deep(20, quick=60), 80


def test_an_incremental_response_equals_an_evaluation_of_all_partitions() -> None:
    """Long random runs: few partitions change between two responses, and none of them may be missed."""
    for seed in range(SEEDS):
        rng, world, trace = Random(seed), SessionsModel(), []
        for _ in range(STEPS):
            action = rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
            slot, choices = rng.randrange(SESSIONS), [rng.randrange(64) for _ in range(rng.choice([0, 0, 1, 1, 2, 6]))]
            trace.append((action.__name__, slot, choices))
            attempt(world, seed, trace, action, slot, choices)
            assert len(world.node.sessions) == len(world.sessions)
            assert len(world.node.parked) == 0


def attempt(
    world: SessionsModel, seed: int, trace: Sequence[object], action: Action, slot: int, choices: list[int]
) -> None:
    try:
        action(world, slot, choices)
    except AssertionError as wrong:
        wrong.add_note(f"seed {seed}, after {trace}")
        raise
