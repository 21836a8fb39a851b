"""Write the pictures of docs/console.md: `make screenshots`. A cluster, a shop, the console, Chromium."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from chromium import chromium
from console_process import Shop, console, create_topics
from harness.patience import wait_until
from playwright.sync_api import Browser, Page, expect, sync_playwright

from moldau.testing import TestCluster, cluster

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE, PHONE = 1440, 390
BYTES_MAX = 150_000
SAMPLES = 12
Scheme = Literal["light", "dark"]


def pictures(browser: Browser, address: str, kafka: TestCluster, folder: Path) -> None:
    picture(browser, address, folder / "console-records.png", "/topics/orders/records", WIDE, 800, "dark", unfold)
    picture(browser, address, folder / "console-learn.png", "/learn", WIDE, 760, "dark", learn)
    picture(browser, address, folder / "console-topics-phone.png", "/topics", PHONE, 800, "light", wait_for_links)
    picture(browser, address, folder / "console-group-phone.png", "/groups/billing", PHONE, 800, "dark", wait_for_links)
    picture(browser, address, folder / "console-overview.png", "/", WIDE, 800, "light", wait_for_history)
    picture(browser, address, folder / "console-group.png", "/groups/billing", WIDE, 800, "light", wait_for_history)
    victim = next(node for node in (3, 2, 1) if node != kafka.controller())
    kill = killer(kafka, victim)
    picture(browser, address, folder / "console-cluster.png", "/cluster", WIDE, 800, "dark", kill)


def picture(
    browser: Browser,
    address: str,
    file: Path,
    path: str,
    width: int,
    height: int,
    scheme: Scheme,
    act: Callable[[Page], None],
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(address + path)
    expect(page.locator("main h1")).to_be_visible()
    act(page)
    page.screenshot(path=file)
    page.close()
    size = file.stat().st_size
    print(f"{file.name}: {size:,} bytes")
    assert size <= BYTES_MAX, f"{file} is too large for the repository"


def wait_for_links(page: Page) -> None:
    expect(page.locator("main a").first).to_be_visible()


def wait_for_history(page: Page) -> None:
    expect(page.locator(".chart .series").first).to_be_visible()
    expect(page.locator(".live")).to_have_text("live")
    length = "fetch('/api/overview').then(answer => answer.json()).then(data => data.history.times_ms.length)"
    wait_until(lambda: page.evaluate(length) >= SAMPLES, "there are enough samples for a chart", every_s=1)


def unfold(page: Page) -> None:
    page.locator("details.record summary").first.click()
    expect(page.locator("pre.json")).to_be_visible()


def learn(page: Page) -> None:
    page.get_by_role("button", name="Create the topic").click()
    for _ in range(3):
        page.get_by_role("button", name="One consumer more").click()
    expect(page.locator(".stage .tie.own")).to_have_count(4)
    expect(page.locator(".stage .node.idle")).to_have_count(0)
    for _ in range(3):
        page.get_by_role("button", name="10 by key").click()
        expect(page.get_by_text("Acknowledged")).to_be_visible()
    expect(page.locator(".stage .record.read").nth(20)).to_be_visible()


def killer(kafka: TestCluster, victim: int) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        expect(page.locator(".live")).to_have_text("live")
        kafka.kill(victim)
        expect(page.get_by_role("region", name=f"Broker {victim}")).to_contain_text("down")
        expect(page.locator(".matrix .cell.leader.gone")).to_have_count(0)

    return act


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=IMAGES)
    folder = parser.parse_args().to
    path = chromium()
    assert path is not None, "there is no Chromium (Debian: apt-get install chromium)"
    expect.set_options(timeout=120_000)
    with cluster() as kafka, sync_playwright() as driver:
        create_topics(kafka.bootstrap_servers, {"orders": 6, "payments": 3, "clicks": 12, "shipments": 2}, replicas=3)
        shop = Shop(kafka.bootstrap_servers)
        shop.write_orders(2_000)
        shop.commit_once("warehouse", "orders", 400)
        shop.start_group("billing", "orders", members=3)
        shop.start_orders(per_second=50)
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with console(kafka.bootstrap_servers) as address:
            pictures(browser, address, kafka, folder)
        browser.close()
        shop.close()


if __name__ == "__main__":
    main()
