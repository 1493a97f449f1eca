"""The project's commands with --command-config, against a listener that requires authentication."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.harness.ports import free_port
from interop_tests.security.sasl_talks import MODULES, PASSWORD, USER, make_user, settings_of

pytestmark = pytest.mark.needs_control
COMMAND_S = 40


@pytest.fixture
def address(make_broker: MakeBroker) -> str:
    """The only listener that the test uses."""
    broker = make_broker(start=False)
    port = free_port()
    broker.settings |= settings_of(broker, port)
    broker.start()
    make_user(broker)
    return f"127.0.0.1:{port}"


def client_file(folder: Path, mechanism: str, password: str = PASSWORD) -> Path:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    path = folder / f"{mechanism}-{len(password)}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={MODULES}{module} required \\\n  username="{USER}" password="{password}";\n'
    )
    return path


def run(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafkacompat", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=COMMAND_S)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_commands_get_in_by_a_file_of_properties(address: str, tmp_path: Path, mechanism: str) -> None:
    how = ("--bootstrap", address, "--command-config", client_file(tmp_path, mechanism))
    assert run("topics", *how, "create", "made", "--partitions", "2").returncode == 0
    listed = run("topics", "list", *how)
    assert "made" in listed.stdout, listed
    said = run("produce", "made", *how, given="one\ntwo\n")
    assert said.returncode == 0, said
    heard = run("consume", "made", *how, "--from-beginning", "--max-messages", "2", "--group", "readers")
    assert sorted(heard.stdout.split()) == ["one", "two"], heard
    assert "readers" in run("groups", "list", *how).stdout
    assert "1" in run("quorum", "describe", *how).stdout


def test_a_wrong_password_is_told_at_once_and_not_repeated(address: str, tmp_path: Path) -> None:
    wrong = "n0t-this-0ne"
    refused = run(
        "topics", "list", "--bootstrap", address, "--command-config", client_file(tmp_path, "PLAIN", wrong)
    )
    assert refused.returncode == 1
    assert f"authentication with {address} failed: Authentication failed" in refused.stderr
    assert wrong not in refused.stderr + refused.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("security.protocol=TLS\n", "security.protocol"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n", "sasl.jaas.config must be set"),
        ("security.protocol=\\u00zz\n", "malformed"),
    ],
)
def test_a_file_that_does_not_say_how_to_connect(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    refused = run("topics", "list", "--bootstrap", "127.0.0.1:1", "--command-config", file)
    assert refused.returncode == 1
    assert told in refused.stderr.lower() + refused.stderr, refused


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    refused = run("topics", "list", "--command-config", missing)
    assert refused.returncode == 1
    assert f"cannot read the file {missing} of --command-config" in refused.stderr


def test_the_generator_and_the_collector_get_in_by_the_same_file(address: str, tmp_path: Path) -> None:
    how = ("--bootstrap", address, "--command-config", client_file(tmp_path, "SCRAM-SHA-512"))
    log = tmp_path / "access.log"
    sent = run("pipeline", "generate", *how, "--count", "50", "--at-once", "--access-log", log)
    assert sent.returncode == 0, sent
    shipped = run("pipeline", "collect", log, *how, "--state", tmp_path / "state", "--until-end")
    assert shipped.returncode == 0, shipped
    lines = len(log.read_text().splitlines())
    heard = run("consume", "logs.raw", *how, "--from-beginning", "--max-messages", str(lines))
    assert len(heard.stdout.splitlines()) == lines
    wrong = client_file(tmp_path, "PLAIN", "n0t-this-0ne")
    refused = run(
        "pipeline", "generate", "--bootstrap", address, "--command-config", wrong, "--count", "1", "--at-once"
    )
    assert refused.returncode == 1
    assert "n0t-this-0ne" not in refused.stderr + refused.stdout
