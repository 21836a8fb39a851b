"""The log lines of a failover: brokers, leaders and in-sync replicas, each by name."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionState, TopicImage
from moldau.runtime.image_log import LINES_MAX, BrokerLog, LeadershipLog, broker_line, leadership_lines

HERE = 2
STATE = PartitionState(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=0, partition_epoch=0)
BROKER = BrokerImage(1, 5, bytes(16), (Endpoint("PLAINTEXT", "one", 9092, 0),), None, fenced=True)


def image(*states: PartitionState, topic_id: int = 1) -> MetadataImage:
    topic = TopicImage("orders", bytes([topic_id] * 16), states)
    return replace(MetadataImage(), topics={"orders": topic})


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        (None, BROKER, "is registered with broker epoch 5 at PLAINTEXT://one:9092"),
        (BROKER, replace(BROKER, epoch=6), "is registered with broker epoch 6 at PLAINTEXT://one:9092"),
        (BROKER, replace(BROKER, fenced=False), "is unfenced: it may lead"),
        (replace(BROKER, fenced=False), BROKER, "is fenced: it cannot lead, others take over"),
        (BROKER, replace(BROKER, in_controlled_shutdown=True), "is in controlled shutdown: others take over"),
        (BROKER, replace(BROKER, cannot_write=True), "cannot write to its disk: others take over"),
        (replace(BROKER, cannot_write=True), BROKER, "can write to its disk again"),
        (BROKER, None, "is unregistered"),
        (BROKER, replace(BROKER, rack="r"), None),
    ],
)
def test_a_changed_broker_is_logged(before: BrokerImage | None, now: BrokerImage | None, line: str | None) -> None:
    assert broker_line(before, now) == line


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        (
            STATE, replace(STATE, leader=2, leader_epoch=1, isr=(2, 3)),
            "this broker leads from leader epoch 1 on, ISR 2,3",
        ),
        (replace(STATE, leader=2), replace(STATE, leader=2, isr=(1, 2)), "ISR shrinks from 1,2,3 to 1,2"),
        (replace(STATE, leader=2, isr=(2,)), replace(STATE, leader=2, isr=(2, 1)), "ISR expands from 2 to 2,1"),
        (replace(STATE, leader=2, isr=(2, 1)), replace(STATE, leader=2, isr=(2, 3)), "ISR changes from 2,1 to 2,3"),
        (replace(STATE, leader=2), replace(STATE, leader=2, isr=(3, 2, 1)), None),
        (
            replace(STATE, leader=2), replace(STATE, leader=1, leader_epoch=3),
            "leader 1 in place of this broker from leader epoch 3 on, ISR 1,2,3",
        ),
        (
            replace(STATE, leader=2), replace(STATE, leader=-1, leader_epoch=3, isr=(2,)),
            "no leader in place of this broker from leader epoch 3 on, ISR 2",
        ),
        (STATE, replace(STATE, leader=3, leader_epoch=1), None),
    ],
)  # fmt: skip
def test_a_changed_leader_or_isr_is_logged(before: PartitionState, now: PartitionState, line: str | None) -> None:
    lines = list(leadership_lines(HERE, image(before), image(now), {"orders": {0}, "unknown": {0}}))
    assert lines == ([] if line is None else [f"orders-0: {line}"])


def test_a_new_topic_is_not_logged() -> None:
    led = replace(STATE, leader=HERE)
    for before in (MetadataImage(), image(led, topic_id=2), image()):
        assert list(leadership_lines(HERE, before, image(led), {"orders": {0}})) == []


def test_only_the_first_of_many_partitions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.metadata")
    current = CurrentImage()
    current.publish(image(*[STATE] * 1000), Changes())
    listener = LeadershipLog(HERE, current)
    listener.on_image(image(*[replace(STATE, leader=HERE)] * 1000), Changes({"orders": set(range(1000))}))
    assert len(caplog.messages) == LINES_MAX + 1
    assert caplog.messages[-1].startswith("and other partitions")


def test_only_the_active_controller_logs_brokers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.metadata")
    is_active = False
    listener = BrokerLog(HERE, CurrentImage(), lambda: is_active)
    itself = replace(BROKER, id=HERE)
    changed = replace(MetadataImage(), brokers={1: BROKER, HERE: itself}), Changes(brokers={1, HERE})
    listener.on_image(*changed)
    assert not caplog.messages
    is_active = True
    listener.on_image(*changed)
    assert caplog.messages == ["broker 1 is registered with broker epoch 5 at PLAINTEXT://one:9092"]
