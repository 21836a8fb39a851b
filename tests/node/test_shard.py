"""A shard decides, applies, appends, and responds on commit; records that the log refuses have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from harness.in_memory_node import NODE_ID, InMemoryNode

from moldau.base.buffers import Buffer
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.turns import CALLS_A_TURN, ITEMS_A_TURN
from moldau.coordinator.machine import Answer, CoordinatorRecord, Deadlines, Outcome
from moldau.log import layout
from moldau.log.segment import Segment
from moldau.log.validate import Origin
from moldau.log.walk import walk_headers
from moldau.metadata.apply import Changes
from moldau.replica.partition import ACKS_LEADER, Partition
from moldau.runtime.coordinators.shard import DEADLINE_RETRY_MS
from moldau.runtime.coordinators.shard_replay import replay_log
from moldau.runtime.coordinators.shards import RELOAD_DELAY_MS, Shards
from moldau.runtime.coordinators.topic import CoordinatorTopic, java_hash
from moldau.wire.batch import RECORD_COUNT_POSITION
from moldau.wire.messages.create_topics import CreatableTopic
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import Message

TOPIC = "log-of-notes"


class Note(Message):
    __slots__ = ("text",)

    def __init__(self, text: str = "") -> None:
        self.text = text


@dataclass
class Notebook:
    """A minimal machine: it stores notes."""

    notes: list[str] = field(default_factory=list)
    deadlines: Deadlines = field(default_factory=Deadlines)
    parked: list[Promise[Any]] = field(default_factory=list)
    is_loaded: bool = False

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        assert isinstance(record.key, Note)
        return record.key.text.encode(), b""

    def apply_all(self, records: Sequence[CoordinatorRecord]) -> None:
        for record in records:
            assert isinstance(record.key, Note)
            self.notes.append(record.key.text)

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        if key == b"strange":
            raise MalformedData("a note in a language of the future")
        self.notes.append(bytes(key).decode())

    def loaded(self) -> None:
        self.is_loaded = True

    def waiting(self) -> Iterator[Promise[Any]]:
        yield from self.parked

    def write(
        self, *texts: str, answers: Sequence[Answer] = (), refused: Any = None, divisible: bool = False
    ) -> Outcome[str]:
        records = [CoordinatorRecord(Note(text), None) for text in texts]
        response = f"wrote {len(texts)}" if divisible else f"wrote {' '.join(texts)}"
        return Outcome(response, records, answers, refused, is_divisible=divisible)

    def read(self) -> Outcome[list[str]]:
        return Outcome(list(self.notes))


def shards_of(node: InMemoryNode) -> Shards[Notebook]:
    topic = CoordinatorTopic(CreatableTopic(TOPIC, 1, 1), node.current, node.assembly.channel)
    return Shards(topic, NODE_ID, node.partitions, lambda _: Notebook(), node.clock, node.assembly._world.own_work())


PART = ITEMS_A_TURN // 4


class NotebookNode:
    def __init__(self, node: InMemoryNode | None = None, **config: str) -> None:
        self.node = node or InMemoryNode().start()
        if TOPIC not in self.node.current.image.topics:
            self.node.create_topic(TOPIC, 1, **config)
        self.shards = shards_of(self.node)
        self.shards.on_image(self.node.current.image, Changes({TOPIC: {0}}))
        self.node.timers.run_soon()

    @property
    def notebook(self) -> Notebook:
        return next(self.shards.machines())

    def write(self, *texts: str, **rest: Any) -> Any:
        return self.shards.submit("k", lambda notebook: notebook.write(*texts, **rest))

    def read(self) -> Any:
        return self.shards.submit("k", lambda notebook: notebook.read())

    @property
    def partition(self) -> Any:
        return self.node.partitions.get(TOPIC, 0)


def test_a_response_waits_for_its_record_and_a_read_for_the_records_it_saw() -> None:
    world = NotebookNode(flush_messages="1")
    wrote, read = world.write("a"), world.read()
    assert world.notebook.notes == ["a"]
    world.node.timers.run_soon()
    assert [world.partition.log.end_offset, wrote.done, read.done] == [1, False, False]
    late = world.read()
    world.node.flush()
    assert [wrote.value(), read.value(), late.value()] == ["wrote a", ["a"], ["a"]]
    assert world.read() == ["a"], "if everything is committed, a read is answered at once"


def test_a_shard_whose_leader_moved_refuses_before_it_is_closed() -> None:
    """A large change closes it some turns later. The image may have topics that its successor does not know yet."""
    world = NotebookNode()
    assert world.read() == []
    before = world.node.current.image
    topic = before.topics[TOPIC]
    moved = replace(topic, partitions=(replace(topic.partitions[0], leader=NODE_ID + 1),))
    world.node.current.image = replace(before, topics=PersistentMap({**before.topics, TOPIC: moved}))
    for call in (world.read, lambda: world.write("a"), lambda: world.shards.loaded_machine_of("k")):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    world.node.current.image = before
    assert world.read() == []


def test_records_of_one_turn_are_one_batch() -> None:
    world = NotebookNode()
    answers = [world.write(text) for text in "abc"]
    assert world.partition.log.end_offset == 0
    world.node.timers.run_soon()
    assert [answer.value() for answer in answers] == ["wrote a", "wrote b", "wrote c"]
    (segment,) = world.partition.log.segments
    assert [header.record_count for _, header in walk_headers(segment.file, 0, segment.size)] == [3]


def test_records_of_a_turn_may_need_several_batches() -> None:
    world = NotebookNode(max_message_bytes="500")
    answers = [world.write(f"{n:0100}") for n in range(10)]
    world.node.timers.run_soon()
    assert all(answer.done for answer in answers)
    assert world.partition.log.end_offset == 10
    assert len(world.notebook.notes) == 10


def test_waiting_requests_are_answered_when_the_record_is_committed() -> None:
    world = NotebookNode(flush_messages="1")
    other: Promise[str] = Promise()
    world.write("a", answers=[Answer(other, "your turn")])
    world.node.timers.run_soon()
    assert not other.done
    world.node.flush()
    assert other.value() == "your turn"


def test_answers_added_by_on_applied_are_given_only_on_commit() -> None:
    world = NotebookNode(flush_messages="1", max_message_bytes="500")
    other: Promise[str] = Promise()

    def write(text: str) -> Any:
        answers: list[Answer] = []
        record = CoordinatorRecord(Note(text), None)
        outcome = Outcome("wrote", [record], answers, on_applied=lambda: answers.append(Answer(other, "your turn")))
        return world.shards.submit("k", lambda _: outcome)

    with pytest.raises(KafkaError):
        write("x" * 500)
    assert not other.done
    write("a")
    world.node.timers.run_soon()
    assert not other.done
    world.node.flush()
    assert other.value() == "your turn"


def test_records_that_are_too_large_are_refused_and_change_nothing() -> None:
    world = NotebookNode(max_message_bytes="500")
    with pytest.raises(KafkaError) as refused:
        world.write("x" * 500)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (world.notebook.notes, world.read()) == ([], [])
    waiting: Promise[str] = Promise()
    fallback = Outcome(None, [CoordinatorRecord(Note("small"), None)], [Answer(waiting, "too large")])
    # the machine may have an outcome for this case, which is written instead
    answer = world.write("x" * 500, refused=lambda error: fallback)
    world.node.timers.run_soon()
    assert (answer.done, waiting.value(), world.notebook.notes) == (True, "too large", ["small"])


def test_divisible_records_may_be_more_than_one_batch() -> None:
    world = NotebookNode(max_message_bytes="500")
    answer = world.write(*(f"{n:0100}" for n in range(20)), divisible=True)
    world.node.timers.run_soon()
    assert (answer.value(), len(world.notebook.notes), world.partition.log.end_offset) == ("wrote 20", 20, 20)
    with pytest.raises(KafkaError):
        world.write("fits", "x" * 500, divisible=True)
    assert len(world.read()) == 20


def test_a_partition_that_is_led_here_and_not_laid_out_yet_is_loading() -> None:
    node = InMemoryNode().start()
    shards = shards_of(node)
    with pytest.raises(KafkaError) as absent:
        shards.submit("k", lambda notebook: notebook.read())
    assert absent.value.code is ErrorCode.NOT_COORDINATOR, "there is no topic"
    node.create_topic(TOPIC, 1)
    with pytest.raises(KafkaError) as absent:
        shards.submit("k", lambda notebook: notebook.read())
    assert absent.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    shards.on_image(node.current.image, Changes({TOPIC: {0}}))
    node.timers.run_soon()
    assert shards.submit("k", lambda notebook: notebook.read()) == []


def test_after_the_log_refused_a_batch_the_rest_is_not_appended() -> None:
    world = NotebookNode(max_message_bytes="500")
    world.node.files.bytes_left = 600
    with pytest.raises(KafkaError) as refused:
        world.write(*(f"{n:0100}" for n in range(20)), divisible=True)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    end_offset = world.partition.log.end_offset
    world.node.files.bytes_left = None
    world.node.timers.advance(RELOAD_DELAY_MS)
    assert world.partition.log.end_offset == end_offset == len(world.read())


def test_after_the_log_refused_a_write_a_new_machine_is_loaded_from_it() -> None:
    world = NotebookNode()
    world.write("kept")
    world.node.timers.run_soon()
    world.node.files.bytes_left = 0
    parked: Promise[Any] = Promise()
    world.notebook.parked.append(parked)
    lost, read = world.write("lost"), world.read()
    world.node.timers.run_soon()
    codes = [answer.value().code for answer in (lost, read, parked)]
    assert codes == [ErrorCode.NOT_COORDINATOR] * 3
    with pytest.raises(KafkaError) as refused:
        world.read()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    world.node.files.bytes_left = None
    world.node.timers.advance(RELOAD_DELAY_MS)
    assert world.read() == ["kept"]
    assert world.notebook.is_loaded


def test_a_new_machine_has_the_acknowledged_records() -> None:
    world = NotebookNode()
    for text in "abcde":
        world.write(text)
        world.node.timers.run_soon()
    again = NotebookNode(world.node.restart())
    assert again.read() == list("abcde")


def test_only_one_shard_loads_in_a_turn() -> None:
    node = InMemoryNode().start()
    node.create_topic(TOPIC, 3)
    notes = [Record(NEXT_OFFSET, 0, str(number).encode(), None, ()) for number in range(ITEMS_A_TURN)]
    for index in (0, 1, 2) * 3:
        node.partition(TOPIC, index).append(memoryview(build_batch(notes)), ACKS_LEADER, 0, Origin.COORDINATOR)
    shards = shards_of(node)
    shards.on_image(node.current.image, Changes({TOPIC: {0, 1, 2}}))
    notebooks = list(shards.machines())
    before = [0, 0, 0]
    while not all(each.is_loaded for each in notebooks):
        assert node.timers.run_one_soon()
        now = [len(each.notes) for each in notebooks]
        assert sum(one != other for one, other in zip(before, now, strict=True)) <= 1
        assert [0 < count < 3 * ITEMS_A_TURN for count in now].count(True) <= 1, "one after the other"
        before = now
    assert before == [3 * ITEMS_A_TURN] * 3


def test_a_loading_machine_decides_when_it_has_loaded_and_before_any_request() -> None:
    node = InMemoryNode().start()
    node.create_topic(TOPIC, 1)
    notes = [Record(NEXT_OFFSET, 0, str(number).encode(), None, ()) for number in range(ITEMS_A_TURN)]
    node.partition(TOPIC, 0).append(memoryview(build_batch(notes)), ACKS_LEADER, 0, Origin.COORDINATOR)
    shards = shards_of(node)
    shards.on_image(node.current.image, Changes({TOPIC: {0}}))
    seen: list[int] = []

    def decide(notebook: Notebook) -> Iterator[Outcome[None]]:
        seen.append(len(notebook.notes))
        return iter([])

    shards.submit_to_all(decide)
    assert seen == []
    while not next(shards.machines()).is_loaded:
        assert node.timers.run_one_soon()
    assert seen == [ITEMS_A_TURN]
    shards.submit_to_all(decide)
    assert seen == [ITEMS_A_TURN] * 2


def test_an_empty_shard_is_loaded_at_once() -> None:
    node = InMemoryNode().start()
    node.create_topic(TOPIC, 1)
    shards = shards_of(node)
    shards.on_image(node.current.image, Changes({TOPIC: {0}}))
    assert next(shards.machines()).is_loaded


def test_loading_yields_to_other_work_and_refuses_requests_meanwhile() -> None:
    world = NotebookNode()
    for start in range(0, 3 * ITEMS_A_TURN, PART):
        world.write(*(str(n) for n in range(start, start + PART)))
        world.node.timers.run_soon()
    node = world.node.restart()
    shards = shards_of(node)
    shards.on_image(node.current.image, Changes({TOPIC: {0}}))
    notebook = next(shards.machines())
    node.timers.run_one_soon()
    assert 0 < len(notebook.notes) <= ITEMS_A_TURN + PART
    with pytest.raises(KafkaError) as refused:
        shards.submit("k", lambda machine: machine.read())
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.timers.run_soon()
    assert notebook.notes == [str(n) for n in range(3 * ITEMS_A_TURN)]


@pytest.mark.parametrize("spoilt", ["a record", "a length"])
def test_damaged_batches_are_skipped(spoilt: str) -> None:
    world = NotebookNode()
    for text in ("aaaa", "bbbb", "cccc"):
        world.write(text)
        world.node.timers.run_soon()
    (segment,) = world.partition.log.segments
    data = segment.file.pread(segment.size, 0)
    where = data.index(b"bbbb") if spoilt == "a record" else len(data) // 3 + 8
    segment.file.pwrite(b"\xff", where)
    world.shards._open(0, world.partition)
    world.node.timers.run_soon()
    assert world.read() == (["aaaa", "cccc"] if spoilt == "a record" else ["aaaa"])


@pytest.mark.parametrize(("field_at", "claim"), [(0, b"\x00\x7f"), (23, b"\x7f"), (RECORD_COUNT_POSITION, b"\xff")])
def test_a_damaged_header_at_the_end_of_a_turn_does_not_hide_later_batches(field_at: int, claim: bytes) -> None:
    """The base offset or the last offset delta is much too large, or the number of records is negative."""
    world = NotebookNode()
    texts = [str(number) for number in range(ITEMS_A_TURN - 1)]
    for start in range(0, len(texts), PART):
        world.write(*texts[start : start + PART])
        world.node.timers.run_soon()
    (segment,) = world.partition.log.segments
    spoilt_at = segment.size
    for text in ("spoilt", "after", "last"):
        world.write(text)
        world.node.timers.run_soon()
    segment.file.pwrite(claim, spoilt_at + field_at)
    notebook = Notebook()
    turns = [len(notebook.notes) for _ in replay_log(world.partition, notebook)]
    assert [text for text in notebook.notes if text != "spoilt"] == [*texts, "after", "last"]
    assert turns in ([len(texts)], [len(texts) + 1])


def test_many_damaged_batches_take_several_turns() -> None:
    world = NotebookNode()
    for number in range(ITEMS_A_TURN + 1):
        world.write(str(number))
        world.node.timers.run_soon()
    (segment,) = world.partition.log.segments
    for position, _ in list(walk_headers(segment.file, 0, segment.size))[:-1]:
        segment.file.pwrite(b"\xff", position + 57)
    notebook = Notebook()
    assert len(list(replay_log(world.partition, notebook))) == 1
    assert notebook.notes == [str(ITEMS_A_TURN)]


def test_an_unknown_record_does_not_affect_others() -> None:
    world = NotebookNode()
    world.write("before", "strange", "after")
    world.node.timers.run_soon()
    assert NotebookNode(world.node.restart()).read() == ["before", "after"]


def test_deadlines_run_and_their_records_are_appended() -> None:
    world = NotebookNode()
    notebook = world.notebook
    at_ms = world.node.clock.monotonic_ms()
    notebook.deadlines.schedule("late", at_ms + 500, lambda: Outcome(None, notebook.write("late").records))
    world.read()
    notebook.deadlines.schedule("early", at_ms + 100, lambda: Outcome(None, notebook.write("early").records))
    world.read()
    world.node.timers.advance(99)
    assert notebook.notes == []
    world.node.timers.advance(1)
    assert notebook.notes == ["early"]
    world.node.timers.advance(400)
    assert (notebook.notes, world.partition.log.end_offset) == (["early", "late"], 2)


def test_many_deadlines_run_in_turns() -> None:
    world = NotebookNode()
    notebook = world.notebook
    at_ms = world.node.clock.monotonic_ms()
    for number in range(2 * CALLS_A_TURN + 1):
        records = notebook.write(str(number)).records
        notebook.deadlines.schedule(number, at_ms + 100, lambda records=records: Outcome(None, records))
    world.read()
    world.node.timers.advance(100)
    (segment,) = world.partition.log.segments
    batches = [header.record_count for _, header in walk_headers(segment.file, 0, segment.size)]
    assert batches == [CALLS_A_TURN, CALLS_A_TURN, 1], "a batch for each turn"


def test_a_deadline_that_fails_stops_the_node_and_no_other_deadline() -> None:
    world = NotebookNode()
    notebook = world.notebook

    def fail() -> Outcome[None]:
        raise RuntimeError("a fault of ours")

    at_ms = world.node.clock.monotonic_ms()
    notebook.deadlines.schedule("bad", at_ms + 100, fail)
    for name, after_ms in (("with it", 100), ("later", 200)):
        records = notebook.write(name).records
        notebook.deadlines.schedule(name, at_ms + after_ms, lambda records=records: Outcome(None, records))
    world.read()
    world.node.timers.advance(100)
    assert [str(fault) for fault in world.node.faults] == ["a fault of ours"]
    world.node.timers.advance(0)
    assert notebook.notes == ["with it"]
    world.node.timers.advance(100)
    assert notebook.notes == ["with it", "later"]


def shrink(world: NotebookNode, isr: tuple[int, ...] = ()) -> None:
    world.partition.state = replace(world.partition.state, isr=isr)


def grow(world: NotebookNode) -> None:
    shrink(world, (1,))
    world.partition.reevaluate_isr()


def test_with_too_few_replicas_a_write_is_refused_and_the_machine_is_kept() -> None:
    world = NotebookNode()
    world.write("kept")
    world.node.timers.run_soon()
    notebook = world.notebook
    shrink(world)
    other: Promise[str] = Promise()
    with pytest.raises(KafkaError) as refused:
        world.write("refused", answers=[Answer(other, "your turn")])
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert isinstance(other.value(), KafkaError)
    fallback = world.write("refused", refused=lambda error: Outcome(None))
    world.node.timers.advance(10 * RELOAD_DELAY_MS)
    assert (fallback, world.read(), world.notebook is notebook) == ("wrote refused", ["kept"], True)
    grow(world)
    world.write("again")
    world.node.timers.run_soon()
    assert (world.read(), world.partition.log.end_offset) == (["kept", "again"], 2)


def test_records_of_this_turn_are_appended_although_the_replicas_are_too_few_by_then() -> None:
    world = NotebookNode()
    wrote = world.write("early")
    notebook = world.notebook
    shrink(world)
    world.node.timers.run_soon()
    assert (wrote.value(), world.notebook is notebook, world.partition.log.end_offset) == ("wrote early", True, 1)


def test_with_too_few_replicas_one_line_says_that_work_without_a_request_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = NotebookNode()
    shrink(world)
    world.shards.submit_to_loaded(lambda notebook: [replace(notebook.write(text), response=None) for text in "abc"])
    assert [record.message for record in caplog.records if "without a request" in record.message] == [
        f"{TOPIC}-0: records that the coordinator wrote without a request were refused: "
        f"{TOPIC}-0 has too few in-sync replicas"
    ]


def test_deadlines_wait_while_the_replicas_are_too_few() -> None:
    world = NotebookNode()
    notebook = world.notebook
    at_ms = world.node.clock.monotonic_ms()
    for name, after_ms in (("first", 100), ("second", 200)):
        records = notebook.write(name).records
        notebook.deadlines.schedule(name, at_ms + after_ms, lambda records=records: Outcome(None, records))
    world.read()
    shrink(world)
    for _ in range(10):
        world.node.timers.advance(100)
        world.read()
    assert (notebook.notes, world.notebook is notebook) == ([], True)
    grow(world)
    world.node.timers.advance(DEADLINE_RETRY_MS)
    assert (notebook.notes, world.partition.log.end_offset) == (["first", "second"], 2)


def test_a_failed_shard_is_closed_once() -> None:
    world = NotebookNode()
    world.node.current.add_listener(world.shards.on_image)
    parked: Promise[Any] = Promise()
    world.notebook.parked.append(parked)
    world.node.files.bytes_left = 0
    lost = world.write("lost")
    world.node.timers.run_soon()
    world.node.files.bytes_left = None
    world.node.delete_topic(TOPIC)
    assert [each.value().code for each in (lost, parked)] == [ErrorCode.NOT_COORDINATOR] * 2


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "closed"])
def test_a_request_that_fails_with_its_answer_keeps_no_other_from_its_own(is_committed: bool) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a fault of ours")

    world = NotebookNode()
    first, bad, last = (world.write(text) for text in "abc")
    bad.then(fail)
    if is_committed:
        world.node.timers.run_soon()
    else:
        world.shards.close(ErrorCode.NOT_COORDINATOR)
    assert [first.done, last.done] == [True, True]
    assert world.node.faults == []


def test_a_fault_of_the_log_stops_the_node_and_answers_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    world = NotebookNode()
    wrote = world.write("a")
    monkeypatch.setattr(Partition, "append", fail)
    world.node.timers.run_soon()
    assert wrote.value().code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [str(fault) for fault in world.node.faults] == ["a fault of ours"]


def test_a_fault_when_the_replayed_records_are_committed_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever brings the commit has no part in it: a flush, or the fetch of a follower."""

    def fail(_: Notebook) -> None:
        raise RuntimeError("a fault of ours")

    world = NotebookNode(flush_messages="1")
    world.write("not on disk yet")
    world.node.timers.run_soon()
    loading = NotebookNode.__new__(NotebookNode)
    loading.node, loading.shards = world.node, shards_of(world.node)
    monkeypatch.setattr(Notebook, "loaded", fail)
    loading.shards.on_image(world.node.current.image, Changes({TOPIC: {0}}))
    world.node.timers.run_soon()
    world.node.flush()
    assert [str(fault) for fault in world.node.faults] == ["a fault of ours"]


