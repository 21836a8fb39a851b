"""Which partitions get their files in a thread, and the deletion of unused files."""

from __future__ import annotations

import errno
from dataclasses import replace

from harness.in_memory_node import NODE_ID, InMemoryNode, batch

from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.persistent_map import PersistentMap
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.replica.new_logs import NewLogs
from moldau.runtime.broker.chunked_layout import AT_ONCE_MAX
from moldau.testing.ports import at_once
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

MANY = AT_ONCE_MAX + 36
"""Partitions whose files are created in a thread, in several turns."""
CANDIDATES = [("new", 0), ("new", 1), ("old", 0), ("view", 0), ("unknown", 0)]


def image_of(node: InMemoryNode) -> MetadataImage:
    """Three topics: a new one, whose second partition is on another broker; one that has files; a view."""
    old = node.current.image.topics["old"]
    here, elsewhere = old.partitions[0], replace(old.partitions[0], replicas=(NODE_ID + 1,), isr=(NODE_ID + 1,))
    topics = [TopicImage("new", b"n" * 16, (here, elsewhere)), old, TopicImage("view", b"v" * 16, (here,))]
    return replace(
        node.current.image,
        topics=PersistentMap({topic.name: topic for topic in topics}),
        views=PersistentMap({"view": old.id}),
    )


def node_and_new_logs() -> tuple[InMemoryNode, NewLogs]:
    node = InMemoryNode().start()
    node.create_topic("old")
    reports = node.faults.append
    return node, NewLogs(NODE_ID, node.store, at_once, node.clock, node.rng, lambda _, fault: reports(fault))


def directories(node: InMemoryNode) -> set[str]:
    return {name for name in node.files.names("data") if name.startswith(("new", "view", "unknown"))}


def test_only_new_partitions_of_this_node_get_files() -> None:
    node, new_logs = node_and_new_logs()
    image = image_of(node)
    assert [each for each in CANDIDATES if new_logs.needs_files(image, *each)] == [("new", 0)]
    assert new_logs.prepare(image, [("new", 0)]).done
    assert directories(node) == {"new-0"}


def test_a_view_whose_source_was_deleted_has_no_partitions() -> None:
    node, new_logs = node_and_new_logs()
    image = image_of(node)
    topics = {**dict(image.topics.items()), "view": TopicImage("view", b"v" * 16, ())}
    image = replace(image, topics=PersistentMap(topics))
    assert not new_logs.needs_files(image, "view", 0)


def test_files_of_a_deleted_topic_are_deleted() -> None:
    node, new_logs = node_and_new_logs()
    new_logs.prepare(image_of(node), [("new", 0)])
    new_logs.discard_unused()
    assert "new-0" not in directories(node)
    assert not node.faults


def test_old_checkpoints_that_cannot_be_deleted_are_reported() -> None:
    node, new_logs = node_and_new_logs()
    # As if a checkpoint of an earlier topic of this name were about to be written: the checkpoints must be deleted.
    node.store._collected.add(TopicPartition("new", 0))
    fault = StorageFault("data", OSError(errno.EROFS, "read-only"))

    def refuse() -> None:
        raise fault

    node.store._forget_checkpoints = refuse  # type: ignore[method-assign]
    assert new_logs.prepare(image_of(node), [("new", 0)]).done
    assert node.faults == [fault]
    assert not directories(node)


def test_a_topic_of_many_partitions_is_laid_out_and_used() -> None:
    node = InMemoryNode().start()
    node.create_topic("big", MANY)
    assert len(node.partitions.all()) == MANY
    assert node.store.topic_id(TopicPartition("big", MANY - 1)) == node.current.image.topics["big"].id
    node.partition("big", MANY - 1).log.append(batch(3), leader_epoch=0, now_ms=node.clock.now_ms())
    again = node.crash()
    assert len(again.partitions.all()) == MANY


def test_no_files_are_left_of_a_topic_that_is_deleted_while_it_is_laid_out() -> None:
    node = InMemoryNode().start()
    node.committed(node.ask_controller(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("big", MANY, 1)])))
    assert len(node.partitions.all()) < MANY
    node.delete_topic("big")
    node.settle()
    assert not node.partitions.all()
    assert not [name for name in node.files.names("data") if name.startswith("big") and not name.endswith("-delete")]
