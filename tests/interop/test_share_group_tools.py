"""`moldau group` and kafka-share-groups with the share groups of a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Tools
from share_members import FROM_THE_START, ShareMember, configure, require_share_groups, unused_group

from moldau.cli.main import main

CreateTopic = Callable[..., str]
Run = Callable[..., Result]
RECORDS = 10


@pytest.fixture(scope="module", autouse=True)
def needs_share_groups(bootstrap: str) -> None:
    require_share_groups(bootstrap)


@pytest.fixture(scope="module")
def run(bootstrap: str) -> Run:
    """Return a function that runs the command line in this process, with the broker's address in the environment."""

    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, list(words))
        assert result.exit_code == status, result.stderr
        return result

    return invoke


@pytest.fixture(scope="module")
def filled(bootstrap: str, create_topic: CreateTopic) -> str:
    """A topic of two partitions, ten records in the first and none in the second; no test writes to it."""
    name = create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture
def group(admin: AdminClient, run: Run) -> Iterator[str]:
    """The name of an unused group, which is deleted at the end."""
    name = unused_group(admin)
    yield name
    if name in run("group", "list").stdout:
        run("group", "delete", name, "--yes")


def described(run: Run, group: str) -> dict[str, Any]:
    (found,) = json.loads(run("group", "describe", group, "--format", "json").stdout)
    return dict(found)


def listed(run: Run, group: str) -> dict[str, Any]:
    return next(
        dict(row) for row in json.loads(run("group", "list", "--format", "json").stdout) if row["group"] == group
    )


def read(bootstrap: str, group: str, topic: str, count: int = RECORDS) -> list[int]:
    """Return the offsets of the next records, and accept them."""
    with ShareMember(bootstrap, group, [topic]) as member:
        return [delivery.offset for delivery in member.take(count)]


class TestMoldauGroup:
    def test_members_and_their_partitions(self, run: Run, bootstrap: str, group: str, filled: str) -> None:
        with ShareMember(bootstrap, group, [filled], client_id="a-worker") as member:
            member.take(RECORDS)
            found = described(run, group)
            assert (found["state"], found["type"], found["protocol"]) == ("Stable", "Share", "share")
            (row,) = found["members"]
            assert (row["client"], row["partitions"]) == ("a-worker", {filled: [0, 1]})
            assert [(row["partition"], row["members"]) for row in found["partitions"]] == [(0, 1), (1, 1)]
            row = listed(run, group)
            assert (row["state"], row["type"], row["members"], row["topics"]) == ("Stable", "Share", 1, 1)

    def test_lag_counts_what_is_not_acknowledged(self, run: Run, bootstrap: str, group: str, filled: str) -> None:
        run_reset(run, group, bootstrap, filled)
        first = described(run, group)["partitions"][0]
        assert (first["start"], first["end"], first["lag"]) == (0, RECORDS, RECORDS)
        assert first["lag_seconds"] > 0
        with ShareMember(bootstrap, group, [filled]) as member:
            held = member.receive(lambda found: len(found) == RECORDS)
            member.accept(held[3:])
            wait_until(lambda: listed(run, group)["lag"] == 3, "three are not acknowledged", every_s=0.2)
            member.accept()
            wait_until(lambda: listed(run, group)["lag"] == 0, "all are acknowledged", every_s=0.2)
        first = described(run, group)["partitions"][0]
        assert (first["lag"], first["lag_seconds"]) == (0, 0)

    def test_a_reset_delivers_again_from_there_on(self, run: Run, bootstrap: str, group: str, filled: str) -> None:
        assert sorted(read(bootstrap, group, filled)) == list(range(RECORDS))
        plan = run("group", "reset", group, "--to", "6", "--topic", f"{filled}:0")
        assert f"{group}: nothing is changed yet; use --execute" in plan.stdout
        assert described(run, group)["partitions"][0]["lag"] == 0
        run("group", "reset", group, "--to", "6", "--topic", f"{filled}:0", "--execute")
        first = described(run, group)["partitions"][0]
        assert (first["start"], first["lag"]) == (6, 4)
        assert sorted(read(bootstrap, group, filled, 4)) == [6, 7, 8, 9]

    def test_a_group_with_members_is_neither_reset_nor_deleted(
        self, run: Run, bootstrap: str, group: str, filled: str
    ) -> None:
        with ShareMember(bootstrap, group, [filled], client_id="a-worker") as member:
            member.take(RECORDS)
            for words in (["reset", group, "--to", "earliest", "--execute"], ["delete", group, "--yes"]):
                refused = run("group", *words, status=1).stderr
                assert f"group {group} has 1 active member: " in refused
                assert "(a-worker at " in refused
        run("group", "delete", group, "--yes")
        assert f"no group {group}" in run("group", "describe", group, status=1).stderr

    def test_a_consumer_is_no_member_of_a_share_group(self, run: Run, bootstrap: str, group: str, filled: str) -> None:
        read(bootstrap, group, filled)
        refused = run("consume", filled, "-g", group, "-n", "1", status=1).stderr
        assert f"{group} is a share group, not a consumer group" in refused


