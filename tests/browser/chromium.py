"""Finds Chromium, and checks that a page does nothing that it must not do."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def patient(context: BrowserContext) -> BrowserContext:
    """Playwright gives up after 30 seconds by itself; on a busy machine that is too soon."""
    context.set_default_timeout(PATIENCE_S * 1000)
    return context


class Watch:
    """Records what a page must never do: log an error, raise an exception, or send a request to another host.

    Chromium itself logs each response with an error status. That is not an error of the page, which shows it.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        host = urlsplit(address).netloc
        page.on("console", lambda message: self._note(message.type == "error", f"console: {message.text}"))
        page.on("pageerror", lambda error: self._note(True, f"error: {error}"))
        page.on("request", lambda request: self._note(urlsplit(request.url).netloc != host, f"requested {request.url}"))

    def _note(self, wrong: bool, words: str) -> None:
        if wrong and not words.startswith(("requested data:", "requested blob:", "console: Failed to load resource")):
            self.complaints.append(words)

    def check(self) -> None:
        assert self.complaints == []
