"""AlterReplicaLogDirs on a node with one directory."""

from __future__ import annotations

import os

import pytest
from rooms import Rooms

from moldau.base.errors import ErrorCode
from moldau.server.handlers.alter_replica_log_dirs import AlterReplicaLogDirs
from moldau.server.router import Caller
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

HERE = os.path.abspath("data")


@pytest.mark.parametrize(
    ("path", "topic", "index", "code"),
    [
        (HERE, "a", 1, ErrorCode.NONE),
        (HERE, "a", 2, ErrorCode.REPLICA_NOT_AVAILABLE),
        (HERE, "b", 0, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("/elsewhere", "a", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("", "a", 0, ErrorCode.LOG_DIR_NOT_FOUND),
    ],
)
def test_a_replica_is_where_it_is(path: str, topic: str, index: int, code: ErrorCode) -> None:
    rooms = Rooms().start()
    rooms.create_topic("a", 2)
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(topic, [index])])])
    response = AlterReplicaLogDirs(rooms.partitions, HERE).answer(request, Caller("PLAINTEXT", "h:1", None, 2))
    assert [(each.topic_name, each.partitions[0].error_code) for each in response.results] == [(topic, code)]


def test_nothing_asked_is_nothing_answered() -> None:
    handler = AlterReplicaLogDirs(Rooms().start().partitions, HERE)
    asks = [AlterReplicaLogDirsRequest(), AlterReplicaLogDirsRequest([AlterReplicaLogDir(HERE, [])])]
    assert [handler.answer(request, Caller("PLAINTEXT", "h:1", None, 1)).results for request in asks] == [[], []]