def run_reset(run: Run, group: str, bootstrap: str, topic: str) -> None:
    """Let the group begin, and return to the start."""
    read(bootstrap, group, topic)
    run("group", "reset", group, "--to", "earliest", "--topic", topic, "--execute")


class TestKafkaShareGroups:
    def test_offsets_are_set_before_the_group_exists_and_deleted(
        self, tools: Tools, bootstrap: str, group: str, filled: str
    ) -> None:
        words = ["--reset-offsets", "--group", group, "--topic", f"{filled}:0", "--to-latest"]
        assert tools("share_groups", *words, "--dry-run").lines[-1].split() == [group, filled, "0", str(RECORDS)]
        assert group not in tools("share_groups", "--list").lines
        assert tools("share_groups", *words, "--execute").lines[-1].split() == [group, filled, "0", str(RECORDS)]
        assert group in tools("share_groups", "--list").lines
        shown = tools("share_groups", "--describe", "--group", group).lines
        assert shown[-1].split() == [group, filled, "0", str(RECORDS), "0"]
        deleted = tools("share_groups", "--delete-offsets", "--group", group, "--topic", filled)
        assert deleted.lines[-1].split() == [filled, "Successful"]
        shown = tools("share_groups", "--describe", "--group", group).lines
        assert shown == ["", f"Share group '{group}' has no offset information."]
        assert sorted(read(bootstrap, group, filled)) == list(range(RECORDS))

    def test_a_group_is_deleted_when_it_has_no_members(
        self, tools: Tools, bootstrap: str, group: str, filled: str
    ) -> None:
        with ShareMember(bootstrap, group, [filled]) as member:
            member.take(RECORDS)
            refused = tools("share_groups", "--delete", "--group", group)
            assert f"Share group '{group}' is not EMPTY." in refused.out
            assert group in tools("share_groups", "--list", "--state", "stable").out
            words = ["--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute"]
            refused = tools("share_groups", *words)
            assert (refused.status, refused.err) == (1, f"Share group '{group}' is not empty.\n")
        deleted = tools("share_groups", "--delete", "--group", group)
        assert deleted.out == f"Deletion of requested share groups ('{group}') was successful.\n"
        assert group not in tools("share_groups", "--list").lines
        assert group not in tools("groups", "--list", "--share").out

    def test_a_group_of_consumers_is_no_share_group(self, tools: Tools, run: Run, group: str, filled: str) -> None:
        run("group", "reset", group, "--to", "earliest", "--topic", filled, "--new", "--execute")
        assert group not in tools("share_groups", "--list").lines
        shown = tools("share_groups", "--describe", "--group", group).out
        assert "org.apache.kafka.common.errors.GroupIdNotFoundException" in shown
        assert f"Group '{group}' is not a share group." in tools("share_groups", "--delete", "--group", group).out


def test_the_configs_of_a_share_group_are_shown(tools: Tools, admin: AdminClient, group: str) -> None:
    configure(admin, group, FROM_THE_START | {"share.record.lock.duration.ms": "20000"})
    shown = tools("configs", "--describe", "--entity-type", "groups", "--entity-name", group).out
    assert "share.auto.offset.reset=earliest" in shown
    assert "share.record.lock.duration.ms=20000" in shown
