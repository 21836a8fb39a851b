"""The active controller: decisions see each other at once; clients see them in order, when they are on disk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import cast

import pytest
from harness.in_memory_node import NODE_ID, InMemoryNode
from harness.raised_faults import own_work

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.apply import Changes
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.producer_ids import decide_allocate
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.runtime.controller.active import Controller
from moldau.runtime.quorum.committed_metadata import CommittedMetadata
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BatchHeader, split_batches
from moldau.wire.log_records.metadata import ConfigRecord, FeatureLevelRecord
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode().start()


def feature(name: str, level: int = 1) -> Decision[str]:
    return Decision(f"done {name}", (FeatureLevelRecord(name, level),))


def feature_decided(name: str, _: MetadataImage) -> Decision[str]:
    return feature(name)


def metadata_batches(node: InMemoryNode) -> list[BatchHeader]:
    log = node.metadata_log
    piece = log.read(0, 1 << 30, log.end_offset)
    assert piece is not None
    return [header for header, _ in split_batches(memoryview(piece.read()))]


def test_a_response_waits_until_its_records_are_on_disk(node: InMemoryNode) -> None:
    answer = node.controller.submit(lambda _: feature("x"))
    published = len(node.published)
    assert not answer.done
    assert "x" not in node.current.image.features
    node.flush()
    assert answer.value() == "done x"
    assert node.current.image.features["x"] == 1
    assert len(node.published) == published + 1


def test_a_decision_sees_earlier_decisions_committed_or_not(node: InMemoryNode) -> None:
    request = CreateTopicsRequest([CreatableTopic("a", 1, 1)])
    first, second = (
        node.ask_controller(ApiKey.CREATE_TOPICS, request),
        node.ask_controller(ApiKey.CREATE_TOPICS, request),
    )
    node.flush()
    assert first.value().topics[0].error_code == 0
    assert second.value().topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_refusal_waits_for_the_records_it_depends_on(node: InMemoryNode) -> None:
    """The error "topic exists" must not be sent while a crash could still undo the creation."""
    request = CreateTopicsRequest([CreatableTopic("a", 1, 1)])
    node.ask_controller(ApiKey.CREATE_TOPICS, request)
    refused = node.ask_controller(ApiKey.CREATE_TOPICS, request)
    assert not refused.done
    node.flush()
    assert refused.done


def test_a_decision_without_records_is_answered_at_once_if_nothing_is_uncommitted(node: InMemoryNode) -> None:
    end_offset = node.metadata_log.end_offset
    answer = node.controller.submit(lambda image: Decision(image.offset))
    assert answer.value() == end_offset - 1
    assert node.metadata_log.end_offset == end_offset
    assert not node.flusher.requested


def test_responses_come_in_order_each_with_its_image(node: InMemoryNode) -> None:
    seen: list[tuple[str, int]] = []
    for number in range(5):
        answer = node.controller.submit(partial(feature_decided, f"f{number}"))
        answer.then(lambda text: seen.append((text, len(node.current.image.features))))
    before = len(node.current.image.features)
    node.flush()
    assert seen == [(f"done f{n}", before + n + 1) for n in range(5)], (
        "each answer comes when its own image is published"
    )


def test_a_flush_acknowledges_only_the_records_that_it_covers(node: InMemoryNode) -> None:
    first = node.controller.submit(lambda _: feature("x"))
    work = node.metadata_log.begin_flush()
    assert work is not None
    second = node.controller.submit(lambda _: feature("y"))
    work.sync()
    node.metadata_log.finish_flush(work)
    node.assembly.driver.flushed()
    assert first.done
    assert not second.done
    assert "y" not in node.current.image.features
    node.flush()
    assert second.done


def test_a_response_callback_may_submit_the_next_request(node: InMemoryNode) -> None:
    done: list[str] = []
    first = node.controller.submit(lambda _: feature("x"))
    first.then(lambda _: node.controller.submit(lambda image: feature("y", len(image.features))).then(done.append))
    node.flush()
    assert done == ["done y"]


def test_one_decision_is_one_batch_all_or_nothing(node: InMemoryNode) -> None:
    node.create_topic("a", 50)
    last = metadata_batches(node)[-1]
    assert last.record_count == 51
    assert not last.is_control


def test_a_decision_refused_by_the_disk_is_not_published(node: InMemoryNode) -> None:
    node.files.bytes_left = 0
    refused: Promise[object] = node.controller.submit(lambda _: feature("x"))
    assert isinstance(error := refused.value(), KafkaError)
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    node.files.bytes_left = None
    answer = node.controller.submit(lambda image: Decision("x" in image.features))
    node.flush()
    assert answer.value() is False, "later decisions must not see the refused one"


# --- start


def test_the_first_start_writes_the_bootstrap_records(node: InMemoryNode) -> None:
    leader_change, bootstrap, registration, unfenced = metadata_batches(node)
    assert leader_change.is_control
    assert (bootstrap.record_count, registration.record_count, unfenced.record_count) == (4, 1, 1)
    image = node.current.image
    assert image.features == {"metadata.version": 30, "group.version": 1, "transaction.version": 2, "share.version": 2}
    assert image.brokers[NODE_ID].epoch == registration.base_offset
    assert [broker.id for broker in image.live_brokers()] == [NODE_ID]


def durable_state(image: MetadataImage) -> tuple[object, ...]:
    """Return what must survive a restart: all but the broker's registration, its leaderships and the log end."""
    replicas = {name: [state.replicas for state in topic.partitions] for name, topic in image.topics.items()}
    return replicas, image.topic_names, image.configs, image.features, image.next_producer_id


