"""A broker whose disk ignores case, as macOS' does: it logs that once, and refuses two topics that would share a
directory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S

from moldau.log.files import DiskFiles
from moldau.node import node
from moldau.testing import broker

pytestmark = pytest.mark.moldau_only


class CaselessLock(DiskFiles):
    """Files whose lock file exists under both spellings, by which a broker detects such a disk."""

    def exists(self, path: str) -> bool:
        parent, name = os.path.split(path)
        return super().exists(os.path.join(parent, name.lower())) if name == ".LOCK" else super().exists(path)


def create_topic(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)


def test_a_topic_that_differs_only_in_case_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node, "DiskFiles", CaselessLock)
    with caplog.at_level(logging.WARNING, "moldau"), broker(tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        create_topic(admin, "Orders")
        with pytest.raises(KafkaException, match="existing topic: Orders; the controller's file system"):
            create_topic(admin, "orders")
        create_topic(admin, "others")
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "ignores case" in line] == [
        f"{tmp_path}: this file system ignores case; a topic whose name differs from another's only in case is refused"
    ]
