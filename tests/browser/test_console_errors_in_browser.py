"""Errors in responses of the console's server: pages show them and do not fail. A proxy in the browser changes the
responses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from console_process import Shop, create_topics

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from harness.patience import PATIENCE_S
from playwright.sync_api import Page, Route, expect

expect.set_options(timeout=PATIENCE_S * 1000)

OUTAGE = "the cluster does not answer: connection refused"


def change(page: Page, path: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Change the responses for this path with a function."""

    def handle(route: Route) -> None:
        answer = route.fetch()
        data = answer.json()
        edit(data)
        route.fulfill(response=answer, json=data)

    page.route(f"**{path}", handle)


@pytest.mark.parametrize("name", ["topics", "groups", "clients", "cluster", "overview"])
def test_an_outage_is_shown_on_every_page_until_it_ends(page: Page, address: str, shop: Shop, name: str) -> None:
    page.route("**/api/live/**", lambda route: route.abort())
    change(page, f"/api/{name}*", lambda data: data.update(read_error=OUTAGE))
    page.goto(f"{address}/{'' if name == 'overview' else name}")
    alert = page.get_by_role("alert").filter(has_text="The cluster cannot be read")
    expect(alert).to_contain_text(OUTAGE)
    expect(alert).to_have_count(1)
    expect(page.get_by_text("All is well")).to_have_count(0)
    page.unroute(f"**/api/{name}*")
    page.reload()
    expect(page.locator("main h1")).to_be_visible()
    expect(alert).to_have_count(0)


def test_an_outage_in_the_event_stream_is_shown(page: Page, address: str, shop: Shop) -> None:
    event = f'event: cluster\ndata: {{"read_error": "{OUTAGE}", "read_ms": 1, "brokers": [], "health": {{}},'
    rest = ' "partitions": [], "quorum": null, "reassignments": [], "events": []}\n\n'
    page.route("**/api/live/cluster*", lambda route: route.fulfill(body=event + rest, content_type="text/event-stream"))
    page.goto(f"{address}/cluster")
    expect(page.get_by_role("alert").filter(has_text=OUTAGE)).to_be_visible()


def test_a_topic_page_without_permission_for_sizes_and_settings(page: Page, address: str, shop: Shop) -> None:
    def hide(data: dict[str, Any]) -> None:
        data["history"]["size_bytes"] = data["size_bytes"] = data["configs"] = None
        data["configs_error"] = "you may not see them"

    change(page, "/api/topics/orders", hide)
    page.goto(f"{address}/topics/orders")
    expect(page.get_by_role("heading", name="Records written")).to_be_visible()
    expect(page.get_by_role("heading", name="Size on disk")).to_have_count(0)
    expect(page.locator(".live")).to_have_text("live")
    shop.write_orders(50, first=10_000)
    expect(page.locator(".chart .series").first).to_be_visible()  # events came
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_role("alert")).to_contain_text("you may not see them")


def test_the_charts_of_a_topic_do_not_need_the_right_time_in_the_browser(page: Page, address: str, shop: Shop) -> None:
    page.clock.set_fixed_time("2001-01-01T00:00:00Z")
    with page.expect_response(lambda answer: "/api/live/topics/orders" in answer.url):
        page.goto(f"{address}/topics/orders")
    drawn = page.locator(".chart .series").first
    expect(drawn).to_be_visible()
    before = drawn.get_attribute("d")
    shop.write_orders(50, first=20_000)
    expect(drawn).not_to_have_attribute("d", before or "")  # an event came
    points = re.findall(r"[ML](\S+) ", drawn.get_attribute("d") or "")
    assert [float(x) for x in points] == sorted(float(x) for x in points)


