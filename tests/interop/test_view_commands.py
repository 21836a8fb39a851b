"""`moldau view`, and `moldau consume` with a condition and fields."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from patience import PATIENCE_S

from moldau.cli.main import main

pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only
Run = Callable[..., Result]
CreateTopic = Callable[..., str]


@pytest.fixture
def run(bootstrap: str) -> Run:
    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, list(words))
        assert result.exit_code == status, result.stderr
        return result

    return invoke


@pytest.fixture
def orders(bootstrap: str, create_topic: CreateTopic) -> str:
    name = create_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(name, json.dumps({"id": number, "amount": 50 * number}).encode())
    producer.produce(name, b"no json")
    producer.flush(PATIENCE_S)
    return name


def test_a_view_from_its_creation_to_its_deletion(run: Run, orders: str, topic: Callable[[], str]) -> None:
    view = topic()
    words = ("view", "create", view, "--from", orders)
    assert run(*words, "-w", "amount > 400", "-s", "id, amount").stdout == f"created {view}, a view of {orders}\n"
    assert run("consume", view, "-e").stdout == '{"id":9,"amount":450}\n'
    rows = {row["name"]: row for row in json.loads(run("view", "list", "--format", "json").stdout)}
    assert rows[view] == {
        "name": view, "from": orders, "where": "amount > 400", "select": "id, amount", "state": "ok",
    }  # fmt: skip
    (described,) = json.loads(run("view", "describe", view, "--format", "json").stdout)
    assert described["configs"]["moldau.view.from"] == orders
    (counts,) = described["brokers"]
    assert (counts["seen"], counts["shown"], counts["unreadable"], counts["failures"]) == ("11", "1", "1", "0")
    assert run("view", "delete", orders, status=1).stderr.startswith(f"moldau: {orders} is no view but a topic")
    assert run("view", "delete", view).stdout == f"deleted {view}\n"
    assert run("consume", orders, "-e").stdout.count("\n") == 11


def test_what_another_view_has_learnt_is_skipped(
    run: Run, orders: str, topic: Callable[[], str], bootstrap: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(300):  # fewer bytes are not worth an index
        producer.produce(orders, json.dumps({"amount": 1, "text": "x" * 1000}).encode())
    producer.flush(PATIENCE_S)
    for where, seen, skipped in (("amount > 400", "311", "0"), ("amount > 100000", "0", "1")):
        view = topic()
        run("view", "create", view, "--from", orders, "-w", where)
        run("consume", view, "-e")
        (described,) = json.loads(run("view", "describe", view, "--format", "json").stdout)
        (counts,) = described["brokers"]
        assert (counts["seen"], counts["skipped"]) == (seen, skipped)


def test_a_wrong_view_is_one_line(run: Run, orders: str, topic: Callable[[], str]) -> None:
    wrong = run("view", "create", topic(), "--from", orders, "--where", "amount >", status=1).stderr
    assert wrong.count("\n") == 1
    assert "moldau.view.where: a field, a number or a text is missing at the end" in wrong


def test_consume_with_a_condition_and_fields_leaves_no_view_behind(run: Run, orders: str) -> None:
    shown = run("consume", orders, "-e", "--where", "amount >= 400", "--fields", "id", "-f", "%o %v\\n").stdout
    assert shown == '8 {"id":8}\n9 {"id":9}\n'
    assert "moldau-passing-view" not in run("topic", "list").stdout
    refused = run("consume", orders, "-g", "g", "--where", "amount > 1", status=1).stderr
    assert "`moldau view create` makes one" in refused
