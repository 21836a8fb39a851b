"""One of three broker processes is killed while pages are open: the pages show it without a reload.

How soon depends on the machine: the times are printed (`pytest -s`), and docs/console.md has some. No time is asserted;
tests/unit/console tests the intervals at which the console reads the cluster.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from chromium import Watch
from console_process import NodeProcesses, console, create_topics, node_processes, tool

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from harness.patience import PATIENCE_S, wait_until
from playwright.sync_api import BrowserContext, Page, expect

expect.set_options(timeout=PATIENCE_S * 1000)

NOTE_WHEN = """(wanted) => {
    window.seenAt = {};
    const look = () => {
        const text = document.querySelector("main").textContent;
        for (const words of wanted) if (text.includes(words)) window.seenAt[words] ??= Date.now();
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
UNREADABLE = "The cluster cannot be read"


def watched(context: BrowserContext, address: str, path: str) -> Watch:
    watch = Watch(context.new_page(), address)
    watch.page.goto(address + path)
    expect(watch.page.locator(".live")).to_have_text("live")
    return watch


def seen_after(page: Page, words: str, killed_at: float) -> float:
    expect(page.locator("main")).to_contain_text(words)
    seconds = float(page.evaluate("words => window.seenAt[words]", words)) / 1000 - killed_at
    assert page.evaluate("words => window.seenAt[words] ?? null", UNREADABLE) is None, (
        "the page shows the cluster as unreadable, but two brokers are up"
    )
    return seconds


@pytest.mark.parametrize("is_controller", [False, True], ids=["a broker", "the controller"])
def test_a_killed_broker_is_shown_on_open_pages(context: BrowserContext, tmp_path: Path, is_controller: bool) -> None:
    with node_processes(tmp_path / "cluster") as nodes, console(nodes.bootstrap_servers) as address:
        create_topics(nodes.bootstrap_servers, {"orders": 6}, replicas=3)
        topic = f"{address}/api/topics/orders/partitions"
        wait_until(lambda: context.request.get(topic).ok, "the console has read the topic")
        overview, cluster = (watched(context, address, path) for path in ("/", "/cluster?topic=orders"))
        expect(cluster.page.locator(".matrix .cell.leader")).to_have_count(6)
        expect(overview.page.get_by_text("All is well")).to_be_visible()
        victim = choose(nodes, is_controller)
        down = f"Broker {victim} is down"
        silent = f"Broker {victim} does not answer"
        overview.page.evaluate(NOTE_WHEN, [down, silent, UNREADABLE])
        cluster.page.evaluate(NOTE_WHEN, [down, silent, UNREADABLE])
        killed_at = time.time()
        nodes.kill(victim)
        times = {
            "overview": seen_after(overview.page, down, killed_at),
            "cluster": seen_after(cluster.page, down, killed_at),
        }
        for name, page in (("overview", overview.page), ("cluster", cluster.page)):
            silent_at = page.evaluate("words => window.seenAt[words] ?? null", silent)
            first = "" if silent_at is None else f", as silent after {silent_at / 1000 - killed_at:.2f} s"
            print(f"{name}: the killed broker is shown as down after {times[name]:.2f} s{first}")
        brokers = overview.page.get_by_role("table", name="Brokers").get_by_role("row")
        expect(brokers.filter(has_text="down")).to_have_count(1)
        expect(cluster.page.get_by_role("region", name=f"Broker {victim}")).to_contain_text("down")
        expect(cluster.page.locator(".matrix .cell.leader:not(.gone)")).to_have_count(6)  # others lead now
        nodes.run("restart", str(victim))
        expect(cluster.page.get_by_role("list", name="What happened")).to_contain_text(f"Broker {victim} is up")
        expect(brokers.filter(has_text="down")).to_have_count(0)
        overview.check()
        cluster.check()


def choose(nodes: NodeProcesses, is_controller: bool) -> int:
    leader = tool(nodes.bootstrap_servers, "cluster", "describe")["controller"]["leader"]
    return int(leader) if is_controller else next(node for node in (3, 2, 1) if node != leader)
