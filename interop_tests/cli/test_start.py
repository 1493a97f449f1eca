"""`kafkacompat start` and `format`: one line when the node serves, one clear error line when it cannot, exit status 0
on SIGTERM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.cli.command import command_line, output_of, refusal_of, run
from interop_tests.harness.broker import (
    APACHE,
    BrokerProcess,
    chosen_kind,
    single_node_settings,
)
from interop_tests.harness.ports import free_port
from interop_tests.harness.raw_kafka import create_topic, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.wire import Connection

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="these commands start kafkacompat and nothing else"),
]

CLUSTER_ID = "c29tZS1jbHVzdGVyLWlkMQ"
Start = Callable[..., "Started"]


class Started:
    """A running `kafkacompat start` that has printed its line."""

    def __init__(self, words: list[str], cwd: Path) -> None:
        self.errors_path = cwd / "errors"
        with open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen(
                command_line("start", *words), stdout=subprocess.PIPE, stderr=errors, cwd=cwd, text=True
            )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    @property
    def errors(self) -> str:
        return self.errors_path.read_text()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """(exit status, further output)."""
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=30)
        return self.process.returncode, rest


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(*words) runs the command until it prints its first line. The process is killed when the test ends."""
    running: list[Started] = []

    def make(*words: str) -> Started:
        started = Started(list(words), tmp_path)
        running.append(started)
        return started

    yield make
    for each in running:
        each.process.kill()
        each.process.wait()


@pytest.fixture
def ports() -> tuple[int, int]:
    return free_port(), free_port()


def overrides(ports: tuple[int, int], data: Path, **more: str) -> list[str]:
    """The --override arguments of a node with these ports. more: settings with _ instead of dots."""
    port, controller_port = ports
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(data),
    } | {name.replace("_", "."): value for name, value in more.items()}
    return [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]


