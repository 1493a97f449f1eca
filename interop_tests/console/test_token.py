"""A console that other machines can reach requires the token that it has printed."""

from __future__ import annotations

from pathlib import Path

from selenium import webdriver

from interop_tests.console.page import Page
from interop_tests.console.process import ConsoleProcess

PATHS = (
    "/",
    "/api",
    "/api/results",
    "/api/cluster",
    "/api/records?topic=t",
    "/health",
    "/metrics",
    "/static/app.js",
)


def test_a_console_beyond_loopback_asks_for_its_token(bootstrap: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    console = ConsoleProcess(bootstrap, log, "0.0.0.0").start()
    try:
        assert len(console.token) > 40
        for path in PATHS:
            assert console.get(path).status == 401, path
            assert console.get(path, Authorization="Bearer another").status == 401, path
            assert console.get(path, Authorization=f"Bearer {console.token}").status in (200, 404, 503), path
        assert console.stop() == 0
        assert console.token not in log.read_text()
    finally:
        console.kill()


def test_a_browser_logs_in_by_the_form(bootstrap: str, tmp_path: Path, chromium: webdriver.Chrome) -> None:
    """Without the token the page shows the form and nothing else. The cookie lasts over a reload."""
    console = ConsoleProcess(bootstrap, tmp_path / "log", "0.0.0.0").start()
    page = Page(chromium, console.address)
    try:
        page.open()
        assert "The console printed its token when it started" in page.wait_for("body", "Token")
        assert not page.driver.find_elements("css selector", "#health")
        for token, shown in (("another", "This is not the token."), (console.token, "healthy")):
            page.element("input[name=token]").send_keys(token)
            page.click("button")
            page.wait_for("body", shown)
        page.open()
        page.wait_for("#health", "healthy")
        (cookie,) = page.driver.get_cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert console.token not in page.driver.current_url
    finally:
        page.driver.get("about:blank")
        page.driver.delete_all_cookies()
        page.complaints()
        console.kill()