def test_a_restart_replays_to_the_same_image(node: InMemoryNode) -> None:
    node.create_topic("a", 3, retention_ms="5")
    node.create_topic("b")
    node.delete_topic("b")
    node.grow_topic("a", 5)
    node.committed(node.allocate_producer_ids())
    again = node.restart()
    assert durable_state(again.current.image) == durable_state(node.current.image)
    assert again.current.image.offset > node.current.image.offset
    assert again.current.image.brokers[NODE_ID].epoch > node.current.image.brokers[NODE_ID].epoch


def test_every_start_leads_in_a_new_epoch(node: InMemoryNode) -> None:
    epochs = []
    for _ in range(4):
        epochs.append(metadata_batches(node)[-1].leader_epoch)
        node = node.restart()
    assert epochs == sorted(set(epochs))
    headers = metadata_batches(node)
    assert sum(header.is_control for header in headers) == 5
    assert [header.leader_epoch for header in headers] == sorted(header.leader_epoch for header in headers)


def set_outcome(outcomes: dict[str, bool], name: str, exists: bool, _: object) -> None:
    outcomes[name] = exists


def test_acknowledged_decisions_survive_any_crash() -> None:
    for seed in range(40):
        rng = Random(seed)
        node = InMemoryNode(seed=seed).start()
        answered: dict[str, bool] = {}
        for number in range(rng.randrange(1, 8)):
            name = f"t{rng.randrange(3)}"
            if name in node.current.image.topics:
                reply = node.ask_controller(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name]))
                reply.then(partial(set_outcome, answered, name, False))
            else:
                made = node.ask_controller(
                    ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic(name, 1 + number % 2, 1)])
                )
                made.then(partial(set_outcome, answered, name, True))
            if rng.random() < 0.7:
                node.flush()
        settled = not node.flusher.requested
        again = node.crash(rng)
        if settled:
            assert {name: name in again.current.image.topics for name in answered} == answered, f"seed {seed}"
        else:
            committed = again.current.image
            assert committed.offset >= node.current.image.offset, f"seed {seed}"
        again.create_topic("after")


def test_producer_ids_do_not_repeat_across_restarts(node: InMemoryNode) -> None:
    seen: set[int] = set()
    for _ in range(5):
        block = node.committed(node.controller.submit(lambda image: decide_allocate(image, NODE_ID, 1)))
        assert seen.isdisjoint(block)
        seen.update(block)
        node = node.restart()


def test_a_cluster_wide_config_applies_to_logs_found_at_start(node: InMemoryNode) -> None:
    record = ConfigRecord(ConfigResource.BROKER, "", "log.retention.ms", "4321")
    node.create_topic("a")
    node.committed(node.controller.submit(lambda _: Decision(None, (record,))))
    assert node.partition("a").log.config.retention_ms == 4321
    assert node.restart().partition("a").log.config.retention_ms == 4321


def test_decisions_after_a_lost_quorum_state_survive_a_crash(node: InMemoryNode) -> None:
    node = node.restart().restart()
    node.files.unlink(f"{node.metadata_log.directory}/quorum-state")
    node = node.restart()
    node.create_topic("a")
    node = node.crash()
    assert "a" in node.current.image.topics


def many_configs(node: InMemoryNode, names: list[str]) -> Promise[str]:
    """Submit a decision with one record for each name."""
    return node.controller.submit(
        lambda _: Decision("long", tuple(ConfigRecord(ConfigResource.TOPIC, name, "c", "v") for name in names))
    )


