"""The console's responses compared with the output of the command-line tools, against a running broker."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from console_server import Page, console, faults, name_in_path
from harness.patience import PATIENCE_S, wait_until

from moldau.cli.main import main

CreateTopic = Callable[..., str]


@pytest.fixture(scope="module")
def page(bootstrap: str) -> Iterator[Page]:
    with console(bootstrap) as begun:
        yield begun


@pytest.fixture(scope="module")
def tool(bootstrap: str) -> Callable[..., Any]:
    """Return a function that runs `moldau ... --format json` and returns the JSON."""

    def run(*words: str) -> Any:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, [*words, "--format", "json"])
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return run


@pytest.fixture(scope="module")
def orders(bootstrap: str, create_topic: CreateTopic) -> str:
    """A topic of three partitions with forty records."""
    name = create_topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        value = json.dumps({"amount": number, "city": "Praha" if number % 2 else "Brno"})
        producer.produce(
            name, value, f"key-{number}", number % 3, timestamp=1_700_000_000_000 + number, headers={"n": str(number)}
        )
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture(scope="module")
def billing(bootstrap: str, orders: str) -> str:
    """A group without members that has read a part of the orders. Its name has a slash."""
    name = f"billing/{uuid.uuid4().hex[:8]}"
    config = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False}
    with closing(Consumer(config)) as consumer:
        from confluent_kafka import TopicPartition

        consumer.commit(offsets=[TopicPartition(orders, 0, 4), TopicPartition(orders, 1, 13)], asynchronous=False)
    return name


def test_the_topic_list_equals_moldau_topic_list(
    page: Page, tool: Callable[..., Any], orders: str, billing: str
) -> None:
    wait_until(
        lambda: page.await_rows("/api/topics", "name", orders)[orders]["records"] == 40,
        "all records counted",
        every_s=0.1,
    )
    wait_until(lambda: page.await_rows("/api/topics", "name", orders)[orders]["lag"], "the lag is known", every_s=0.1)
    printed = {row["name"]: row for row in tool("topic", "list")}[orders]
    row = page.await_rows("/api/topics", "name", orders)[orders]
    assert (row["partitions"], row["replicas"], row["records"]) == (
        printed["partitions"],
        printed["replicas"],
        printed["offsets"],
    )
    assert row["readers"][0]["group"] == billing
    assert row["lag"] == row["readers"][0]["lag"] == 10
    wait_until(
        lambda: page.await_rows("/api/topics", "name", orders)[orders]["size_bytes"] == printed["size"],
        "the size",
        every_s=0.2,
    )
    internal = {each["name"] for each in page.get("/api/topics?internal=true&size=500").data["rows"]}
    assert internal >= {each["name"] for each in tool("topic", "list", "--internal")}


def test_a_topic_equals_moldau_topic_describe(page: Page, tool: Callable[..., Any], orders: str) -> None:
    assert page.patch(f"/api/topics/{orders}", {"set": {"retention.ms": "86400000"}}).data["messages"] == [
        f"{orders}: retention.ms=86400000"
    ]
    (printed,) = tool("topic", "describe", orders)
    data = page.get(f"/api/topics/{orders}").data
    shown = [
        {key: row[key] for key in ("partition", "leader", "replicas", "isr", "start", "end")}
        for row in data["partition_rows"]
    ]
    assert shown == [{key: row[key] for key in shown[0]} for row in printed["partitions"]]
    set_here = {each["name"]: each["value"] for each in data["configs"] if each["source"] == "topic"}
    assert set_here == printed["configs"] == {"retention.ms": "86400000"}
    page.patch(f"/api/topics/{orders}", {"unset": ["retention.ms"]})
    assert page.get(f"/api/topics/{orders}/partitions?sort=-partition&size=2").data["rows"][0]["partition"] == 2


@pytest.mark.moldau_only
def test_a_view_equals_moldau_view_list(
    page: Page, bootstrap: str, tool: Callable[..., Any], topic: Callable[[], str], create_topic: CreateTopic
) -> None:
    pytest.importorskip("duckdb")
    source, view = create_topic(1), topic()
    words = ["view", "create", view, "--from", source, "--where", "amount > 100", "--headers", "drop"]
    created = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, words)
    assert created.exit_code == 0, created.stderr

    def shown() -> dict[str, Any] | None:
        rows = page.get(f"/api/topics?filter={view}").data["rows"]
        return rows[0]["view"] if rows else None

    wait_until(lambda: shown() is not None, "the console shows the view")
    (listed,) = (each for each in tool("view", "list") if each["name"] == view)
    said = shown() or {}
    assert {name: said[name] for name in ("from", "where", "select", "made_by")} == {
        name: listed[name] for name in ("from", "where", "select", "made_by")
    }
    described = page.get(f"/api/topics/{view}").data
    assert (described["view"], described["size_bytes"], described["views"]) == (said, None, [])
    assert {each["name"].removeprefix("moldau.view.").partition(".")[0] for each in described["configs"]} == {
        "from", "where", "headers", "source", "count", "last",
    }  # fmt: skip
    assert page.get(f"/api/topics/{source}").data["views"] == [view]
    refused = page.post(f"/api/topics/{view}/records", {"value": "{}"})
    assert (refused.status, refused.code) == (400, "POLICY_VIOLATION")
    assert f"produce to its source '{source}'" in refused.message
    assert page.delete(f"/api/topics/{source}", {"confirm": source}).status == 200
    wait_until(lambda: (shown() or {})["source_deleted"], "the console shows that the source is deleted")
    assert page.get(f"/api/topics/{view}/records").code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert page.delete(f"/api/topics/{view}", {"confirm": view}).status == 200
    again = page.delete(f"/api/topics/{view}", {"confirm": view})
    assert (again.status, again.code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_topics_are_created_grown_and_deleted(page: Page, tool: Callable[..., Any], topic: Callable[[], str]) -> None:
    name = topic()
    assert page.post("/api/topics", {"name": name, "validate_only": True, "partitions": 2}).status == 201
    assert page.get(f"/api/topics/{name}").status == 404
    made = page.post("/api/topics", {"name": name, "partitions": 2, "configs": {"cleanup.policy": "compact"}})
    assert (made.status, made.data) == (201, {"ok": True, "message": f"created {name}"})
    assert page.get(f"/api/topics/{name}").data["partitions"] == 2, "it is shown at once"
    again = page.post("/api/topics", {"name": name})
    assert (again.status, again.code) == (409, "TOPIC_ALREADY_EXISTS")
    assert page.patch(f"/api/topics/{name}", {"partitions": 4}).data["messages"] == [f"{name}: 4 partitions"]
    fewer = page.patch(f"/api/topics/{name}", {"partitions": 1})
    assert (fewer.status, fewer.code) == (400, "INVALID_PARTITIONS")
    wrong = page.patch(f"/api/topics/{name}", {"set": {"retention.ms": "soon"}})
    assert (wrong.status, wrong.code) == (400, "INVALID_CONFIG")
    assert name in wrong.message
    assert page.delete(f"/api/topics/{name}", {"confirm": "other"}).status == 400
    assert page.delete(f"/api/topics/{name}", {"confirm": name}).data["message"] == f"deleted {name}"
    gone = page.delete(f"/api/topics/{name}", {"confirm": name})
    assert (gone.status, gone.message) == (404, f"no topic {name}; the page Topics shows the topics there are")
    assert name not in {row["name"] for row in tool("topic", "list")}


def offsets(answer: dict[str, Any]) -> list[tuple[int, int]]:
    return [(record["partition"], record["offset"]) for record in answer["records"]]


def test_records_are_paged_newest_first(page: Page, orders: str) -> None:
    path = f"/api/topics/{orders}/records?limit=15"
    answers = [page.get(path).data]
    while answers[-1]["next"]:
        answers.append(page.get(f"{path}&cursor={answers[-1]['next']}").data)
    values = [record["value"]["json"]["amount"] for answer in answers for record in answer["records"]]
    assert values == list(reversed(range(40)))
    assert [len(answer["records"]) for answer in answers[:2]] == [15, 15]
    assert answers[-1]["stopped"] == "end"
    assert {answer["order"] for answer in answers} == {"newest"}


def test_records_are_read_oldest_first_from_any_position(page: Page, orders: str) -> None:
    path = f"/api/topics/{orders}/records"
    answers = [page.get(f"{path}?from=start&limit=17").data]
    while answers[-1]["next"]:
        answers.append(page.get(f"{path}?from=start&limit=17&cursor={answers[-1]['next']}").data)
    amounts = [record["value"]["json"]["amount"] for answer in answers for record in answer["records"]]
    assert amounts == list(range(40))
    assert offsets(page.get(f"{path}?from=12&partition=0").data) == [(0, 12), (0, 13)]
    at_time = page.get(f"{path}?from=@{1_700_000_000_000 + 37}&limit=5").data
    assert [record["value"]["json"]["amount"] for record in at_time["records"]] == [37, 38, 39]
    assert page.get(f"{path}?from=yesterday").status == 400
    assert page.get(f"{path}?partition=9").message == f"{orders} has no partition 9; it has 0 to 2"


@pytest.mark.parametrize(
    ("query", "amounts"),
    [
        ("where=value.amount%20%3E%2036", [39, 38, 37]),
        ("where=amount%20%3C%202", [1, 0]),
        ("key=%3Dkey-7", [7]),
        ("header=n:38", [38]),
        ("text=BRNO&limit=2", [38, 36]),
        ("where=city%20%3D%20%27Wien%27", []),
        ("where=header(%27n%27)%20in%20(%275%27,%20%276%27)%20and%20contains(value,%20%27city%27)&key=5", [5]),
    ],
)
def test_records_are_filtered(page: Page, orders: str, query: str, amounts: list[int]) -> None:
    answer = page.get(f"/api/topics/{orders}/records?{query}").data
    assert [record["value"]["json"]["amount"] for record in answer["records"]] == amounts


def test_one_record_and_its_neighbours(page: Page, orders: str) -> None:
    data = page.get(f"/api/topics/{orders}/records/1/3").data
    assert (data["record"]["key"]["text"], data["previous"], data["next"]) == ("key-10", 2, 4)
    assert data["record"]["headers"] == [{"name": "n", "value": {"kind": "text", "text": "10", "bytes": 2}}]
    missing = page.get(f"/api/topics/{orders}/records/1/4000")
    assert missing.status == 404
    assert "it has 0 to 12 now" in missing.message


def test_an_invalid_expression_is_refused_with_its_column(page: Page, orders: str) -> None:
    answer = page.get(f"/api/topics/{orders}/records?where=value.amount%20%3E")
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert page.post("/api/where", {"where": "key = and"}).data["error"]["column"] == 7
    assert page.post("/api/where", {"where": "key = '1'"}).data == {"ok": True, "hints": []}


def test_a_search_as_in_earlier_versions_is_refused_or_explained(page: Page, orders: str) -> None:
    old = page.get(f"/api/topics/{orders}/records?field=amount%3C2")
    assert (old.status, old.message[:36]) == (400, "field: write it as a condition, such")
    answer = page.get(f"/api/topics/{orders}/records?where=key%20%3D%3D%20%22anna%22").data
    assert answer["records"] == []
    assert answer["hints"] == ["\"anna\" is a field of the value; a text is written 'anna'"]


def test_records_are_exported_as_json_and_csv(page: Page, orders: str) -> None:
    lines = page.get(f"/api/topics/{orders}/export").body.splitlines()
    assert [json.loads(line)["value"]["json"]["amount"] for line in lines] == list(range(40))
    answer = page.get(f"/api/topics/{orders}/export?format=csv&where=value.amount%20%3C%202")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    assert [(row["key"], row["headers"]) for row in rows] == [("key-0", '{"n": "0"}'), ("key-1", '{"n": "1"}')]
    assert answer.headers["content-disposition"] == f'attachment; filename="{orders}.csv"'
    assert page.get("/api/topics/nowhere/export").status == 404


def test_records_are_produced_and_replayed(page: Page, create_topic: CreateTopic) -> None:
    source, target = create_topic(partitions=2), create_topic(partitions=3)
    path = f"/api/topics/{source}/records"
    first = page.post(path, {"key": "anna", "value": "=1+1", "headers": {"h": "x"}}).data
    assert first == {"ok": True, "partition": first["partition"], "offset": 0}
    assert page.post(path, {"key": "anna", "value": None}).data["partition"] == first["partition"]
    assert (
        page.post(path, {"value": "ff00", "value_encoding": "hex", "partition": 1, "acks": "0"}).data["offset"] is None
    )
    assert page.post(path, {"value": "zz", "value_encoding": "hex"}).status == 400
    assert page.post(path, {"value": "x", "partition": 7}).status == 400
    wait_until(lambda: len(page.get(path).data["records"]) == 3, "three records")
    assert page.get(f"{path}?tombstones=only").data["records"][0]["value"]["kind"] == "null"
    exported = page.get(f"/api/topics/{source}/export?format=csv&key=anna&tombstones=without").body.decode()
    assert "'=1+1" in exported, "a spreadsheet must not evaluate it as a formula"

    dry = page.post(f"/api/topics/{source}/replay", {"to": target, "key": "anna"}).data
    assert (dry["matching"], dry["copied"]) == (2, 0)
    done = page.post(f"/api/topics/{source}/replay", {"to": target, "key": "anna", "dry_run": False}).data
    assert (done["matching"], done["copied"], done["stopped"]) == (2, 2, "end")
    copies = page.get(f"/api/topics/{target}/records?from=start").data["records"]
    originals = page.get(f"{path}?from=start&key=anna").data["records"]
    same = ("key", "value", "headers", "timestamp_ms")
    assert [[each[name] for name in same] for each in copies] == [[each[name] for name in same] for each in originals]


def test_live_records_are_filtered(page: Page, create_topic: CreateTopic) -> None:
    name = create_topic()
    page.post(f"/api/topics/{name}/records", {"value": "before"})
    with page.stream(f"/api/live/records/{name}?text=wanted") as events:
        assert next(events)[0] == "idle"
        page.post(f"/api/topics/{name}/records", {"value": "other"})
        page.post(f"/api/topics/{name}/records", {"value": "wanted"})
        data = next(data for kind, data in events if kind == "records")
    assert [record["value"]["text"] for record in data["records"]] == ["wanted"]


def test_groups_equal_moldau_group_list_and_describe(
    page: Page, tool: Callable[..., Any], orders: str, billing: str
) -> None:
    printed = {each["group"]: each for each in tool("group", "list")}[billing]
    names = ("state", "type", "members", "topics", "lag")

    def is_as_printed() -> bool:
        row = page.await_rows("/api/groups?size=500", "group", billing)[billing]
        return [row[name] for name in names] == [printed[name] for name in names]

    wait_until(is_as_printed, "the list is that of the tool", every_s=0.1)
    data = page.get(f"/api/groups/{name_in_path(billing)}").data
    (described,) = tool("group", "describe", billing)
    assert data["lag"] == described["lag"] == 10
    assert abs(data["lag_seconds"] - described["lag_seconds"]) < 3600
    assert data["partitions"][0] | {"lag_seconds": None} == {
        "topic": orders, "partition": 0, "committed": 4, "end": 14, "lag": 10, "lag_seconds": None,
        "lag_seconds_at_least": False, "member": None,
    }  # fmt: skip

    def is_age_known() -> bool:
        row = page.await_rows("/api/groups?size=500", "group", billing)[billing]
        return abs(row["lag_seconds"] - described["lag_seconds"]) < 3600 and not row["lag_seconds_at_least"]

    wait_until(is_age_known, "the list shows the age that the page has looked up", every_s=0.1)
    unknown = page.get("/api/groups/nobody")
    assert (unknown.status, unknown.code) == (404, "NOT_FOUND")
    assert unknown.message == "no group nobody; the page Groups shows the groups there are"


def test_a_group_reset_is_planned_and_executed(page: Page, tool: Callable[..., Any], orders: str, billing: str) -> None:
    path = f"/api/groups/{name_in_path(billing)}/reset"
    planned = page.post(path, {"to": "-2", "topics": [f"{orders}:0"]}).data
    printed = tool("group", "reset", billing, "--to", "-2", "--topic", f"{orders}:0")
    assert planned == printed == {
        "group": billing, "executed": False,
        "partitions": [{"topic": orders, "partition": 0, "before": 4, "after": 2, "move": -2, "lag": 12}],
    }  # fmt: skip
    assert page.post(path, {"to": "-2", "topics": [f"{orders}:0"], "execute": True}).data["executed"]
    assert tool("group", "describe", billing)[0]["lag"] == 12
    back = page.post(path, {"offsets": {f"{orders}:0": 4}, "execute": True}).data
    assert back["partitions"][0]["after"] == 4
    assert page.post(path, {"to": "sideways"}).status == 400
    assert page.post(path, {}).message == "give either to or offsets"
    missing = page.post("/api/groups/nobody/reset", {"to": "earliest"})
    assert missing.status == 404
    assert "does not exist" in missing.message


def test_members_assignments_and_rebalances_are_shown(
    page: Page, tool: Callable[..., Any], bootstrap: str, orders: str
) -> None:
    name = f"readers-{uuid.uuid4().hex[:8]}"
    config = {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    with closing(Consumer({**config, "client.id": "one"})) as one:
        one.subscribe([orders])
        wait_until(lambda: one.poll(0.1), "the first consumer reads")
        path = f"/api/groups/{name}"
        wait_until(lambda: len(page.get(path).data["members"]) == 1, "the member is seen", every_s=0.2)
        page.await_rows("/api/groups?size=500", "group", name)
        wait_until(
            lambda: page.await_rows("/api/groups?size=500", "group", name)[name]["members"] == 1, "listed", every_s=0.1
        )
        with closing(Consumer({**config, "client.id": "two"})) as two:
            two.subscribe([orders])

            def both() -> bool:
                one.poll(0.05)
                two.poll(0.05)
                members = page.get(path).data.get("members", [])
                return len(members) == 2 and all(member["partitions"] for member in members)

            wait_until(both, "both have partitions")
            data = page.get(path).data
            (described,) = tool("group", "describe", name)
            assert {each["client_id"] for each in data["members"]} == {"one", "two"}
            assert len(described["members"]) == 2
            refused = page.post(f"{path}/reset", {"to": "earliest"})
            assert refused.status == 409
            assert "2 active members" in refused.message

            def rebalanced() -> bool:
                one.poll(0.05)
                two.poll(0.05)
                return any(each["joined"] for each in page.get(path).data["rebalances"])

            wait_until(rebalanced, "the rebalance was noted")
            causes = [each["cause"] for each in page.get(path).data["rebalances"]]
            assert "two joined" in causes
            clients = {row["client_id"] for row in page.get("/api/clients?filter=&size=500").data["rows"]}
            assert clients >= {"one", "two"}


def test_the_overview_equals_moldau_cluster_describe(page: Page, tool: Callable[..., Any], orders: str) -> None:
    wait_until(lambda: page.get("/api/overview").data["complete"], "all was read once", every_s=0.1)
    wait_until(lambda: page.get(f"/api/cluster?topic={orders}").status == 200, "the topic was read", every_s=0.1)
    data = page.get("/api/overview").data
    described = tool("cluster", "describe")
    assert data["cluster_id"] == described["cluster_id"]
    assert data["quorum_leader"] == described["controller"]["leader"]
    assert [each["id"] for each in data["brokers"]] == [each["id"] for each in described["brokers"]]
    assert faults(data) == []
    cluster = page.get(f"/api/cluster?topic={orders}").data
    assert [each["leader"] for each in cluster["partitions"]] == [1, 1, 1]
    assert cluster["quorum"]["replicas"][0]["role"] == "leader"
    assert page.get("/api/cluster?topic=nowhere").status == 404
    wait_until(lambda: page.get("/api/brokers/1").data["log_dirs"][0]["size_bytes"] > 0, "sizes are read", every_s=0.1)
    broker = page.get("/api/brokers/1").data
    assert {"topic": orders, "partition": 0} in broker["leads"]
    assert {"name", "value", "default", "source"} <= broker["configs"][0].keys()
    assert page.get("/api/brokers/77").status == 404
    with page.stream("/api/live/overview") as events:
        kind, live = next(events)
    assert (kind, live["cluster_id"]) == ("overview", data["cluster_id"])


def test_transactions_are_listed_and_aborted(
    page: Page, tool: Callable[..., Any], bootstrap: str, create_topic: CreateTopic
) -> None:
    name, transactional_id = create_topic(), f"checkout/{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(name, "open")
    producer.flush(PATIENCE_S)
    rows = page.await_rows("/api/transactions?open=true&size=500", "transactional_id", transactional_id)
    assert (rows[transactional_id]["state"], rows[transactional_id]["partitions"]) == ("Ongoing", 1)
    printed = {row["transactional_id"]: row for row in tool("transaction", "list", "--open")}[transactional_id]
    assert printed["producer"] == rows[transactional_id]["producer_id"]
    data = page.get(f"/api/transactions/{name_in_path(transactional_id)}").data
    assert data["partitions"] == [{"topic": name, "partition": 0, "start": 0}]
    assert page.get(f"/api/topics/{name}/records").data["records"] == [], "nothing is committed"
    assert len(page.get(f"/api/topics/{name}/records?committed=false").data["records"]) == 1
    assert page.get(f"/api/hanging?topic={name}&longer_than_seconds=0").data["rows"] == []
    done = page.post("/api/transactions/abort", {"transactional_id": transactional_id}).data
    assert done["message"] == f"aborted the transaction of {transactional_id}"
    path = f"/api/transactions/{name_in_path(transactional_id)}"
    wait_until(lambda: page.get(path).data["open_seconds"] is None, "the transaction has ended")
    nothing = page.post("/api/transactions/abort", {"transactional_id": transactional_id})
    assert nothing.status == 409
    assert "nothing to abort" in nothing.message
    assert page.get("/api/transactions/nobody").status == 404
    assert page.get(f"/api/topics/{name}/records").data["records"] == [], "aborted records are not shown"


def test_trim_deletes_records_before_an_offset(page: Page, create_topic: CreateTopic) -> None:
    name = create_topic()
    for number in range(5):
        page.post(f"/api/topics/{name}/records", {"value": str(number)})
    assert page.post(f"/api/topics/{name}/trim", {"before": "3", "confirm": name}).data == {
        "ok": True,
        "starts": {"0": 3},
    }
    assert offsets(page.get(f"/api/topics/{name}/records?from=start").data) == [(0, 3), (0, 4)]


def test_without_a_pipelines_directory_the_option_is_named(page: Page) -> None:
    data = page.get("/api/pipelines").data
    assert data["rows"] == []
    assert "--pipelines DIR" in data["empty"]
