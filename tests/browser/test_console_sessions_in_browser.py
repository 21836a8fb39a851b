"""A session that ends while a page is open: the page shows the login, and returns after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import Watch, patient

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from harness.patience import PATIENCE_S
from playwright.sync_api import Browser, Page, expect

expect.set_options(timeout=PATIENCE_S * 1000)

END_SESSION = """async () => {
    const { token } = await (await fetch("/api/session")).json();
    await fetch("/api/logout", { method: "POST", headers: { "x-console-token": token } });
}"""
"""End the session as another tab does, or the server after half an hour: the page is not notified."""


@pytest.fixture
def ann(browser: Browser, secure_address: str) -> Iterator[Page]:
    context = patient(browser.new_context())
    watch = Watch(context.new_page(), secure_address)
    watch.page.goto(f"{secure_address}/topics")
    log_in(watch.page, "Topics")
    yield watch.page
    watch.check()
    context.close()


def log_in(page: Page, heading: str) -> None:
    page.get_by_label("User").fill("ann")
    page.get_by_label("Password").fill("ann-secret-1")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name=heading, exact=True)).to_be_visible()


@pytest.mark.parametrize(("path", "heading"), [("/topics", "Topics"), ("/", "Overview")])
def test_an_ended_session_leads_to_the_login_and_back_to_the_page(
    ann: Page, secure_address: str, path: str, heading: str
) -> None:
    """The list of topics sends requests regularly; the overview has only its event stream, which is refused."""
    ann.goto(secure_address + path)
    expect(ann.get_by_role("heading", level=1, name=heading, exact=True)).to_be_visible()
    expect(ann.get_by_text("ann", exact=True)).to_be_visible()
    ann.evaluate(END_SESSION)
    expect(ann.get_by_label("Password")).to_be_visible()
    expect(ann.get_by_text("ann", exact=True)).to_have_count(0)
    asked: list[str] = []
    ann.on("request", lambda request: asked.append(request.url))
    log_in(ann, heading)
    assert asked[0].endswith("/api/login"), "the page sent other requests while the login was shown"
    assert ann.url == secure_address + path