def test_a_broker_page_without_permission_for_settings(page: Page, address: str, shop: Shop) -> None:
    change(page, "/api/brokers/1", lambda data: data.update(configs=None, configs_error="you may not see them"))
    page.goto(f"{address}/brokers/1")
    expect(page.get_by_role("heading", name="Disks")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("you may not see them")
    expect(page.get_by_label("Show defaults too")).to_have_count(0)


def test_large_numbers_are_shown_as_they_were_written(page: Page, address: str, shop: Shop) -> None:
    create_topics(shop.bootstrap, {"numbers": 1}, replicas=3)
    shop.producer.produce("numbers", '{"id": 9007199254740993}', "large number", partition=0)
    shop.producer.produce("numbers", '{"a": 1e999}', "not finite", partition=0)
    assert shop.producer.flush(60) == 0
    page.goto(f"{address}/topics/numbers/records?from=start&text=number")
    expect(page.locator("details.record")).to_have_count(1)
    page.locator("details.record summary").click()
    expect(page.locator("details.record pre").filter(has_text="9007199254740993")).to_be_visible()
    page.goto(f"{address}/topics/numbers/records?from=start&text=finite")
    expect(page.locator("details.record")).to_contain_text("1e999")


def test_a_record_is_sent_again_with_the_same_headers(page: Page, address: str, shop: Shop) -> None:
    headers = [("plain", b"text"), ("bytes", b"\x00\xff"), ("none", None), ("lines", b" a\nb "), ("plain", b"twice")]
    create_topics(shop.bootstrap, {"headers": 1}, replicas=3)
    shop.producer.produce("headers", "with headers", "again", partition=0, headers=headers)
    assert shop.producer.flush(60) == 0
    page.goto(f"{address}/topics/headers/records?from=start&key=again")
    page.locator("details.record summary").click()
    page.get_by_role("link", name="Open on its own page").click()
    page.get_by_role("button", name="Send again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Headers", exact=True)).to_have_value("plain: text\nplain: twice")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_be_hidden()
    answer = page.request.get(f"{address}/api/topics/headers/records?from=start&key=again").json()
    first, again = (
        sorted((each["name"], each["value"]["kind"], each["value"]["text"] or "") for each in record["headers"])
        for record in answer["records"]
    )
    assert first == again


