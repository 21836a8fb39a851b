"""Share groups in the console, with librdkafka's share consumer as a member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from console_server import Page, console
from harness.patience import PATIENCE_S, wait_until
from share_members import FROM_THE_START, Delivery, ShareMember, require_share_groups, unused_group

CreateTopic = Callable[..., str]


@pytest.fixture(scope="module", autouse=True)
def needs_share_groups(bootstrap: str) -> None:
    require_share_groups(bootstrap)


@pytest.fixture(scope="module")
def page(bootstrap: str) -> Iterator[Page]:
    with console(bootstrap) as begun:
        yield begun


def write(bootstrap: str, topic: str, values: list[str]) -> None:
    """Each in a batch of its own, with a key and a header."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, f"key of {value}", partition=0, headers={"trace": value})
        assert producer.flush(PATIENCE_S) == 0


def receive(member: ShareMember, count: int) -> Mapping[str, Delivery]:
    """Return so many records, by value; the member holds all of them."""
    held: list[Delivery] = []

    def enough() -> bool:
        held.extend(member.poll())
        return len(held) >= count

    wait_until(enough, f"{count} records are given", progress=lambda: len(held))
    return {each.value: each for each in held}


def test_a_share_group_shows_what_became_of_its_records(
    page: Page, bootstrap: str, admin: AdminClient, create_topic: CreateTopic
) -> None:
    topic, group = create_topic(), unused_group(admin)
    write(bootstrap, topic, ["held", "accepted", "rejected", "released", "last"])
    with ShareMember(bootstrap, group, [topic], client_id="worker") as member:
        said = receive(member, 5)
        member.accept([said["accepted"], said["last"]])
        member.reject([said["rejected"]])
        member.release([said["released"]])
        page.await_rows("/api/groups?size=500", "group", group)
        data = page.get(f"/api/groups/{group}").data
    (place,) = data["partitions"]
    assert (data["type"], data["note"], data["states_error"], data["acquired"]) == ("Share", None, None, None)
    assert data["dead_letters"] == {"topic": None, "copies": False, "error": None}
    assert [each["name"] for each in data["members"]] == ["worker"]
    assert place["members"] == [each["member_id"] for each in data["members"]]
    assert {name: place[name] for name in ("committed", "end", "lag", "acknowledged", "archived")} == {
        "committed": 0, "end": 5, "lag": 2, "acknowledged": 2, "archived": 1,
    }  # fmt: skip
    assert place["ranges"] == [
        {"first": 1, "last": 1, "state": "acknowledged", "deliveries": 1},
        {"first": 2, "last": 2, "state": "archived", "deliveries": 1},
        {"first": 3, "last": 3, "state": "available", "deliveries": 1},
        {"first": 4, "last": 4, "state": "acknowledged", "deliveries": 1},
    ], "what the member holds is not written"


def test_the_list_and_the_live_page_have_the_lag_that_the_coordinator_counts(
    page: Page, bootstrap: str, admin: AdminClient, create_topic: CreateTopic
) -> None:
    """Not the distance to the end of the log: records after the start offset are finished."""
    topic, group = create_topic(), unused_group(admin)
    write(bootstrap, topic, ["released", *map(str, range(4))])
    with ShareMember(bootstrap, group, [topic]) as member:
        said = receive(member, 5)
        member.release([said["released"]])
        member.accept([each for value, each in said.items() if value != "released"])

    def row() -> dict[str, Any]:
        return page.await_rows("/api/groups?size=500", "group", group)[group]

    wait_until(lambda: (row()["lag"], row()["topics"], row()["members"]) == (1, 1, 0), "the list knows it", every_s=0.1)
    with page.stream(f"/api/live/groups/{group}") as events:
        name, data = next(events)
    assert (name, data["lag"], data["partitions"][0]["committed"]) == ("group", 1, 0)


def test_a_share_group_is_reset_and_deleted(
    page: Page, bootstrap: str, admin: AdminClient, create_topic: CreateTopic
) -> None:
    topic, group = create_topic(), unused_group(admin)
    write(bootstrap, topic, ["one", "two"])
    with ShareMember(bootstrap, group, [topic]) as member:
        member.take(2)
        page.await_rows("/api/groups?size=500", "group", group)
        refused = page.post(f"/api/groups/{group}/reset", {"to": "earliest", "execute": True})
        assert (refused.status, "active member" in refused.message) == (409, True)
    wait_until(lambda: page.get(f"/api/groups/{group}").data["members"] == [], "the member has left", every_s=0.1)
    assert page.get(f"/api/groups/{group}").data["lag"] == 0
    (move,) = page.post(f"/api/groups/{group}/reset", {"to": "earliest", "execute": True}).data["partitions"]
    assert (move["after"], move["lag"]) == (0, 2)
    assert page.get(f"/api/groups/{group}").data["lag"] == 2
    deleted = page.post(f"/api/groups/{group}/offsets/delete", {"topic": topic, "confirm": group})
    assert deleted.data["message"] == f"deleted the offsets of {group} in {topic}"
    assert page.get(f"/api/groups/{group}").data["partitions"] == []
    assert page.delete(f"/api/groups/{group}", {"confirm": group}).status == 200
    assert page.get(f"/api/groups/{group}").status == 404