def test_an_answer_that_is_also_parked_in_the_machine_is_given_once() -> None:
    world = NotebookNode(max_message_bytes="500")
    parked: Promise[Any] = Promise()
    world.notebook.parked.append(parked)
    world.node.files.bytes_left = 600
    texts = [f"{n:0100}" for n in range(20)]
    with pytest.raises(KafkaError):
        world.write(*texts, answers=[Answer(parked, "never")], divisible=True)
    assert parked.value().code is ErrorCode.NOT_COORDINATOR


def test_a_deadline_whose_records_are_refused_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    world = NotebookNode(max_message_bytes="500")
    notebook = world.notebook
    at_ms = world.node.clock.monotonic_ms()
    for name in ("x" * 1000, "fits"):
        records = notebook.write(name).records
        notebook.deadlines.schedule(name, at_ms + 100, lambda records=records: Outcome(None, records))
    world.read()
    world.node.timers.advance(100)
    assert notebook.notes == ["fits"]
    assert f"{TOPIC}-0: the records of a timer were refused: RECORD_LIST_TOO_LARGE" in caplog.text


def test_a_deleted_topic_closes_its_shards() -> None:
    world = NotebookNode()
    world.node.current.add_listener(world.shards.on_image)
    parked: Promise[Any] = Promise()
    world.notebook.parked.append(parked)
    world.node.delete_topic(TOPIC)
    assert parked.value().code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError) as refused:
        world.read()
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    world.node.create_topic(TOPIC, 1)
    world.node.timers.run_soon()
    assert world.read() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("group-1", 293427299),
        ("orders", 1008770331),
        ("Moldau", 1984695186),
        ("😀", 1772899),
        ("polygenelubricants", 0),
    ],
)
def test_java_hash_equals_hash_code_of_a_java_string(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_no_answer_is_given_while_a_request_is_decided() -> None:
    """A client may send its next request as soon as it has an answer. That request would be decided on a state without
    the records of the first."""
    world = NotebookNode(max_message_bytes="200")
    order: list[str] = []
    first = world.write("a" * 60)
    first.then(lambda _: order.append(f"answered, {len(world.notebook.notes)} notes"))

    def decide(notebook: Notebook) -> Outcome[str]:
        order.append(f"decided on {len(notebook.notes)} notes")
        return notebook.write("b" * 60)  # does not fit into the batch of the first, which is written at once

    world.shards.submit("k", decide)
    world.node.timers.run_soon()
    assert order == ["decided on 1 notes", "answered, 2 notes"]


def test_a_load_continues_over_segments_replaced_meanwhile() -> None:
    world = NotebookNode()
    log = world.partition.log
    texts = [f"note {number}" for number in range(3 * ITEMS_A_TURN)]
    for first in range(0, len(texts), PART):
        world.write(*texts[first : first + PART])
        world.node.timers.run_soon()
        log.roll(world.node.clock.now_ms())
    again = Notebook()
    steps = replay_log(world.partition, again)
    next(steps)
    assert len(again.notes) < len(texts)
    # As the cleaner does: one segment in place of several, under the name of the first.
    merged = [log.segments.at(place) for place in range(6)]
    content = b"".join(segment.file.pread(segment.size, 0) for segment in merged)
    for segment in merged:
        segment.release()
        world.node.files.unlink(segment.path + layout.LOG)
    world.node.files.open(merged[0].path + layout.LOG, create=True).pwrite(content, 0)
    log.segments.swap(0, 6, Segment(world.node.files, log.directory, merged[0].base_offset, len(content), 0))
    for _ in steps:
        pass
    assert again.notes == texts
