"""AlterReplicaLogDirs on a node with one directory."""

from __future__ import annotations

import os
from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode
from moldau.server.handler import Caller
from moldau.server.handlers.alter_replica_log_dirs import AlterReplicaLogDirs
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

LOG_DIR = os.path.abspath("data")


@pytest.mark.parametrize(
    ("path", "topic", "index", "code"),
    [
        (LOG_DIR, "a", 1, ErrorCode.NONE),
        (LOG_DIR, "a", 2, ErrorCode.REPLICA_NOT_AVAILABLE),
        (LOG_DIR, "b", 0, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("/elsewhere", "a", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("", "a", 0, ErrorCode.LOG_DIR_NOT_FOUND),
    ],
)
def test_only_the_directory_that_holds_the_replica_is_accepted(
    path: str, topic: str, index: int, code: ErrorCode
) -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 2)
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [index])])])
    handler = AlterReplicaLogDirs(node.partitions, LOG_DIR, node.timers)
    response: Any = handler.answer(request, Caller("PLAINTEXT", "h:1", None, 2))
    assert [(each.topic_name, each.partitions[0].error_code) for each in response.results] == [(topic, code)]


def test_an_empty_request_has_an_empty_response() -> None:
    node = InMemoryNode().start()
    handler = AlterReplicaLogDirs(node.partitions, LOG_DIR, node.timers)
    requests = [AlterReplicaLogDirsRequest(), AlterReplicaLogDirsRequest([AlterReplicaLogDir(LOG_DIR, [])])]
    assert [handler.answer(request, Caller("PLAINTEXT", "h:1", None, 1)).results for request in requests] == [[], []]
