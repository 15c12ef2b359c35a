"""A real browser for the tests of pages: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Alone and offline: the browser itself should ask the network for nothing.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _missing(what: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; where there is none, the tests that need one are skipped, and in CI they fail."""
    try:
        from playwright import sync_api as playwright
    except ModuleNotFoundError:
        _missing("Playwright is not installed")
    if CHROMIUM is None:
        _missing("no Chromium here (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page opened from disk, with everything that it complained about or asked for."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def open_file(browser: Any, file: Path, **context: Any) -> Opened:
    page = browser.new_page(**({"viewport": {"width": 1300, "height": 900}} | context))
    opened = Opened(page)
    page.on("console", lambda message: opened.problems.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: opened.problems.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("body.ready")
    return opened
