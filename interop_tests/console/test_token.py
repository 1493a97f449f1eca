"""A console that other machines can reach requires the token that it has printed."""

from __future__ import annotations

from pathlib import Path

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
