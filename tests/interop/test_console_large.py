"""Lists of a large cluster: paged, sorted and filtered by the server, from memory. The cluster is a model
(tests/harness/large_cluster.py) with a tenth of the size that docs/console-server.md has figures for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from console_server import Page, console
from harness import large_cluster
from harness.patience import PATIENCE_S, wait_until

from moldau.console.collector.pace import Pace
from moldau.wire.apis import ApiKey

pytestmark = pytest.mark.moldau_only

TOPICS, PARTITIONS, GROUPS = 900, 3_900, 220


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


class CountingCluster(large_cluster.LargeCluster):
    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.asked: Counter[str] = Counter()

    def answer(self, key: int, request: Any) -> Any:
        self.asked[ApiKey(key).name] += 1
        return super().answer(key, request)


@pytest.fixture(scope="module")
def cluster() -> Iterator[CountingCluster]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (("TOPICS", TOPICS), ("PARTITIONS", PARTITIONS), ("GROUPS", GROUPS)):
            patched.setattr(large_cluster, name, value)
        server = large_cluster.Server(("127.0.0.1", 0), large_cluster.Connection)
        server.cluster = made = CountingCluster(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, name="large cluster")
        thread.start()
        made.port = server.server_address[1]  # type: ignore[attr-defined]
        yield made
        server.shutdown()
        thread.join(PATIENCE_S)
        server.server_close()


@pytest.fixture(scope="module")
def page(cluster: CountingCluster) -> Iterator[Page]:
    with console(f"127.0.0.1:{cluster.port}") as begun:  # type: ignore[attr-defined]
        wait_until(lambda: begun.get("/api/overview").data["complete"], "all was read once", every_s=0.1)
        wait_until(lambda: begun.get("/api/overview").data["lag"], "there is a lag", every_s=0.1)
        yield begun


def test_a_large_cluster_is_counted_and_paged(page: Page) -> None:
    overview = page.get("/api/overview").data
    assert (overview["topics"], overview["partitions"], overview["groups"]) == (TOPICS, PARTITIONS, GROUPS)
    first = page.get("/api/topics?size=500&sort=name").data
    second = page.get("/api/topics?size=500&sort=name&page=2").data
    names = [row["name"] for row in (*first["rows"], *second["rows"])]
    assert names == sorted(large_cluster.topic_name(each) for each in range(TOPICS))
    assert (first["pages"], first["total"], first["matching"]) == (2, TOPICS, TOPICS)
    assert page.get("/api/topics?filter=EVENTS-89").data["matching"] == 11
    groups = page.get("/api/groups?size=500").data["rows"]
    assert len(groups) == GROUPS
    lags = [row["lag"] for row in groups]
    assert lags == sorted(lags, reverse=True)
    assert {row["members"] for row in groups} == {2}


def test_pages_send_no_request_to_the_cluster(
    page: Page, cluster: CountingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_has_ended = threading.Event()

    def nothing_is_due(pace: Pace, now: float) -> Iterator[str]:
        round_has_ended.set()
        return iter(())

    monkeypatch.setattr(Pace, "due", nothing_is_due)
    wait_until(round_has_ended.is_set, "the round under way has ended")
    asked = cluster.asked.copy()
    name = large_cluster.topic_name(0)
    paths = (
        "/api/overview", "/api/topics", "/api/topics?sort=-lag&page=3", "/api/groups", "/api/clients", "/api/cluster",
        f"/api/cluster?topic={name}", f"/api/topics/{name}/partitions",
    )  # fmt: skip
    for path in paths * 3:
        assert page.get(path).status == 200
    with page.stream("/api/live/groups/group-7") as events:
        kind, data = next(events)
    assert (kind, len(data["members"])) == ("group", 2)
    assert cluster.asked == asked


def test_a_round_needs_few_requests(page: Page, cluster: CountingCluster) -> None:
    """One request for all topics, and one of each kind for every five hundred groups."""
    assert cluster.asked["OFFSET_FETCH"] <= cluster.asked["LIST_GROUPS"] + 2
    assert cluster.asked["DESCRIBE_GROUPS"] <= cluster.asked["LIST_GROUPS"] + 2
    assert cluster.asked["METADATA"] < 20 * cluster.asked["DESCRIBE_CLUSTER"]