def letters_of(page: Page, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    """Return the dead letters of a group, the oldest first, as the page asks for them."""

    def found() -> list[dict[str, Any]]:
        query = f"from=start&header=__dlq.errors.group:{group}"
        records: list[dict[str, Any]] = page.get(f"/api/topics/{topic}/records?{query}").data["records"]
        return records

    wait_until(lambda: len(found()) == count, f"{count} dead letters", every_s=0.1)
    return found()


@pytest.mark.moldau_only
@pytest.mark.parametrize("copies", ["true", "false"])
def test_dead_letters_are_shown_and_sent_again(
    page: Page, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, topic: Callable[[], str], copies: str
) -> None:
    """Without a copy the record is read where it was: then it has its headers too."""
    jobs = create_topic()
    dead = create_topic(config={"errors.deadletterqueue.group.enable": "true"}, name=f"dlq.{topic()}")
    configs = {"errors.deadletterqueue.topic.name": dead, "errors.deadletterqueue.copy.record.enable": copies}
    group = unused_group(admin, FROM_THE_START | configs)
    write(bootstrap, jobs, ["good", "bad", "worse"])
    with ShareMember(bootstrap, group, [jobs]) as member:
        said = receive(member, 3)
        member.accept([said["good"]])
        member.reject([said["bad"], said["worse"]])
        letters = letters_of(page, dead, group, 2)
        assert page.get(f"/api/groups/{group}").data["dead_letters"] == {
            "topic": dead, "copies": copies == "true", "error": None,
        }  # fmt: skip
        assert [each["dead_letter"] for each in letters] == [
            {"reason": "Offset rejected by client.", "topic": jobs, "partition": 0, "offset": offset,
             "written_by": group, "deliveries": 1}
            for offset in (1, 2)
        ]  # fmt: skip
        places = [[each["partition"], each["offset"]] for each in letters]
        sent = page.post(f"/api/groups/{group}/dead-letters/send", {"topic": dead, "records": places}).data
        assert (sent["ok"], sent["sent"]) == (True, 2)
        assert [each["to"] for each in sent["results"]] == [
            {"topic": jobs, "partition": 0, "offset": offset} for offset in (3, 4)
        ]
        again = receive(member, 2)
        assert {value: (each.offset, each.count) for value, each in again.items()} == {"bad": (3, 1), "worse": (4, 1)}
        message = member.held[again["bad"]]
        assert (message.key(), message.headers()) == (b"key of bad", None if copies == "true" else [("trace", b"bad")])
        member.accept()
    assert len(letters_of(page, dead, group, 2)) == 2, "the dead letters stay"


@pytest.mark.moldau_only
def test_a_dead_letter_does_not_decide_who_gets_records(
    page: Page, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, topic: Callable[[], str]
) -> None:
    """Whoever may write dead letters could name any topic, which the user who sends them again may write."""
    jobs, payments = create_topic(), create_topic()
    dead = create_topic(config={"errors.deadletterqueue.group.enable": "true"}, name=f"dlq.{topic()}")
    group = unused_group(admin)
    write(bootstrap, jobs, ["good"])
    with ShareMember(bootstrap, group, [jobs]) as member:
        member.take(1)
    named = {"message": "forged", "group": group, "partition": "0", "offset": "0"}
    for headers in (named | {"topic": payments}, named | {"topic": jobs, "group": "another"}, named | {"topic": jobs}):
        headers = {f"__dlq.errors.{name}": text for name, text in headers.items()}
        assert page.post(f"/api/topics/{dead}/records", {"value": "forged", "headers": headers}).status == 201
    sent = page.post(
        f"/api/groups/{group}/dead-letters/send", {"topic": dead, "records": [[0, 0], [0, 1], [0, 9], [0, 2]]}
    ).data
    assert [each["error"] is None for each in sent["results"]] == [False, False, False, True]
    assert f"which group {group} does not read" in sent["results"][0]["error"]
    assert sent["results"][1]["error"] == f"it is no dead letter of group {group}"
    assert "cannot be read" in sent["results"][2]["error"]
    assert page.get(f"/api/topics/{payments}/records").data["records"] == []


def test_a_read_only_console_sends_nothing_again(bootstrap: str, create_topic: CreateTopic) -> None:
    with console(bootstrap, read_only=True) as reader:
        refused = reader.post("/api/groups/any/dead-letters/send", {"topic": create_topic(), "records": [[0, 0]]})
    assert (refused.status, refused.code) == (403, "READ_ONLY")
