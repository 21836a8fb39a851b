"""Which broker epoch a node names when it registers again: that of its last run only if its logs are complete."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.log import layout
from moldau.runtime.broker import boot_marker
from moldau.testing.files import MemoryFiles

MARKER = f"data/{boot_marker.FILE}"
DIRECTORY = "data/orders-0"
LOG = f"{DIRECTORY}/{layout.offset_name(0)}{layout.LOG}"
METADATA_DIRECTORY = "data/__cluster_metadata-0"


def running_node() -> InMemoryNode:
    node = InMemoryNode(boot_id="boot-1").start()
    node.create_topic("orders")
    node.append("orders")
    node.append("orders")
    return node


def epoch_of(node: InMemoryNode) -> int:
    assert node.assembly.broker_side is not None
    return node.assembly.broker_side.lifecycle.epoch


def claimed_epoch(files: MemoryFiles) -> int:
    """Start a node on this disk and return the previous broker epoch in its registration."""
    node = InMemoryNode(files, seed=3, boot_id="boot-1").start()
    assert node.assembly.broker_side is not None
    return node.assembly.broker_side.lifecycle._registration.previous_broker_epoch


def killed() -> tuple[MemoryFiles, int]:
    node = running_node()
    return node.files.restart(), epoch_of(node)


def stopped() -> tuple[MemoryFiles, int]:
    node = running_node()
    node.assembly.stop()
    node.assembly.close()
    return node.files.restart(), epoch_of(node)


def cut_the_log(files: MemoryFiles) -> None:
    files.open(LOG).truncate(files.size(LOG) - 1)


def remove_the_directory(files: MemoryFiles) -> None:
    for name in files.names(DIRECTORY):
        files.unlink(f"{DIRECTORY}/{name}")
    files.rmdir(DIRECTORY)


def remove_the_topic_id(files: MemoryFiles) -> None:
    files.unlink(f"{DIRECTORY}/{layout.PARTITION_METADATA}")


STOPS = [killed, stopped]
DAMAGES = [cut_the_log, remove_the_directory, remove_the_topic_id]


@pytest.mark.parametrize("stop", STOPS)
def test_a_node_with_complete_logs_names_its_last_epoch(stop: Callable[[], tuple[MemoryFiles, int]]) -> None:
    files, epoch = stop()
    assert claimed_epoch(files) == epoch >= 0


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_node_with_a_damaged_log_names_no_epoch(
    stop: Callable[[], tuple[MemoryFiles, int]],
    damage: Callable[[MemoryFiles], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, _ = stop()
    damage(files)
    with caplog.at_level(logging.WARNING):
        assert claimed_epoch(files) == -1
    (line,) = [line for line in caplog.messages if "leaves every in-sync set" in line]
    assert "orders-0" in line


def test_a_node_that_is_killed_again_before_it_has_registered_names_no_epoch() -> None:
    """Recovery has truncated the log: the second start finds nothing wrong with it."""
    files, _ = killed()
    cut_the_log(files)
    InMemoryNode(files, seed=2, boot_id="boot-1")
    assert not files.exists(MARKER)
    assert claimed_epoch(files.restart()) == -1


def test_a_node_without_its_metadata_log_names_no_epoch() -> None:
    files, _ = killed()
    for name in files.names(METADATA_DIRECTORY):
        files.unlink(f"{METADATA_DIRECTORY}/{name}")
    files.rmdir(METADATA_DIRECTORY)
    assert claimed_epoch(files) == -1


def test_a_damaged_node_that_has_registered_names_its_new_epoch() -> None:
    files, _ = killed()
    cut_the_log(files)
    node = InMemoryNode(files, seed=2, boot_id="boot-1").start()
    assert claimed_epoch(node.files.restart()) == epoch_of(node)
