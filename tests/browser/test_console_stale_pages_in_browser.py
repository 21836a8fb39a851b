"""What a page shows when answers come late, are missing for a while, or are about something else than it thought."""

from __future__ import annotations

import json
from typing import Any

import pytest
from console_process import Shop

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from harness.patience import PATIENCE_S
from playwright.sync_api import Page, Route, expect

expect.set_options(timeout=PATIENCE_S * 1000)


def found(offset: int) -> dict[str, Any]:
    """The answer of a search that found one record."""
    text = {"kind": "text", "text": f"at {offset}", "bytes": 4}
    record = {
        "partition": 0,
        "offset": offset,
        "timestamp_ms": 1,
        "timestamp_type": "create",
        "key": text,
        "value": text,
    }
    return {
        "records": [{**record, "headers": [], "size_bytes": 8}],
        "order": "newest",
        "next": None,
        "at_end": True,
        "scanned": {"records": 1, "bytes": 8, "seconds": 0.1},
        "stopped": "end",
    }


def test_a_slow_search_does_not_replace_a_newer_one(page: Page, address: str, shop: Shop) -> None:
    slow: list[Route] = []

    def answer(route: Route) -> None:
        if "text=slow" in route.request.url:
            slow.append(route)
        else:
            route.fulfill(json=found(2))

    page.route("**/api/topics/orders/records*", answer)
    page.goto(f"{address}/topics/orders/records")
    expect(page.locator("details.record")).to_contain_text("0 / 2")
    search = page.get_by_label("Search keys, values and headers")
    search.fill("slow")
    with page.expect_request("**/records?*text=slow*"):
        search.press("Enter")
    search.fill("fast")
    search.press("Enter")
    expect(page.locator("details.record")).to_contain_text("0 / 2")
    with page.expect_response("**/records?*text=slow*"):
        slow[0].fulfill(json=found(1))
    page.evaluate("fetch('/api/session').then((answer) => answer.json())")  # the page has read the one before
    expect(page.locator("details.record")).to_contain_text("0 / 2")


def test_pipelines_are_there_again_after_an_error(page: Page, address: str, shop: Shop) -> None:
    page.goto(f"{address}/pipelines")
    bookstore = page.get_by_role("heading", name="bookstore")
    expect(bookstore).to_be_visible()
    problem = {"error": {"code": "INTERNAL", "message": "not now"}}
    page.route("**/api/pipelines", lambda route: route.fulfill(status=500, json=problem))
    expect(page.get_by_role("alert").filter(has_text="not now")).to_be_visible()
    page.unroute("**/api/pipelines")
    expect(bookstore).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="not now")).to_have_count(0)


def test_a_page_after_the_last_is_the_last(page: Page, address: str, shop: Shop) -> None:
    page.goto(f"{address}/topics?page=9")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    assert "page=9" not in page.url


def test_all_partitions_that_the_server_tells_are_drawn(page: Page, address: str, shop: Shop) -> None:
    cluster = page.request.get(f"{address}/api/cluster?topic=orders").json()
    first = cluster["partitions"][0]
    cluster["partitions"] = [{**first, "partition": index} for index in range(300)]
    page.route("**/api/live/**", lambda route: route.abort())
    page.route("**/api/cluster*", lambda route: route.fulfill(json=cluster))
    page.goto(f"{address}/cluster?topic=orders")
    expect(page.locator(".matrix .column")).to_have_count(300)


def test_the_size_of_a_topic_is_live(page: Page, address: str, shop: Shop) -> None:
    topic = page.request.get(f"{address}/api/topics/orders").json()
    event = f"event: topic\ndata: {json.dumps({**topic, 'size_bytes': 5 << 40})}\n\n"
    page.route("**/api/live/topics/*", lambda route: route.fulfill(body=event, content_type="text/event-stream"))
    page.goto(f"{address}/topics/orders")
    expect(page.locator(".figure").filter(has_text="all replicas")).to_contain_text("5 TiB")


def test_a_compaction_that_removed_nothing_is_not_waited_for(page: Page, address: str, shop: Shop) -> None:
    learn = page.request.get(f"{address}/api/learn").json()
    record = {"partition": 0, "offset": 0, "key": "anna", "value": "version 1"}
    learn |= {"exists": True, "compacted": {"before": [record], "after": None, "waiting": True}}
    page.route("**/api/live/**", lambda route: route.abort())
    page.route("**/api/learn", lambda route: route.fulfill(json=learn))
    page.goto(f"{address}/learn")
    expect(page.get_by_text("The log cleaner is at work")).to_be_visible()
    learn["compacted"]["waiting"] = False
    page.reload()
    expect(page.get_by_text("The log cleaner has removed nothing within a minute")).to_be_visible()


def test_bytes_that_are_not_shown_are_said(page: Page, address: str, shop: Shop) -> None:
    answer = {"record": found(0)["records"][0], "previous": None, "next": None}
    answer["record"]["value"] = {"kind": "text", "text": "x" * 70_000, "bytes": 70_000}
    page.route("**/api/topics/orders/records/0/0", lambda route: route.fulfill(json=answer))
    page.goto(f"{address}/topics/orders/records/0/0")
    page.get_by_role("group", name="Value as").get_by_role("button", name="Bytes").click()
    expect(page.get_by_text("The first 64 KiB of 68.4 KiB")).to_be_visible()
