"""A scrape of a whole node in memory: each step is small however much the node has, and its values are correct."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.in_memory_node import InMemoryNode, batch
from harness.operations import operations_of
from prometheus_client.parser import text_string_to_metric_families

from moldau.assembly.metrics import NodeMetrics
from moldau.base.errors import StorageFault
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.state import GroupState
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import RECOVERED, RECOVERING, MetadataImage, PartitionState, TopicImage
from moldau.metrics.cluster import UncleanElections
from moldau.metrics.groups import committed_offsets
from moldau.prometheus.text import PIECE_SERIES
from moldau.runtime.broker.lifecycle import LEAVE_TIMEOUT_MS
from moldau.runtime.running_clock import RunningClock
from moldau.server.handler import Caller
from moldau.wire.log_records.offsets import OffsetCommitKey, OffsetCommitValue
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

PARTITIONS = 10_000
OPERATIONS_A_STEP = 50 * PIECE_SERIES
"""Some lines for each series."""


def metrics_of(node: InMemoryNode) -> NodeMetrics:
    idle = SimpleNamespace(flushes=0, queued=0)
    fakes: Any = (list, (idle, idle), SimpleNamespace(traffic={}))
    return NodeMetrics(node.assembly, node.assembly._world, RunningClock(node.clock, node.timers), *fakes)


def texts(metrics: NodeMetrics) -> Iterator[str]:
    for step in metrics.steps():
        if isinstance(step, Promise):
            assert step.done, "no other node has to be asked"
        else:
            yield step


def samples(metrics: NodeMetrics) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families("".join(texts(metrics)))
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def large_node() -> InMemoryNode:
    """A node that seems to have many partitions: each is the same one, which takes no time to create."""
    node = InMemoryNode().start()
    node.create_topic("many")
    image, partition = node.current.image, node.partition("many")
    topic = image.topics["many"]
    many = replace(topic, partitions=topic.partitions * PARTITIONS)
    node.current.publish(replace(image, topics=PersistentMap({"many": many})), Changes())
    node.partitions._topics["many"] = dict.fromkeys(range(PARTITIONS), partition)
    return node


def series_of_small_steps(metrics: NodeMetrics) -> int:
    """Return how many series a scrape has, none of whose steps is large."""
    steps, series = metrics.steps(), 0
    while True:
        taken: list[Any] = []
        spent = operations_of(lambda: taken.append(next(steps, None)))  # noqa: B023
        if taken[0] is None:
            break
        if isinstance(taken[0], str):
            count = sum(not line.startswith("#") for line in taken[0].splitlines())
            assert count <= PIECE_SERIES
            series += count
        assert spent <= OPERATIONS_A_STEP, taken[0][:200]
    return series


def test_no_step_is_large_however_many_partitions_there_are(large_node: InMemoryNode) -> None:
    assert series_of_small_steps(metrics_of(large_node)) > 13 * PARTITIONS


def test_no_step_is_large_however_many_groups_and_committed_offsets_there_are(
    large_node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = large_node.assembly.broker_side
    assert side is not None
    committed = OffsetCommitValue(-5, -1, "", 0, -1, bytes(16))
    machines = []
    for shard in range(50):
        state = GroupState(*(cast(Any, None) for _ in range(5)))
        for number in range(PIECE_SERIES - 1):
            state.groups[f"g{shard}-{number}"] = cast(Group, SimpleNamespace(members=()))
        indexes = range(shard, PARTITIONS + 50, 50)
        state.offsets[f"g{shard}-0"] = {"many": dict.fromkeys(indexes, committed), "gone": {shard: committed}}
        machines.append(SimpleNamespace(state=state))
    monkeypatch.setattr(side.groups.shards, "ready_machines", lambda: machines)
    assert series_of_small_steps(metrics_of(large_node)) > 15 * PARTITIONS


def test_series_of_single_partitions_can_be_disabled() -> None:
    node = InMemoryNode(static={"metrics.per.partition": "false"}).start()
    node.create_topic("many", 50)
    found = samples(metrics_of(node))
    assert not [key for key in found if "partition" in key[1] or key[1] == "many,7"]
    assert found["kafka_server_replicamanager_partitioncount", ""] == 50
    assert found["kafka_topic_partitions", "many"] == 50


def test_appends_and_fetches_are_counted() -> None:
    node = InMemoryNode().start()
    node.create_topic("t")
    records = batch(3)
    size = len(records)
    node.partition("t").append(records, 1, node.clock.now_ms())
    node.flush()
    caller = Caller("L", "x", None, 11)
    wanted = FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    fetch = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[wanted])
    node.fetch.answer(fetch, caller)
    fetch.min_bytes = 1 << 20
    assert isinstance(node.fetch.answer(fetch, caller), Promise)  # it waits: its bytes are not counted yet
    found = samples(metrics_of(node))
    prefix = "kafka_server_brokertopicmetrics_"
    assert found[f"{prefix}messagesin_total", "t"] == found[f"{prefix}messagesin_total", ""] == 3
    assert found[f"{prefix}bytesin_total", "t"] == size
    assert found[f"{prefix}bytesout_total", "t"] == size
    assert found[f"{prefix}totalproducerequests_total", "t"] == 1
    assert found[f"{prefix}totalfetchrequests_total", "t"] >= 2
    assert found["moldau_parked_fetches", ""] == 1
    node.timers.advance(500)
    assert samples(metrics_of(node))[f"{prefix}bytesout_total", "t"] == 2 * size
    node.delete_topic("t")
    found = samples(metrics_of(node))
    assert (f"{prefix}bytesin_total", "t") not in found
    assert found[f"{prefix}bytesin_total", ""] == size


def test_groups_are_read_in_pieces() -> None:
    node = InMemoryNode().start()
    node.create_topic("t", 3)
    side = node.assembly.broker_side
    assert side is not None
    state = side.groups.shards._new_machine(node.partition("t")).offsets._state
    for number in range(PIECE_SERIES + 1):
        state.offsets.setdefault(f"g{number}", {})["t"] = {0: OffsetCommitValue(number, -1, "", 0, -1, bytes(16))}
    lists = list(committed_offsets([state]))
    assert [len(each) for each in lists] == [PIECE_SERIES, 1]
    assert OffsetCommitKey("g7", "t", 0) == OffsetCommitKey(lists[0][7].group, lists[0][7].topic, 0)


def test_unknown_disk_space_is_left_out_and_not_zero() -> None:
    spaces = iter([None, (100, 10), None])

    def disk_space() -> tuple[int, int]:
        space = next(spaces)
        if space is None:
            raise StorageFault("data", OSError("stale file handle"))
        return space

    metrics = metrics_of(InMemoryNode().start())
    metrics._world = replace(metrics._world, disk_space=disk_space)
    names = ("moldau_data_dir_size_bytes", ""), ("moldau_data_dir_free_bytes", "")
    values = [[found.get(name) for name in names] for found in (samples(metrics) for _ in range(3))]
    assert values == [[None, None], [100, 10], [None, None]]


def test_the_uptime_does_not_follow_the_wall_clock() -> None:
    node = InMemoryNode().start()
    metrics = metrics_of(node)
    node.timers.advance(3_000)
    node.clock.jump(-3_600_000)
    node.clock.move(7_000)  # the node did not run
    node.timers.advance(1_000)
    assert samples(metrics)["moldau_uptime_seconds", ""] == 11


def test_the_state_of_a_broker_in_shutdown_has_kafkas_numbers() -> None:
    node = InMemoryNode().start()
    side, image = node.assembly.broker_side, node.current.image
    assert side is not None
    other = replace(image.brokers[node.assembly.settings.node_id], id=77)
    node.current.publish(replace(image, brokers=PersistentMap({**dict(image.brokers.items()), 77: other})), Changes())
    metrics, name = metrics_of(node), ("kafka_server_kafkaserver_brokerstate", "")
    assert samples(metrics)[name] == 3
    side.leave()
    assert samples(metrics)[name] == 6
    node.timers.advance(LEAVE_TIMEOUT_MS)
    assert samples(metrics)[name] == 7


def test_unclean_elections_are_counted_by_the_active_controller() -> None:
    current, is_active = CurrentImage(), True
    elections = UncleanElections(current, lambda: is_active)

    def image(leader: int, recovery_state: int) -> MetadataImage:
        state = PartitionState((1, 2), (leader,), leader, 1, 1, leader_recovery_state=recovery_state)
        topic = TopicImage("t", bytes(16), (state,))
        return MetadataImage(topics=PersistentMap({"t": topic}))

    changes = Changes(topics={"t": {0}})
    current.publish(image(1, 0), changes)
    elections.on_image(image(1, 0), changes)
    assert elections.count == 0
    elections.on_image(image(2, RECOVERING), changes)
    assert elections.count == 1
    current.publish(image(2, RECOVERING), changes)
    elections.on_image(image(2, RECOVERING), changes)  # another change of the same leader
    assert elections.count == 1
    is_active = False
    elections.on_image(image(1, RECOVERING), changes)
    assert elections.count == 1


def test_the_return_of_a_leader_in_recovery_is_not_an_unclean_election() -> None:
    current = CurrentImage()
    elections = UncleanElections(current, lambda: True)
    changes = Changes(topics={"t": {0}})
    counted = []
    for epoch, (leader, isr) in enumerate(((1, 1), (2, 2), (-1, 2), (2, 2), (-1, 2), (1, 1)), 1):
        recovery_state = RECOVERING if epoch > 1 else RECOVERED
        state = PartitionState((1, 2), (isr,), leader, epoch, epoch, leader_recovery_state=recovery_state)
        image = MetadataImage(topics=PersistentMap({"t": TopicImage("t", bytes(16), (state,))}))
        elections.on_image(image, changes)
        current.publish(image, changes)
        counted.append(elections.count)
    assert counted == [0, 1, 1, 1, 1, 2], "only the elections of 2 and in the end of 1 were unclean"


def test_unclean_elections_are_counted_once_however_many_views_a_topic_has() -> None:
    current = CurrentImage()
    elections = UncleanElections(current, lambda: True)

    def image(leader: int, recovery_state: int, views: list[str]) -> MetadataImage:
        state = PartitionState((1, 2), (leader,), leader, 1, 1, leader_recovery_state=recovery_state)
        source = TopicImage("t", bytes(16), (state,))
        shown = {name: TopicImage(name, name.encode() * 16, (state,), source.id) for name in views}
        return MetadataImage(topics=PersistentMap({"t": source, **shown}))

    current.publish(image(1, 0, ["v", "w"]), Changes())
    after = image(2, RECOVERING, ["v", "w"])
    changes = Changes(topics={"t": {0}, "v": {0}, "w": {0}})
    elections.on_image(after, changes)
    assert elections.count == 1
    current.publish(after, changes)
    elections.on_image(image(2, RECOVERING, ["v", "w", "x"]), Changes(topics={"x": {0}}))
    assert elections.count == 1, "a new view does not count as an election"
