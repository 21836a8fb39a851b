"""Runs every script in the folders beside this file; each folder has an actor that executes its commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers_actor import BrokersActor
from classic_groups_actor import ClassicGroupsActor
from consumer_groups_actor import ConsumerGroupsActor
from controller_actor import ControllerActor
from group_migration_actor import GroupMigrationActor
from mqtt_actor import MqttActor
from quorum_actor import QuorumActor
from replication_actor import ReplicationActor
from script import parse, run_script
from sessions_actor import SessionsActor
from share_groups_actor import ShareGroupsActor
from share_states_actor import ShareStatesActor
from transactional_offsets_actor import TransactionalOffsetsActor
from transactions_actor import TransactionsActor

HERE = Path(__file__).parent
ACTORS: dict[
    str,
    type[
        SessionsActor
        | ControllerActor
        | ClassicGroupsActor
        | ConsumerGroupsActor
        | GroupMigrationActor
        | ShareGroupsActor
        | QuorumActor
        | MqttActor
        | TransactionsActor
        | ShareStatesActor
    ],
] = {
    "fetch_sessions": SessionsActor,
    "controller": ControllerActor,
    "brokers": BrokersActor,
    "classic_groups": ClassicGroupsActor,
    "consumer_groups": ConsumerGroupsActor,
    "group_migration": GroupMigrationActor,
    "share_groups": ShareGroupsActor,
    "transactional_offsets": TransactionalOffsetsActor,
    "replication": ReplicationActor,
    "quorum": QuorumActor,
    "mqtt": MqttActor,
    "transactions": TransactionsActor,
    "share_states": ShareStatesActor,
}
SCRIPTS = sorted(HERE.glob("*/*.txt"))
WITH_REGEXES = {"consumer_groups/regex_subscriptions", "consumer_groups/takeover", "group_migration/static"}


def cases() -> Iterator[object]:
    for path in SCRIPTS:
        name = f"{path.parent.name}/{path.stem}"
        yield pytest.param(path, id=name, marks=[pytest.mark.needs_re2] if name in WITH_REGEXES else [])


@pytest.mark.parametrize("path", list(cases()))
def test_script(path: Path) -> None:
    run_script(path, ACTORS[path.parent.name]().answer)


def test_every_folder_has_an_actor() -> None:
    assert {path.parent.name for path in SCRIPTS} == ACTORS.keys()


def test_a_wrong_answer_fails_and_rewriting_corrects_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOLDAU_REWRITE", raising=False)
    path = tmp_path / "a.txt"
    path.write_text("# one\n\n# two\nsay hello loud=1\n----\nwrong\n\nsay\n----\n\n# end")
    with pytest.raises(AssertionError, match=r"a\.txt:4: say hello loud=1"):
        run_script(path, lambda command: " ".join([*command.words, *command.values]))
    monkeypatch.setenv("MOLDAU_REWRITE", "1")
    run_script(path, lambda command: " ".join([*command.words, *command.values]))
    assert path.read_text() == "# one\n\n# two\nsay hello loud=1\n----\nhello loud\n\nsay\n----\n\n# end"
    monkeypatch.delenv("MOLDAU_REWRITE")
    run_script(path, lambda command: " ".join([*command.words, *command.values]))


@pytest.mark.parametrize("text", ["say", "say\nmore\n----\n", "say\n\n----\n"])
def test_an_invalid_script_is_an_error(text: str) -> None:
    with pytest.raises(AssertionError, match="----"):
        parse(text)