@pytest.mark.parametrize("path", ["/topics/orders/records", "/pipelines"])
def test_a_replay_that_did_not_look_at_all_says_so(page: Page, address: str, shop: Shop, path: str) -> None:
    answer = {"ok": True, "matching": 17, "copied": 17, "scanned": {"records": 17, "bytes": 1}, "stopped": "work"}
    page.route("**/api/topics/*/replay", lambda route: route.fulfill(json=answer))
    letters = {"topic": "orders", "records_at_most": 5}
    change(page, "/api/pipelines", lambda data: [row.update(dead_letters=[letters]) for row in data["rows"]])
    page.goto(f"{address}{path}")
    page.get_by_role("button", name=re.compile("Replay …|Send dead letters again …")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To topic").fill("payments")
    dialog.get_by_role("button", name="Count").click()
    expect(dialog).to_contain_text("17 records would be copied to payments. There may be more")
    dialog.get_by_role("button", name=re.compile("Copy 17 records|Send them")).click()
    expect(page.locator(".toast").filter(has_text="17 records")).to_contain_text("There may be more")


def test_a_record_that_is_sent_again_keeps_its_empty_key(page: Page, address: str, shop: Shop) -> None:
    def change_record(data: dict[str, Any]) -> None:
        data["record"] |= {"key": {"kind": "text", "text": "", "bytes": 0}, "headers_cut": True}

    change(page, "/api/topics/oddities/records/0/0", change_record)
    page.goto(f"{address}/topics/oddities/records/0/0")
    page.get_by_role("button", name="Send again …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("has more headers, which are left out")
    page.route("**/api/topics/oddities/records", lambda route: route.fulfill(json={"partition": 0, "offset": 1}))
    with page.expect_request("**/api/topics/oddities/records") as sent:
        dialog.get_by_role("button", name="Produce").click()
    assert sent.value.post_data_json["key"] == ""


def test_groups_that_are_not_read_yet_are_not_said_to_be_none(page: Page, address: str, shop: Shop) -> None:
    unknown = {"groups": None, "readers": [], "lag": None, "lag_seconds": None}
    page.route("**/api/live/**", lambda route: route.abort())
    change(page, "/api/topics?*", lambda data: [row.update(unknown) for row in data["rows"]])
    change(page, "/api/topics/orders", lambda data: data.update(unknown))
    page.goto(f"{address}/topics")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    expect(page.get_by_text("no group")).to_have_count(0)
    page.goto(f"{address}/topics/orders")
    expect(page.locator(".figure").filter(has_text="Lag")).to_contain_text("not read yet")
    page.goto(f"{address}/topics/orders/groups")
    expect(page.get_by_text("The groups are not read yet")).to_be_visible()


def test_least_ages_and_names_that_are_left_out_are_shown_as_such(page: Page, address: str, shop: Shop) -> None:
    age = {"lag": 5, "lag_seconds": 81.0, "lag_seconds_at_least": True}
    names = [f"orders-{number}" for number in range(20)]
    problem = {"severity": "warning", "title": "60 troubles", "what_to_do": "", "link": None, "affected": names}
    page.route("**/api/live/**", lambda route: route.abort())
    change(page, "/api/overview", lambda data: data.update(age, problems=[{**problem, "affected_total": 60}]))
    change(page, "/api/groups?*", lambda data: [row.update(age) for row in data["rows"]])
    change(page, "/api/topics?*", lambda data: [row.update(age) for row in data["rows"]])
    page.goto(address)
    expect(page.locator(".figure").filter(has_text="Groups")).to_contain_text("5 · at least 1 min 21 s")
    expect(page.locator(".notice").filter(has_text="60 troubles")).to_contain_text("and 48 more")
    page.goto(f"{address}/groups")
    expect(page.get_by_role("cell", name="at least 1 min 21 s").first).to_be_visible()
    page.goto(f"{address}/topics")
    expect(page.get_by_role("cell", name="5 · at least 1 min 21 s").first).to_be_visible()


def test_dead_letters_that_are_not_counted_are_not_said_to_be_none(page: Page, address: str, shop: Shop) -> None:
    letters = {"topic": "bookstore-dead", "records_at_most": None}
    change(page, "/api/pipelines", lambda data: [row.update(dead_letters=[letters]) for row in data["rows"]])
    page.goto(f"{address}/pipelines")
    figure = page.locator(".figure").filter(has_text="Dead letters")
    expect(figure).to_contain_text("–")
    expect(figure).to_contain_text("not there, or not read yet")


def test_a_pipeline_of_another_cluster_is_shown_as_such(page: Page, address: str, shop: Shop) -> None:
    change(page, "/api/pipelines", lambda data: [row.update(other_cluster="there:9092") for row in data["rows"]])
    page.goto(f"{address}/pipelines")
    expect(page.get_by_text("It runs with there:9092.")).to_be_visible()
    figure = page.locator(".figure").filter(has_text="Dead letters")
    expect(figure).to_contain_text("of another cluster")
    expect(figure).not_to_contain_text("not there")


def test_the_dead_letters_of_several_sources_are_shown(page: Page, address: str, shop: Shop) -> None:
    letters = [{"topic": "orders.dead", "records_at_most": 5}, {"topic": "clicks.dead", "records_at_most": 7}]
    change(page, "/api/pipelines", lambda data: [row.update(dead_letters=letters) for row in data["rows"]])
    page.goto(f"{address}/pipelines")
    for each in letters:
        figure = page.locator(".figure").filter(has_text=f"Dead letters in {each['topic']}")
        expect(figure).to_contain_text(f"at most {each['records_at_most']}")
    page.get_by_role("button", name="Send dead letters in clicks.dead again …").click()
    expect(page.get_by_role("dialog")).to_contain_text("Copies records of clicks.dead to a topic.")
