"""`moldau view`, and `moldau consume` with a condition and fields."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S

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


def test_a_view_is_created_read_described_and_deleted(run: Run, orders: str, topic: Callable[[], str]) -> None:
    view = topic()
    words = ("view", "create", view, "--from", orders)
    assert run(*words, "-w", "amount > 400", "-s", "id, amount").stdout == f"created {view}, a view of {orders}\n"
    assert run("consume", view, "-e").stdout == '{"id":9,"amount":450}\n'
    rows = {row["name"]: row for row in json.loads(run("view", "list", "--format", "json").stdout)}
    assert rows[view] == {
        "name": view, "from": orders, "where": "amount > 400", "select": "id, amount", "state": "ok",
        "made_by": None,
    }  # fmt: skip
    (described,) = json.loads(run("view", "describe", view, "--format", "json").stdout)
    assert described["configs"]["moldau.view.from"] == orders
    (counts,) = described["brokers"]
    assert (counts["seen"], counts["shown"], counts["unreadable"], counts["failures"]) == ("11", "1", "1", "0")
    assert run("view", "delete", orders, status=1).stderr.startswith(f"moldau: {orders} is no view but a topic")
    assert run("view", "delete", view).stdout == f"deleted {view}\n"
    assert run("consume", orders, "-e").stdout.count("\n") == 11


def test_views_created_by_a_program_are_listed_and_deleted_together(
    run: Run, orders: str, topic: Callable[[], str], admin: AdminClient
) -> None:
    mine, *made = (topic() for _ in range(3))
    run("view", "create", mine, "--from", orders)
    for name, origin in zip(made, ("spark", "spark for ann"), strict=True):
        configs = {"moldau.view.from": orders, "moldau.view.made.by": origin}
        admin.create_topics([NewTopic(name, -1, -1, config=configs)])[name].result(PATIENCE_S)
    rows = {row["name"]: row["made_by"] for row in json.loads(run("view", "list", "--format", "json").stdout)}
    assert [rows[name] for name in (mine, *made)] == [None, "spark", "spark for ann"]
    deleted = run("view", "delete", "--made-by", "spark").stdout
    assert [name for name in (mine, *made) if f"deleted {name}\n" in deleted] == made
    assert run("view", "delete", "--made-by", "spark").stdout == "there are no views that spark made\n"
    for words in ((), (mine, "--made-by", "spark")):
        assert "say which: NAME..., or --made-by PROGRAM" in run("view", "delete", *words, status=1).stderr
    assert run("view", "delete", mine).stdout == f"deleted {mine}\n"


def test_a_deleted_source_is_named_before_and_after(
    run: Run, orders: str, topic: Callable[[], str], bootstrap: str
) -> None:
    first, second = sorted((topic(), topic()))
    for view in (first, second):
        run("view", "create", view, "--from", orders)
    producing = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, ["produce", first], input="{}\n")
    assert (producing.exit_code, producing.stderr.splitlines()[-1]) == (
        1, f"moldau: {first} is a view of {orders} and cannot be written; produce to {orders}",
    )  # fmt: skip
    deleted = run("topic", "delete", orders, "--yes").stdout
    assert deleted == f"deleted {orders}; views of it: {first}, {second}: they show nothing now\n"
    for words in ((first, "-o", "start", "-e"), (first, "-g", f"{first}-readers", "-e")):
        assert run("consume", *words, status=1).stderr == (
            f"moldau: {first} is a view of {orders}, which was deleted: it shows nothing;"
            f" `moldau view delete {first}` deletes it\n"
        )
    rows = {row["name"]: row["state"] for row in json.loads(run("view", "list", "--format", "json").stdout)}
    assert (rows[first], rows[second]) == ("source deleted", "source deleted")
    assert run("topic", "delete", first).stdout == f"deleted {first}\n"
    assert run("view", "delete", second).stdout == f"deleted {second}\n"


def test_records_indexed_by_another_view_are_skipped(
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


def test_an_invalid_view_is_reported_in_one_line(run: Run, orders: str, topic: Callable[[], str]) -> None:
    wrong = run("view", "create", topic(), "--from", orders, "--where", "amount >", status=1).stderr
    assert wrong.count("\n") == 1
    assert "moldau.view.where: a field, a number or a text is missing at the end" in wrong


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_view_behind(run: Run, bootstrap: str, orders: str, number: signal.Signals) -> None:
    """As by `timeout 60 moldau consume …`, or when the terminal is closed."""
    words = ("-m", "moldau", "consume", orders, "--where", "amount >= 450", "-b", bootstrap)
    earlier = signal.signal(number, signal.SIG_DFL)  # nohup's children ignore SIGHUP
    reading = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
    signal.signal(number, earlier)
    with reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b'{"id": 9, "amount": 450}\n'
        reading.send_signal(number)
        assert reading.wait(PATIENCE_S) == 128 + number
    assert "moldau-passing-view" not in run("topic", "list").stdout


def test_views_that_a_killed_consumer_left_are_found_and_deleted(run: Run, bootstrap: str, orders: str) -> None:
    words = ("-m", "moldau", "consume", orders, "--where", "amount >= 450", "-b", bootstrap)
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b'{"id": 9, "amount": 450}\n'
        reading.kill()
    left = [each for each in json.loads(run("view", "list", "--format", "json").stdout) if each["from"] == orders]
    assert [each["made_by"] for each in left] == ["moldau-consume"]
    assert run("view", "delete", "--made-by", "moldau-consume", "--yes").stdout == f"deleted {left[0]['name']}\n"


def test_consume_with_a_condition_and_fields_leaves_no_view_behind(run: Run, orders: str) -> None:
    shown = run("consume", orders, "-e", "--where", "amount >= 400", "--fields", "id", "-f", "%o %v\\n").stdout
    assert shown == '8 {"id":8}\n9 {"id":9}\n'
    assert "moldau-passing-view" not in run("topic", "list").stdout
    refused = run("consume", orders, "-g", "g", "--where", "amount > 1", status=1).stderr
    assert "`moldau view create` makes one" in refused
