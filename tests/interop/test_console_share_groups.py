"""Share groups in the console, with librdkafka's share consumer as a member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from console_server import Page, console
from harness.patience import PATIENCE_S, wait_until
from share_members import Delivery, ShareMember, require_share_groups, unused_group

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