@pytest.fixture
def properties(tmp_path: Path, ports: tuple[int, int]) -> Path:
    """A server.properties for a directory that is not formatted."""
    path = tmp_path / "server.properties"
    settings = single_node_settings(*ports, tmp_path / "data")
    path.write_text("# a comment\n" + "".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def test_one_line_when_it_serves_and_status_0_on_sigterm(
    start: Start, ports: tuple[int, int], tmp_path: Path
) -> None:
    node = start(*overrides(ports, tmp_path / "data"))
    assert f"PLAINTEXT://127.0.0.1:{ports[0]}" in node.line
    with Connection(f"127.0.0.1:{ports[0]}") as connection:
        assert connection.call("ApiVersions", 0, {})["ErrorCode"] == 0
    assert node.end() == (0, "")
    assert node.errors == ""


def test_an_interrupt_is_a_clean_stop_too(start: Start, ports: tuple[int, int], tmp_path: Path) -> None:
    assert start(*overrides(ports, tmp_path / "data")).end(signal.SIGINT) == (0, "")


def test_without_a_file_data_goes_below_the_working_directory(
    start: Start, ports: tuple[int, int], tmp_path: Path
) -> None:
    words = overrides(ports, tmp_path)
    without_log_dirs = words[: words.index(f"log.dirs={tmp_path}") - 1]
    assert "kafkacompat-data" in start(*without_log_dirs).line
    assert (tmp_path / "kafkacompat-data" / "meta.properties").exists()


def test_settings_that_will_not_do_what_one_expects_are_named(
    start: Start, ports: tuple[int, int], tmp_path: Path
) -> None:
    """An unknown setting, and a setting of Kafka without effect."""
    node = start(*overrides(ports, tmp_path / "data", no_such_setting="1", num_io_threads="9"))
    warnings = node.errors.splitlines()
    assert any("no.such.setting" in line and "ignored" in line for line in warnings), warnings
    assert any("num.io.threads" in line and "without effect" in line for line in warnings), warnings
    assert all("] WARNING the setting " in line for line in warnings), warnings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("log.segment.bytes", "many"),
        ("log.retention.ms", "1.5"),
        ("log.cleanup.policy", "sometimes"),
        ("compression.type", "rar"),
        ("listeners", "PLAINTEXT//nowhere"),
        ("node.id", "-5"),
        ("process.roles", "broker,janitor"),
        ("auto.create.topics.enable", "perhaps"),
        ("num.partitions", "0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_settings_name(
    setting: str, value: str, ports: tuple[int, int], tmp_path: Path
) -> None:
    said = refusal_of("start", *overrides(ports, tmp_path / "data"), "--override", f"{setting}={value}")
    assert setting in said
    assert not (tmp_path / "data").exists()


def test_an_override_needs_an_equals_sign() -> None:
    assert "--override" in refusal_of("start", "--override", "listeners")
    assert run("start", "--override").returncode == 2


def test_an_unknown_log_level_is_named(tmp_path: Path) -> None:
    done = run("start", environment={"KAFKACOMPAT_LOG": "loud"}, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "KAFKACOMPAT_LOG" in done.stderr


def test_a_log_in_a_file_is_json_on_request(start: Start, ports: tuple[int, int], tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    node = start("-v", "--log-file", str(log), "--log-format", "json", *overrides(ports, tmp_path / "data"))
    assert node.end() == (0, "")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert entries
    for entry in entries:
        assert {"time", "level", "logger", "message", "node"} <= set(entry)
    assert {entry["node"] for entry in entries} == {1}
    assert node.errors == ""


def test_a_full_disk_of_the_log_does_not_end_the_node(
    start: Start, ports: tuple[int, int], tmp_path: Path
) -> None:
    node = start("-v", "--log-file", "/dev/full", *overrides(ports, tmp_path / "data"))
    assert "serving" in node.line
    create_topic(f"127.0.0.1:{ports[0]}", "after")
    assert node.end() == (0, "")
    assert node.errors == "kafkacompat: the log /dev/full cannot be written: No space left on device\n"


def test_verbose_logs_in_one_form(start: Start, ports: tuple[int, int], tmp_path: Path) -> None:
    node = start("--verbose", *overrides(ports, tmp_path / "data"))
    assert node.end()[0] == 0
    for line in node.errors.splitlines():
        assert line.startswith("["), line
        assert line.split("] ", 1)[1].split()[0] in ("INFO", "WARNING"), line


def test_a_missing_settings_file_is_named() -> None:
    assert "/nowhere/server.properties" in refusal_of("start", "/nowhere/server.properties")


def test_a_taken_port_is_named_with_its_setting(ports: tuple[int, int], tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", ports[0]))
        holder.listen()
        said = refusal_of("start", *overrides(ports, tmp_path / "data"))
    assert "listeners" in said
    assert f"127.0.0.1:{ports[0]}" in said
    assert "already in use" in said
    assert "Errno" not in said


def test_an_address_of_another_machine_is_named(ports: tuple[int, int], tmp_path: Path) -> None:
    listeners = f"PLAINTEXT://192.0.2.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}"
    said = refusal_of("start", *overrides(ports, tmp_path / "data", listeners=listeners))
    assert "listeners" in said
    assert "192.0.2.1" in said


def test_a_directory_in_use_is_named_and_its_user_goes_on(
    start: Start, ports: tuple[int, int], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    start(*overrides(ports, data))
    said = refusal_of("start", *overrides((free_port(), free_port()), data))
    assert str(data) in said
    assert "log.dirs" in said
    with Connection(f"127.0.0.1:{ports[0]}") as connection:
        assert connection.call("ApiVersions", 0, {})["ErrorCode"] == 0


def test_a_directory_in_use_by_apache_kafka_is_named(tmp_path: Path) -> None:
    apache = BrokerProcess(APACHE, tmp_path / "apache")
    apache.start()
    try:
        said = refusal_of("start", *overrides((free_port(), free_port()), apache.data_dir))
        assert str(apache.data_dir) in said
        assert "log.dirs" in said
    finally:
        apache.kill()


def test_a_directory_of_another_node_is_named(start: Start, ports: tuple[int, int], tmp_path: Path) -> None:
    data = tmp_path / "data"
    start(*overrides(ports, data)).end()
    voters = f"2@127.0.0.1:{ports[1]}"
    said = refusal_of("start", *overrides(ports, data, node_id="2", controller_quorum_voters=voters))
    assert str(data) in said
    assert "node.id" in said


def test_directories_of_two_clusters_are_named(start: Start, ports: tuple[int, int], tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    for data in (first, second):
        start(*overrides(ports, data)).end()
    said = refusal_of("start", *overrides(ports, Path(f"{first},{second}")))
    assert str(second) in said
    assert "cluster.id" in said


def test_the_same_directory_under_two_names_is_refused(
    start: Start, ports: tuple[int, int], tmp_path: Path
) -> None:
    """A copied directory has the id of the original. If two nodes had the same directory id, partitions would be lost."""
    first, second = tmp_path / "one", tmp_path / "two"
    start(*overrides(ports, first)).end()
    shutil.copytree(first, second)
    assert "directory.id" in refusal_of("start", *overrides(ports, Path(f"{first},{second}")))


def test_a_file_in_place_of_a_directory_is_named(ports: tuple[int, int], tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("no directory")
    said = refusal_of("start", *overrides(ports, data))
    assert str(data) in said
    assert "log.dirs" in said


def test_damaged_meta_properties_are_named(start: Start, ports: tuple[int, int], tmp_path: Path) -> None:
    data = tmp_path / "data"
    start(*overrides(ports, data)).end()
    (data / "meta.properties").write_text("version=1\nnode.id=1\n")
    said = refusal_of("start", *overrides(ports, data))
    assert str(data / "meta.properties") in said
    (data / "meta.properties").write_text("version=7\nnode.id=1\n")
    assert "version 7" in refusal_of("start", *overrides(ports, data))


def test_a_directory_that_cannot_be_made_is_named(ports: tuple[int, int]) -> None:
    said = refusal_of("start", *overrides(ports, Path("/proc/kafkacompat")))
    assert "/proc/kafkacompat" in said
    assert "log.dirs" in said


def test_an_unformatted_directory_is_not_formatted_behind_a_files_back(
    properties: Path, tmp_path: Path
) -> None:
    said = refusal_of("start", str(properties))
    assert str(tmp_path / "data") in said
    assert "format" in said
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    assert "format" in refusal_of("start", str(properties))


def test_format_makes_what_start_takes(properties: Path, tmp_path: Path, start: Start) -> None:
    said = output_of("format", "-t", CLUSTER_ID, "-c", str(properties))
    assert f"Formatting {tmp_path / 'data'}" in said
    assert f"cluster.id={CLUSTER_ID}\n" in (tmp_path / "data" / "meta.properties").read_text()
    node = start(str(properties))
    assert node.line, node.errors
    assert node.end() == (0, "")
    assert "already formatted" in refusal_of("format", "-t", CLUSTER_ID, str(properties))
    again = output_of("format", "-t", CLUSTER_ID, str(properties), "--ignore-formatted")
    assert again == "All of the log directories are already formatted.\n"
    assert "cluster" in refusal_of("format", "-t", "another", str(properties), "--ignore-formatted")


def test_format_prints_the_id_it_chose(properties: Path, tmp_path: Path) -> None:
    last = output_of("format", str(properties)).splitlines()[-1]
    assert last in (tmp_path / "data" / "meta.properties").read_text().splitlines()
    second = tmp_path / "second"
    joined = ("--override", f"log.dirs={tmp_path / 'data'},{second}")
    output_of("format", str(properties), "--ignore-formatted", *joined)
    assert last in (second / "meta.properties").read_text().splitlines()


def test_format_asks_who_votes(properties: Path, tmp_path: Path) -> None:
    assert "controller.quorum.voters" in refusal_of("format", str(properties), "--standalone")
    dynamic = ("--override", "controller.quorum.voters=")
    said = refusal_of("format", str(properties), *dynamic)
    assert "--standalone" in said or "controller.quorum.voters" in said
    assert not (tmp_path / "data").exists()


def test_apache_kafka_takes_what_format_made(tmp_path: Path) -> None:
    """The other direction: kafkacompat serves a directory that kafka-storage formatted."""
    apache = BrokerProcess(APACHE, tmp_path / "apache")
    words = [word for name, value in apache.settings.items() for word in ("--override", f"{name}={value}")]
    output_of("format", "-t", CLUSTER_ID, *words)
    apache._formatted = True
    apache.start()
    try:
        create_topic(apache.bootstrap, "made-there")
        with Connection(apache.bootstrap) as connection:
            assert produce(connection, "made-there", BatchPlan([b"v"]))["ErrorCode"] == 0
        assert apache.stop() in (0, 143)
        ours = BrokerProcess("kafkacompat", apache.root)
        ours.settings = apache.settings
        ours.port, ours.controller_port = apache.port, apache.controller_port
        ours.start()
        try:
            read = output_of(
                "consume", "--bootstrap", ours.bootstrap, "made-there", "--from-beginning", "--until-end"
            )
            assert read == "v\n"
        finally:
            ours.kill()
    finally:
        apache.kill()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that is mounted read-only. File modes do not stop root."""
    from interop_tests.faults.mounts import mounted_tmpfs, remount

    with mounted_tmpfs(tmp_path / "mount", "8m") as path:
        remount(path, "ro")
        yield path


def test_a_read_only_directory_is_named(read_only: Path, ports: tuple[int, int]) -> None:
    said = refusal_of("start", *overrides(ports, read_only))
    assert str(read_only) in said
    assert "ead-only" in said
    assert os.listdir(read_only) == []
