"""`kafkacompat testserver` as a process: one line of JSON, and an end that leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
TIME_LIMIT_S = 60


def started(*options: str, **terms: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kafkacompat", "testserver", *options]
    return subprocess.Popen(
        command,
        stdin=terms.pop("stdin", subprocess.PIPE),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **terms,
    )


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for each in found:
        each.kill()
        each.communicate()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_one_line_of_json_says_everything(processes: list[subprocess.Popen[bytes]]) -> None:
    """It ends when its standard input does."""
    process = started("--settings", "num.partitions=3", "--version", "3.9")
    processes.append(process)
    assert process.stdout is not None
    info = json.loads(process.stdout.readline())
    assert info.keys() == {"bootstrap_servers", "control", "token"}
    assert info["token"] not in Path(f"/proc/{process.pid}/cmdline").read_text()
    request = urllib.request.Request(
        f"{info['control']}/topics/orders/records",
        b'{"values": ["tea"]}',
        {"Authorization": f"Bearer {info['token']}"},
    )
    assert json.loads(urllib.request.urlopen(request, timeout=TIME_LIMIT_S).read()) == {}
    asked = urllib.request.Request(
        f"{info['control']}/topics", headers={"Authorization": f"Bearer {info['token']}"}
    )
    assert json.loads(urllib.request.urlopen(asked, timeout=TIME_LIMIT_S).read()) == [
        {"name": "orders", "partitions": 3}
    ]
    rest, errors = process.communicate(timeout=TIME_LIMIT_S)
    assert (process.returncode, rest, errors) == (0, b"", b"")
    for address in (info["bootstrap_servers"], info["control"]):
        assert not is_listening(int(address.rpartition(":")[2]))


def test_a_file_has_the_token_while_it_runs(tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    """Only its owner can read it. A signal ends the command, and the end of /dev/null does not."""
    path = tmp_path / "info.json"
    process = started("--info-file", str(path), stdin=subprocess.DEVNULL)
    processes.append(process)
    while not path.exists():
        assert process.poll() is None
    info = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_listening(int(info["control"].rpartition(":")[2]))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=TIME_LIMIT_S) == (b"", b"")
    assert process.returncode == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--settings", "no.such=1"], 1, "no.such"),
        (["--settings", "x"], 2, "NAME=VALUE"),
        (["--version", "1.0"], 1, "1.0"),
        (["--flavor", "vanilla"], 1, "vanilla"),
        (["--nodes", "0"], 2, "--nodes"),
        (["--port", "70000"], 2, "--port"),
        (["--info-file", "/no/such/folder/x"], 1, "/no/such/folder"),
    ],
)
def test_what_it_cannot_do_is_said(options: list[str], status: int, text: str) -> None:
    process = started(*options)
    said, errors = process.communicate(timeout=TIME_LIMIT_S)
    assert (process.returncode, said) == (status, b"")
    assert text in errors.decode()
    assert "Traceback" not in errors.decode()


def test_no_other_command_reaches_the_control_api() -> None:
    """Of all modules, only those of the API itself and this command name it."""
    naming = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "_tests" not in path.parts
        and re.search(r"testing(\.| import )control", path.read_text(encoding="utf-8"))
    }
    others = {each for each in naming if not each.startswith("testing/control")}
    assert others == {"cli/testserver.py"}