LONG = [f"topic-{number}" for number in range(3 * ITEMS_A_TURN)]


def test_a_long_decision_takes_several_turns_and_is_one_batch(node: InMemoryNode) -> None:
    seen: list[int] = []

    def decide_after(image: MetadataImage) -> Decision[str]:
        seen.append(len(image.configs))
        return Decision("after", (ConfigRecord(ConfigResource.TOPIC, "after", "c", "v"),))

    before, batches = len(node.current.image.configs), len(metadata_batches(node))
    long, after = many_configs(node, LONG), node.controller.submit(decide_after)
    turns = 0
    while not seen:
        assert len(metadata_batches(node)) - batches in (0, 1)
        assert node.timers.run_one_soon()
        turns += 1
    assert turns >= 5
    assert seen == [before + len(LONG)], "a later decision sees the whole long one"
    assert node.committed(long) == "long"
    assert node.committed(after) == "after"
    assert [header.record_count for header in metadata_batches(node)[batches:]] == [len(LONG), 1]
    assert len(node.restart().current.image.configs) == before + len(LONG) + 1


def test_a_long_decision_is_dropped_when_the_node_no_longer_leads(node: InMemoryNode) -> None:
    end_offset = node.metadata_log.end_offset
    long, after = many_configs(node, LONG), node.controller.submit(lambda _: feature("after"))
    node.timers.run_one_soon()
    node.controller.no_longer_leading()
    assert [answer.value().code for answer in (long, after)] == [ErrorCode.NOT_CONTROLLER] * 2  # type: ignore[attr-defined]
    node.timers.run_soon()
    assert node.metadata_log.end_offset == end_offset


def test_a_fault_in_a_later_turn_ends_only_that_decision(node: InMemoryNode, caplog: pytest.LogCaptureFixture) -> None:
    def decide(_: MetadataImage) -> Steps[Decision[str]]:
        yield
        raise ValueError("planned error")

    broken, after = node.controller.submit(decide), node.controller.submit(lambda _: feature("after"))
    answer: object = node.committed(broken)
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a decision of the controller failed" in caplog.text
    assert node.committed(after) == "done after"


def test_committed_records_are_applied_in_turns(node: InMemoryNode) -> None:
    node.committed(many_configs(node, LONG))
    node.committed(node.controller.submit(lambda _: feature("after")))
    timers, current = FakeTimers(), CurrentImage()
    log = cast(MetadataLog, node.assembly.driver.quorum.log)
    committed = CommittedMetadata(log, current, own_work(timers))
    committed.committed(node.metadata_log.end_offset - 1)
    assert current.image.offset == -1, "half of a batch is not published"
    committed.committed(node.metadata_log.end_offset)
    turns = 1
    while timers.run_one_soon():
        turns += 1
    assert turns >= 3
    assert current.image == node.current.image


def test_a_new_leader_does_not_publish_a_half_read_image(node: InMemoryNode) -> None:
    node.committed(many_configs(node, LONG))
    timers, current = FakeTimers(), CurrentImage()
    committed = CommittedMetadata(cast(MetadataLog, node.assembly.driver.quorum.log), current, own_work(timers))
    committed.committed(node.metadata_log.end_offset)
    committed.stop()
    timers.run_soon()
    assert current.image.offset == -1


class ResigningQuorum:
    """A quorum leader that resigns during an append, because it has lost its followers."""

    leader_epoch = 1
    high_watermark = 0
    end_offset = 0

    def __init__(self) -> None:
        self.controller: Controller | None = None

    def append(self, values: Sequence[bytes]) -> int:
        self.end_offset += len(values)
        assert self.controller is not None
        self.controller.no_longer_leading()
        return self.end_offset


class EmptyLog:
    """A log without committed records."""

    def stop(self) -> None:
        pass

    def read(self, up_to: int) -> tuple[MetadataImage, Changes]:
        return MetadataImage(), Changes()


def test_a_controller_that_resigns_during_an_append_drops_the_decision() -> None:
    quorum, current = ResigningQuorum(), CurrentImage()
    controller = quorum.controller = Controller(
        quorum, cast(CommittedMetadata, EmptyLog()), current, own_work(FakeTimers())
    )
    controller.leading(1)
    answer = controller.submit(lambda _: feature("transaction.version"))
    assert answer.value().code is ErrorCode.NOT_CONTROLLER
    quorum.high_watermark = quorum.end_offset
    controller.leading(2)
    assert not current.image.features, "an uncommitted decision is not published when the node leads again"
