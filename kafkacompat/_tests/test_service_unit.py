"""The unit for systemd: systemd's own check, and what the node promises it."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from kafkacompat.__main__ import main
from kafkacompat.cli.service_manager import notify_ready
from kafkacompat.cli.settings import load_settings

CHECKOUT = Path(__file__).resolve().parents[2]
UNIT = CHECKOUT / "deploy" / "systemd" / "kafkacompat.service"
PAGE = CHECKOUT / "docs" / "how-to" / "run-as-a-service.md"


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(UNIT.read_text(encoding="utf-8"))
    return parsed


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """With a program that exists on this machine."""
    text = UNIT.read_text(encoding="utf-8").replace("/opt/kafkacompat/bin/kafkacompat", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, told) == (0, []), done.stderr


def test_systemd_waits_for_the_node_and_stops_it_as_it_wants_to_be_stopped(
    unit: configparser.ConfigParser,
) -> None:
    service = unit["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) > 9, "a node that reaches no controller stops after nine seconds"
    assert service["ExecStart"].split()[1] == "start"


def test_the_unit_gives_no_rights_that_a_broker_does_not_need(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["User"] not in ("", "root")
    assert service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict"
    assert service["StateDirectory"] == "kafkacompat"
    assert "AF_INET6" in service["RestrictAddressFamilies"]


def test_the_page_makes_a_node_that_the_unit_can_start(tmp_path: Path) -> None:
    """A node with a settings file does not format its directories, so the page formats them before the first start."""
    page = PAGE.read_text(encoding="utf-8")
    (settings,) = re.findall(r"```properties\n(.*?)```", page, re.DOTALL)
    assert "log.dirs=/var/lib/kafkacompat/" in settings
    commands = next(each for each in page.split("```") if "useradd" in each)
    format_at, start_at = commands.index("kafkacompat format"), commands.index("systemctl enable")
    assert format_at < start_at
    (words,) = re.findall(r"bin/kafkacompat (format .*)", commands)
    path = tmp_path / "server.properties"
    path.write_text(settings.replace("/var/lib/kafkacompat", str(tmp_path)), encoding="utf-8")
    assert main([*words.split()[:-1], str(path)]) == 0
    config = load_settings(str(path), [])
    assert (config.unknown, config.without_effect) == ((), ())
    assert (tmp_path / "data" / "meta.properties").exists()


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_node_that_serves_tells_the_service_manager(
    is_abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"@kafkacompat-{os.getpid()}" if is_abstract else f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + path[1:] if is_abstract else path)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        notify_ready("node 1 serves")
        assert manager.recv(1024) == b"READY=1\nSTATUS=node 1 serves\n"


def test_a_service_manager_that_is_gone_ends_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/nobody")
    notify_ready("node 1 serves")
    assert "cannot be told" in caplog.text
