"""The console's pages in a real browser: they show what the tools print, and never run data as markup.

Playwright waits for what is expected; no test sleeps.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from chromium import Watch, patient
from confluent_kafka import Producer
from console_process import HOSTILE, Shop, console, tool

from moldau.testing import TestCluster, broker

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from harness.patience import PATIENCE_S, wait_until
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

expect.set_options(timeout=PATIENCE_S * 1000)

PATHS = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/partitions",
    "/topics/orders/records",
    "/topics/oddities/records/0/0",
    "/topics/orders/groups",
    "/topics/orders/settings",
    "/groups",
    "/groups/billing",
    "/cluster",
    "/brokers/1",
    "/transactions",
    "/pipelines",
    "/clients",
    "/access",
    "/access/users",
    "/access/quotas",
    "/learn",
)
SIZES_AND_COLOURS: tuple[tuple[int, Literal["dark", "light"]], ...] = ((390, "dark"), (1440, "light"))
NAMELESS = """
    [...document.querySelectorAll("button, a[href], input, select, textarea, [role=img]")].filter(each =>
        !each.getAttribute("aria-label") && !each.labels?.length &&
        !(each.matches("button, a") && each.textContent.trim())
    ).map(each => each.outerHTML)
"""
"""Controls and drawings without a name for screen readers."""
BOTH_READ = re.compile(r"billing-1: orders-\d.*billing-2: orders-\d")
HOSTILE_PATH = quote(HOSTILE, safe="")


def heading(page: Page, name: str) -> Locator:
    return page.get_by_role("heading", level=1, name=name, exact=True)


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def open_page(page: Page, address: str, path: str) -> None:
    page.goto(address + path)
    expect(page.locator("main h1")).to_be_visible()


def test_lists_show_what_the_tools_print(page: Page, address: str, kafka: TestCluster) -> None:
    open_page(page, address, "/")
    brokers = page.get_by_role("table", name="Brokers").get_by_role("row")
    expect(brokers).to_have_count(1 + len(kafka.nodes))
    for node in kafka.nodes.values():
        expect(brokers.filter(has_text=node.address)).to_contain_text("up")
    expect(page.locator(".figure").filter(has_text="Groups")).to_contain_text("3")

    page.get_by_role("link", name="Topics", exact=True).first.click()
    expect(heading(page, "Topics")).to_be_visible()
    for topic in tool(kafka.bootstrap_servers, "topic", "list"):
        cells = row(page, topic["name"])
        expect(cells).to_contain_text(f"{topic['offsets']:,}")
        expect(cells.get_by_role("cell").first).to_have_text(str(topic["partitions"]))
    expect(row(page, "orders")).to_contain_text("warehouse")

    page.get_by_role("link", name="Groups", exact=True).first.click()
    expect(row(page, "billing")).to_contain_text("Stable")
    expect(row(page, "billing").get_by_role("cell").nth(2)).to_have_text("2")
    groups = tool(kafka.bootstrap_servers, "group", "list")
    for group in groups:
        expect(row(page, group["group"])).to_contain_text(f"{group['lag']:,}")
    furthest = max(groups, key=lambda group: group["lag"])["group"]
    expect(page.locator("tbody tr").first).to_contain_text(furthest)

    page.get_by_role("button", name="Group", exact=True).click()  # sorted by the server, kept in the address
    expect(page.locator("tbody tr").first).to_contain_text(HOSTILE)
    assert "sort=group" in page.url


def test_a_topic_is_created_shown_and_deleted(page: Page, address: str, kafka: TestCluster) -> None:
    open_page(page, address, "/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("not a name")
    dialog.get_by_role("button", name="Create topic").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not a name")  # the same error as of the command line
    dialog.get_by_label("Name").fill("books")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Settings").fill("retention.ms=60000")
    dialog.get_by_role("button", name="Create topic").click()
    expect(heading(page, "books")).to_be_visible()
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_role("row", name=re.compile("^retention.ms"))).to_contain_text("60000")
    page.get_by_role("link", name="Partitions").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    listed = {topic["name"]: topic for topic in tool(kafka.bootstrap_servers, "topic", "list")}
    assert listed["books"]["partitions"] == 2

    page.get_by_role("button", name="Delete").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Delete topic")
    expect(button).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("books")
    button.click()
    expect(heading(page, "Topics")).to_be_visible()
    expect(row(page, "books")).to_have_count(0)


def test_records_are_found_shown_and_written(page: Page, address: str, shop: Shop) -> None:
    open_page(page, address, "/topics/orders/records?from=start&where=id=17")
    found = page.locator("details.record")
    expect(found).to_have_count(1)
    found.locator("summary").click()
    expect(found.locator("pre.json")).to_contain_text('"item": "The Trial"')
    found.get_by_role("button", name="Bytes").first.click()
    expect(found.locator("pre.hex").first).to_contain_text("7b 22 69 64")  # {"id
    found.get_by_role("link", name="Open on its own page").click()
    expect(page.get_by_text("t-17")).to_be_visible()
    page.reload()  # the address of a record can be shared
    expect(page.locator("pre.json")).to_contain_text('"id": 17')

    open_page(page, address, "/topics/orders/records")
    expect(found.first).to_be_visible()
    page.get_by_text("More filters").click()
    heights = [each.bounding_box()["height"] for each in page.locator(".search-form .more input").all()]
    assert max(heights) == min(heights) < 50
    condition = page.get_by_label("Where", exact=True)
    condition.fill("id > or key = 'x'")
    condition.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("before 'or' at character 6")
    expect(page.locator(".place mark")).to_have_text("o")
    expect(condition).to_have_attribute("aria-invalid", "true")
    expect(found).to_have_count(0)
    condition.fill("id = 17")
    condition.press("Enter")
    expect(found).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)

    open_page(page, address, "/topics/payments/records")
    expect(page.get_by_role("heading", name="No records here")).to_be_visible()
    page.get_by_role("button", name="Produce", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key", exact=True).fill("anna")
    dialog.get_by_label("Value", exact=True).fill('{"paid": true}')
    dialog.get_by_label("Headers").fill("by: card")
    dialog.get_by_role("button", name="Produce").click()
    expect(page.locator("details.record")).to_contain_text('{"paid": true}')
    with page.expect_download() as download:
        page.get_by_role("link", name="Export JSON lines").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert [json.loads(line)["key"]["text"] for line in lines] == ["anna"]

    page.get_by_label("Begin").select_option("live")
    expect(page.locator(".live")).to_have_text("live")
    wait_until(partial(send_and_look, shop, page), "a record that is produced while the page is open is shown")
    expect(page.locator("details.record").first).to_contain_text("seen live")


def send_and_look(shop: Shop, page: Page) -> bool:
    """Produce again for each check: a record may be produced before the server has begun to read."""
    shop.producer.produce("payments", "seen live", "ben")
    shop.producer.flush(60)
    page.wait_for_timeout(100)
    return page.locator("details.record").count() > 0


def test_a_group_is_shown_and_its_offsets_are_reset(page: Page, address: str, kafka: TestCluster) -> None:
    def described(group: str) -> dict[str, Any]:
        (answer,) = tool(kafka.bootstrap_servers, "group", "describe", group)
        return answer

    open_page(page, address, "/groups/billing")
    expect(page.locator(".assignment")).to_have_attribute("aria-label", BOTH_READ)
    expect(page.get_by_role("table", name="Offsets of the group").locator("tbody tr")).to_have_count(6)

    open_page(page, address, "/groups/warehouse")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show the plan").click()
    plan = dialog.get_by_role("table", name="Plan of the reset").locator("tbody tr")
    expect(plan.first).to_be_visible()
    assert [each["committed"] for each in described("warehouse")["partitions"]] != [0]
    dialog.get_by_role("button", name="Reset").click()
    expect(dialog).to_be_hidden()
    now = described("warehouse")
    assert [each["committed"] for each in now["partitions"]] == [0]
    expect(page.locator(".figure").first).to_contain_text(f"{now['lag']:,}")


def test_a_transaction_is_aborted_and_pipelines_are_shown(page: Page, address: str, kafka: TestCluster) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "checkout-7"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("shipments", "not yet", partition=1)
    producer.flush(60)
    open_page(page, address, "/transactions")
    (listed,) = tool(kafka.bootstrap_servers, "transaction", "list")
    expect(row(page, "checkout-7")).to_contain_text(listed["state"])
    page.get_by_role("link", name="checkout-7").click()
    expect(row(page, "shipments").get_by_role("cell").first).to_have_text("1")
    page.get_by_role("button", name="Abort").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("checkout-7")
    page.get_by_role("dialog").get_by_role("button", name="Abort transaction").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    (listed,) = tool(kafka.bootstrap_servers, "transaction", "list")
    assert listed["state"] != "Ongoing"

    open_page(page, address, "/pipelines")
    expect(row(page, "counts").first).to_contain_text("120/s")
    expect(page.get_by_role("table", name="Sources")).to_contain_text("5 MiB of the log")
    expect(page.get_by_role("table", name="Sinks")).to_contain_text("503: overloaded")
    expect(row(page, "suspicious")).to_contain_text(HOSTILE)
    expect(page.locator("svg.flow")).to_have_attribute("aria-label", re.compile("Flow of bookstore: .*counts"))


def test_a_killed_broker_is_shown_as_down(page: Page, address: str, kafka: TestCluster) -> None:
    open_page(page, address, "/cluster?topic=orders")
    expect(page.locator(".live")).to_have_text("live")
    expect(page.locator(".matrix .cell.leader")).to_have_count(6)
    victim = next(node for node in (1, 2, 3) if node not in (kafka.controller(), kafka.leader_of("oddities", 0)))
    kafka.kill(victim)
    card = page.get_by_role("region", name=f"Broker {victim}")
    expect(card).to_contain_text("down")
    expect(page.get_by_role("list", name="What happened")).to_contain_text(f"Broker {victim} is down")
    expect(page.locator(".matrix .cell.leader:not(.gone)")).to_have_count(6)  # others lead now
    kafka.restart(victim)
    expect(card).to_contain_text("up")
    page.get_by_role("link", name="Topics").first.click()
    expect(heading(page, "Topics")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("list", name="What happened")).to_contain_text(f"Broker {victim} is down")


def test_markup_in_data_is_shown_as_text(page: Page, address: str) -> None:
    open_page(page, address, "/topics/oddities/records?from=start")
    expect(page.locator("details.record")).to_have_count(3)
    page.locator("details.record summary").first.click()
    expect(page.locator("details.record").first.locator("pre")).to_have_count(2)
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    of_data = (
        "/topics/oddities/records/0/0",
        "/groups",
        f"/groups/{HOSTILE_PATH}",
        "/topics/oddities/groups",
        "/topics",
    )
    for path in (*of_data, f"/topics/{HOSTILE_PATH}", f"/groups?filter={HOSTILE_PATH}"):
        page.goto(address + path)
        expect(page.get_by_text("onerror").first).to_be_visible()
        assert page.locator("main img").count() == 0
        assert page.title() != "hacked"


def test_every_page_loads_by_its_address_at_any_width_in_both_colour_schemes(browser: Browser, address: str) -> None:
    backgrounds = set()
    for width, scheme in SIZES_AND_COLOURS:
        viewport: ViewportSize = {"width": width, "height": 800}
        context = patient(browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce"))
        page = context.new_page()
        watch = Watch(page, address)
        for path in PATHS if width < 1000 else PATHS[:4]:
            open_page(page, address, path)
            assert page.locator(".notice.bad").all_text_contents() == []
            assert page.evaluate(NAMELESS) == [], f"{path} has controls without a name"
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} pixels wider than {width}"
        backgrounds.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        watch.check()
        context.close()
    assert len(backgrounds) == 2


def test_keyboard_shortcuts_and_the_colour_scheme_button(page: Page, address: str) -> None:
    open_page(page, address, "/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(heading(page, "Topics")).to_be_visible()
    expect(row(page, "orders")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("ord")
    expect(row(page, "payments")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(heading(page, "orders")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Filter topics by name")).to_have_value("ord")
    page.get_by_role("button", name="Colours: as the system").click()
    page.get_by_role("button", name="Colours: light").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_learn_page(page: Page, address: str) -> None:
    open_page(page, address, "/learn")
    page.get_by_role("button", name="Create the topic").click()
    page.get_by_role("button", name="10 by key").click()
    expect(page.locator(".stage .record").nth(8)).to_be_visible()  # the first may meet a leader that is not ready
    page.get_by_role("button", name="One consumer more").click()
    expect(page.locator(".stage")).to_have_attribute("aria-label", re.compile("consumer-1 reads 0 and 1 and 2 and 3"))
    expect(page.locator(".stage .record:not(.read)")).to_have_count(0)
    page.get_by_role("button", name="Send, acks=all").click()
    expect(page.get_by_text("Acknowledged (acks=all)")).to_be_visible()
    page.get_by_role("button", name="Remove the topic").click()
    expect(page.get_by_role("button", name="Create the topic")).to_be_visible()


def test_learning_what_compaction_does(page: Page, address: str) -> None:
    open_page(page, address, "/learn")
    page.get_by_role("button", name="Create the topic").click()
    page.get_by_role("button", name="10 without a key").click()
    expect(page.locator(".stage .record").first).to_be_visible()
    page.get_by_role("button", name="and compact").click()
    expect(page.get_by_role("heading", name="Before: 9 records")).to_be_visible()
    expect(page.get_by_role("heading", name="After: 3 records")).to_be_visible()
    page.get_by_role("button", name="Again").click()
    expect(page.get_by_role("heading", name=re.compile(r"Before: 1\d records"))).to_be_visible()
    page.get_by_role("button", name="Remove the topic").click()
    expect(page.get_by_role("button", name="Create the topic")).to_be_visible()


def test_a_user_logs_in_and_out(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra `tls` is not installed")
    with broker(secure=True) as kafka:
        kafka.add_user("ann", "ann-secret-1")
        properties = tmp_path / "client.properties"  # how to connect, without a user
        lines = kafka.command_config().read_text().splitlines(keepends=True)
        properties.write_text("".join(line for line in lines if "sasl.jaas" not in line))
        with console(kafka.bootstrap_servers, properties=properties) as address:
            context = patient(browser.new_context())
            page = context.new_page()
            page.goto(f"{address}/topics")
            page.get_by_label("User").fill("ann")
            page.get_by_label("Password").fill("wrong")
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("alert")).to_contain_text("password")
            page.get_by_label("Password").fill("ann-secret-1")
            page.get_by_role("button", name="Log in").click()
            expect(heading(page, "Topics")).to_be_visible()
            expect(page.get_by_text("ann", exact=True)).to_be_visible()
            page.get_by_role("button", name="Log out").click()
            expect(page.get_by_label("Password")).to_be_visible()
            context.close()
