"""The pure parts of `kafkacompat cluster`, `node` and `reassign`: layouts, settings, files, words for a person."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.cli import cluster as cluster_command
from kafkacompat.cli import node as node_command
from kafkacompat.cli.cluster import ANY_ACTION, OF_ACTION, add_arguments, load_same, run, start_all
from kafkacompat.cli.cluster_files import (
    BOTH,
    BROKER,
    ClusterFiles,
    Layout,
    Node,
    controllers_of,
    new_layout,
    new_node,
    property_line,
    replication_settings,
    settings_of,
)
from kafkacompat.cli.cluster_status import Answers, Report, changes_between, duration, rows_of, summary_of
from kafkacompat.cli.node_process import NodeProcesses, how_it_ended
from kafkacompat.cli.output import progress_bar, progress_text
from kafkacompat.cli.view import Broker, Partition, Quorum
from kafkacompat.config import ServerConfig
from kafkacompat.config.properties import parse_properties
from kafkacompat.failure import CommandFailed

IDS = [f"{number:022}" for number in range(1, 10)]


def layout(size: int = 3, **more: object) -> Layout:
    return new_layout(size, 9092, "cluster-id", IDS, **more)  # type: ignore[arg-type]


def test_the_first_three_nodes_are_controllers_too() -> None:
    made = layout(5)
    assert [(node.node_id, node.roles, node.port, node.controller_port) for node in made.nodes] == [
        (1, BOTH, 9092, 10092),
        (2, BOTH, 9093, 10093),
        (3, BOTH, 9094, 10094),
        (4, BROKER, 9095, 0),
        (5, BROKER, 9096, 0),
    ]
    assert controllers_of(made) == "127.0.0.1:10092,127.0.0.1:10093,127.0.0.1:10094"
    assert made.bootstrap.count(",") == 4


@pytest.mark.parametrize(
    ("size", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (7, "3", "2")]
)
def test_replication_fits_the_number_of_nodes(size: int, copies: str, in_sync: str) -> None:
    found = replication_settings(size)
    assert {value for name, value in found.items() if name.endswith("replication.factor")} == {copies}
    assert {value for name, value in found.items() if "min" in name} == {in_sync}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_nodes_settings_are_valid(size: int, tmp_path: Path) -> None:
    of_controllers = "controller.quorum.auto.join.enable"
    made = layout(size, racks=["a", "b"], overrides={"num.partitions": "7", of_controllers: "true"})
    for node in made.nodes:
        config = ServerConfig.from_properties(settings_of(made, node, tmp_path / "data"))
        assert (config.node_id, set(config.roles)) == (node.node_id, set(node.roles.split(",")))
        assert config.get_string("broker.rack") == ("a" if node.node_id % 2 else "b")
        assert config.get_int("num.partitions") == 7
        assert config.get_boolean(of_controllers) == node.is_controller
        assert not config.unknown


@pytest.mark.parametrize("size", [0, -1, 101])
def test_a_number_of_nodes_that_cannot_be(size: int) -> None:
    with pytest.raises(CommandFailed, match="--nodes takes 1 to 100"):
        layout(size)


def test_ports_end_somewhere() -> None:
    with pytest.raises(CommandFailed, match="leaves no port"):
        new_layout(2, 64_535, "c", IDS)


@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1))
def test_a_property_line_is_read_back_as_it_was_meant(value: str) -> None:
    (line,) = property_line("log.dirs", "/" + value).splitlines()
    assert parse_properties(line) == {"log.dirs": "/" + value}


def test_the_layout_is_read_as_it_was_saved(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "new" / "folder")
    assert not files.exists()
    with pytest.raises(CommandFailed, match="there is no cluster in"):
        files.load()
    made = layout(4, racks=["x"], overrides={"a": "b"})
    files.save(made)
    assert files.load() == made
    files.layout_path.write_text('{"nodes": [{"node_id": 1}]}')
    with pytest.raises(CommandFailed, match="cannot be read"):
        files.load()


def test_ids_of_removed_nodes_are_not_given_again() -> None:
    made = layout(3)
    smaller = made.with_node(new_node(made, 4, BROKER, IDS[3], None)).without_node(4)
    assert (smaller.highest_node_id, len(smaller.nodes)) == (4, 3)
    with pytest.raises(CommandFailed, match="there is no node 4; there are 1, 2, 3"):
        smaller.node(4)


def test_only_the_line_of_the_controllers_changes_in_a_users_file(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    made = layout(3)
    for node in made.nodes:
        files.write_settings(made, node, {"num.io.threads": "3"} if node.node_id == 2 else {})
    path = files.settings_path(2)
    assert "num.io.threads=3\n" in path.read_text()
    assert "num.io.threads" not in files.settings_path(1).read_text()
    before = "# mine\nlog.retention.hours = 1\n" + path.read_text()
    path.write_text(before)
    files.tell_of_controllers(made)
    assert path.read_text() == before
    files.tell_of_controllers(made.without_node(3))
    assert path.read_text() == before.replace(",127.0.0.1:10094", "")


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    with (
        files.locked("running", "somebody"),
        pytest.raises(CommandFailed, match="somebody"),
        files.locked("running", "somebody"),
    ):
        pass
    with files.locked("running", "somebody"):
        pass


@contextmanager
def full_disk() -> Iterator[None]:
    """Files can be opened and emptied, and nothing be written to them: what a full disk allows."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_files_as_they_are(tmp_path: Path) -> None:
    """Above all the settings, which are a user's."""
    files = ClusterFiles(tmp_path)
    made = layout(3)
    files.save(made)
    for node in made.nodes:
        files.write_settings(made, node, {})
    files.settings_path(1).chmod(0o600)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    changes = (
        lambda: files.save(made.without_node(3)),
        lambda: files.tell_of_controllers(made.without_node(3)),
        lambda: files.write_settings(made, made.node(2), {"num.io.threads": "3"}),
    )
    for change in changes:
        with full_disk(), pytest.raises(CommandFailed, match=rf"cannot write {tmp_path}.*: File too large"):
            change()
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    files.tell_of_controllers(made.without_node(3))
    assert files.settings_path(1).stat().st_mode & 0o777 == 0o600


def test_settings_behind_a_link_are_changed_where_they_are(tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path / "cluster")
    made = layout(2)
    files.write_settings(made, made.node(1), {})
    files.write_settings(made, made.node(2), {})
    kept = tmp_path / "kept.properties"
    files.settings_path(1).rename(kept)
    files.settings_path(1).symlink_to(kept)
    files.tell_of_controllers(made.without_node(2))
    assert files.settings_path(1).is_symlink()
    assert "quorum.bootstrap.servers=127.0.0.1:10092\n" in kept.read_text()


def test_a_node_whose_files_are_lost_keeps_nobody_from_new_controllers(tmp_path: Path) -> None:
    """They are added because it is lost."""
    files = ClusterFiles(tmp_path)
    made = layout(3)
    for node in made.nodes:
        files.write_settings(made, node, {})
    files.settings_path(2).unlink()
    files.tell_of_controllers(made.without_node(1))
    assert "127.0.0.1:10092" not in files.settings_path(3).read_text()
    assert not files.settings_path(2).exists()
    files.settings_path(2).mkdir()
    with pytest.raises(CommandFailed, match=f"cannot read {files.settings_path(2)}: Is a directory"):
        files.tell_of_controllers(made)


class Nodes:
    """Processes that sleep in place of nodes."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = ClusterFiles(tmp_path / "cluster")
        self.layout = layout(3)
        self.processes = NodeProcesses(self.files)
        self.started: list[subprocess.Popen[bytes]] = []
        for node in self.layout.nodes:
            self.files.write_settings(self.layout, node, {})
        sleeper = tmp_path / "sleeper"
        sleeper.write_text('#!/bin/sh\nread line < "$0.never"\n')
        sleeper.chmod(0o755)
        os.mkfifo(f"{sleeper}.never")
        monkeypatch.setattr(sys, "executable", str(sleeper))
        started = self.started

        class Remembered(subprocess.Popen):  # type: ignore[type-arg]
            def __init__(self, *arguments: object, **options: object) -> None:
                super().__init__(*arguments, **options)  # type: ignore[call-overload]
                started.append(self)

        monkeypatch.setattr(subprocess, "Popen", Remembered)

    def close(self) -> None:
        for each in self.started:
            each.kill()
            each.wait()


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    made = Nodes(tmp_path, monkeypatch)
    yield made
    made.close()


def test_a_node_whose_pid_cannot_be_written_does_not_run(nodes: Nodes) -> None:
    """Nobody would find it again, and its next start would meet its locks."""
    node = nodes.layout.node(1)
    with full_disk(), pytest.raises(CommandFailed, match=r"cannot write .*node\.pid: File too large"):
        nodes.processes.start(node)
    (child,) = nodes.started
    assert child.returncode is not None
    assert nodes.processes.pid(node) is None
    assert nodes.processes.start(node) == nodes.processes.pid(node)


def test_nodes_are_started_without_one_that_cannot_be(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.files.settings_path(2).unlink()
    nodes.files.folder(2).rmdir()
    with pytest.raises(CommandFailed, match="node 2 cannot be started"):
        start_all(nodes.layout, nodes.processes, is_first_start=True)
    start_all(nodes.layout, nodes.processes, is_first_start=False)
    runs = [nodes.processes.pid(node) is not None for node in nodes.layout.nodes]
    assert runs == [True, False, True]
    assert "node 2 cannot be started: " in capsys.readouterr().err


def test_nodes_stop_though_nobody_reads_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C also ends the `| tee` behind the command."""
    stopped: list[int] = []

    def stop(nodes: Any, *, is_whole_cluster: bool) -> list[Any]:
        stopped.extend(each.node_id for each in nodes)
        return []

    processes = SimpleNamespace(pid=lambda node: 100 + node.node_id, stop=stop, statuses={})
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", gone)
        cluster_command.stop_all(layout(), cast(Any, processes))
    assert stopped == [1, 2, 3]


def test_a_cluster_whose_output_nobody_reads_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = layout()
    files = ClusterFiles(tmp_path)
    files.save(replace(made, nodes=tuple(replace(each, is_formatted=True) for each in made.nodes)))
    stopped: list[int] = []

    def nobody_reads(*_: object) -> int:
        raise BrokenPipeError

    for name in ("start_all", "wait_until_up"):
        monkeypatch.setattr(cluster_command, name, lambda *_, **__: None)
    monkeypatch.setattr(cluster_command, "watch", nobody_reads)
    monkeypatch.setattr(cluster_command, "stop_all", lambda found, _: stopped.append(len(found.nodes)))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(BrokenPipeError):
        cluster_command.run_cluster(files, parser.parse_args([]))
    assert stopped == [3]


def test_a_node_whose_adding_was_interrupted_does_not_begin_as_a_voter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The voters of the quorum do not know it."""
    first = layout()
    added = new_node(first, 4, "broker,controller", "d", None)
    files = ClusterFiles(tmp_path)
    files.save(first.with_node(added))
    made: list[tuple[int, bool]] = []

    def make(_: object, found: Layout, node: Node, *, is_first_set: bool) -> Layout:
        made.append((node.node_id, is_first_set))
        return found

    for name in ("start_all", "wait_until_up"):
        monkeypatch.setattr(cluster_command, name, lambda *_, **__: None)
    monkeypatch.setattr(cluster_command, "watch", lambda *_: 0)
    monkeypatch.setattr(cluster_command, "make_node", make)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert cluster_command.run_cluster(files, parser.parse_args([])) == 0
    assert made == [(1, True), (2, True), (3, True), (4, False)]


def test_a_layout_that_cannot_be_read_for_a_while_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes would go on without anybody who stops them."""
    made = layout()
    answers: list[Any] = [made, made, *[CommandFailed("too many open files")] * 2]
    ended = threading.Event()
    stopped: list[int] = []

    def load() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def look(found: Any, _: Any) -> Any:
        if len(answers) == 1:
            ended.set()
        return SimpleNamespace(layout=found, down=[])

    monkeypatch.setattr(cluster_command, "look", look)
    monkeypatch.setattr(cluster_command, "changes_between", lambda before, report: [])
    monkeypatch.setattr(cluster_command, "summary_of", lambda report: "")
    monkeypatch.setattr(cluster_command, "LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(cluster_command, "stop_all", lambda found, _: stopped.append(len(found.nodes)))
    files: Any = SimpleNamespace(load=load, root="data", client_option=lambda found: "")
    assert cluster_command.watch(files, cast(Any, None), ended) == 0
    assert (answers, stopped) == ([], [3])


def test_a_controller_stays_when_its_vote_is_in_doubt(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quorum may count on it already: of one voter and a new one, that is stopped, no majority is left."""
    nodes.files.save(nodes.layout)

    def lose_the_answer(*_: object) -> bytes:
        raise CommandFailed("the connection was closed")

    monkeypatch.setattr(node_command, "running_bootstrap", lambda *_: "127.0.0.1:9092")
    monkeypatch.setattr(node_command, "make_node", lambda files, made, *_, **__: made)
    monkeypatch.setattr(node_command, "wait_until_there", lambda *_: None)
    monkeypatch.setattr(node_command, "add_voter", lose_the_answer)
    joined = nodes.layout.with_node(new_node(nodes.layout, 4, BOTH, IDS[3], None))
    nodes.files.write_settings(joined, joined.node(4), {})
    arguments = argparse.Namespace(override=[], controller=True, rack=None)
    with pytest.raises(CommandFailed, match=r"was closed; node 4 stays.*quorum add 4 127\.0\.0\.1:10095"):
        node_command.add_node(nodes.files, nodes.processes, arguments)
    assert nodes.processes.pid(joined.node(4)) is not None
    assert [each.node_id for each in nodes.files.load().nodes] == [1, 2, 3, 4]
    assert "127.0.0.1:10095" in nodes.files.settings_path(1).read_text()


def report(**changes: object) -> Report:
    made = layout(3)
    partitions = [Partition("t", 0, 1, (1, 2), (1, 2), ()), Partition("t", 1, 2, (2, 3), (2,), (3,))]
    brokers = {each: Broker(each, "127.0.0.1", 9091 + each, None, each == 3) for each in (1, 2, 3)}
    quorum = Quorum(2, 5, {each: bytes(16) for each in (1, 2, 3)}, {}, {})
    whole = Report(
        made, {1: 11, 2: 12, 3: None}, {3: "was killed by SIGKILL"}, {1: 59.9, 2: 3_600.0, 3: 0.0},
        Answers(brokers, quorum, partitions),
    )  # fmt: skip
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_a_row_says_what_a_node_does() -> None:
    assert rows_of(report()) == [
        (1, BOTH, 11, "127.0.0.1:9092", "alive", "voter", "1", "1", "0", "59s"),
        (2, BOTH, 12, "127.0.0.1:9093", "alive", "leader", "1", "2", "0", "1h00m"),
        (3, BOTH, "down", "127.0.0.1:9094", "fenced", "voter", "0", "1", "1", "-"),
    ]
    assert summary_of(report()) == (
        "controller 2 is active; 2 partitions, 1 under-replicated, 0 without a leader; down: node 3 was killed by SIGKILL"
    )
    assert not report().is_whole
    assert summary_of(report(answers=None)) == "no broker answers"


def test_whole_is_a_cluster_with_everything_there() -> None:
    answers = report().answers
    assert answers is not None
    brokers = {each: replace(broker, is_fenced=False) for each, broker in answers.brokers.items()}
    whole = report(pids={1: 1, 2: 2, 3: 3}, answers=Answers(brokers, answers.quorum, answers.partitions[:1]))
    assert whole.is_whole
    assert not replace(whole, answers=Answers(brokers, None, [])).is_whole
    assert not replace(whole, answers=Answers({1: brokers[1]}, answers.quorum, [])).is_whole
    leaderless = replace(answers.partitions[0], leader=-1)
    assert not replace(whole, answers=Answers(brokers, answers.quorum, [leaderless])).is_whole


def test_each_change_of_a_cluster_is_said_once() -> None:
    before = report(pids={1: 11, 2: 12, 3: 13}, answers=None)
    assert changes_between(None, before) == [
        f"node {each} is running with pid {10 + each}" for each in (1, 2, 3)
    ]
    now = report()
    assert changes_between(before, now) == [
        "node 3 (pid 13) was killed by SIGKILL",
        "controller 2 is active",
        "1 partition is under-replicated",
    ]
    assert changes_between(now, now) == []
    again = report(pids={1: 11, 2: 99, 3: 14})
    assert changes_between(now, again) == [
        "node 2 (pid 12) has ended",
        "node 2 is running with pid 99",
        "node 3 is running with pid 14",
    ]
    assert changes_between(now, replace(now, answers=None)) == ["no broker answers"]
    assert changes_between(now, replace(now, pids={1: 11, 2: 12})) == [
        "node 3 is no longer part of the cluster"
    ]


def test_endings_and_durations_in_words() -> None:
    assert [how_it_ended(status) for status in (None, 0, 1, -9)] == [
        "has ended",
        "was stopped",
        "has ended with status 1",
        "was killed by SIGKILL",
    ]
    assert [duration(each) for each in (0.4, 61, 7_260, 90_000)] == ["0s", "1m01s", "2h01m", "1d01h"]


def test_progress_in_bytes_and_replicas() -> None:
    assert progress_bar(0, 10) == "[" + "." * 30 + "]"
    assert progress_bar(5, 10).count("#") == 15
    assert progress_bar(12, 10) == progress_bar(0, 0) == "[" + "#" * 30 + "]"
    assert (
        progress_text(9_000_000, 20_000_000, 1, 4, 5_000_000, 2.0)
        == "9.0 MB of 20.0 MB, 1 of 4 replicas, 2.5 MB/s, 4 s left"
    )
    assert progress_text(0, 20_000_000, 0, 4, 0, 0.0) == "0.0 MB of 20.0 MB, 0 of 4 replicas, 0.0 MB/s"


GIVEN = {
    "nodes": ["--nodes", "4"],
    "port": ["--port", "9192"],
    "racks": ["--racks", "a,b"],
    "secure": ["--secure"],
    "override": ["--override", "num.partitions=7"],
    "brokers": ["--brokers", "2"],
    "throttle": ["--throttle", "1000"],
    "log_max_bytes": ["--log-max-bytes", "5000"],
    "log_backups": ["--log-backups", "3"],
    "log_format": ["--log-format", "json"],
    "command_config": ["--command-config", "admin.properties"],
}
"""The options of `kafkacompat cluster`, each with another value than a cluster has."""
ANY_TIME = {"log_max_bytes", "log_backups", "log_format", "command_config"}
"""Those that an existing cluster takes at each start."""


def cluster_arguments(data: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([*words, "--data", str(data)])


def test_each_option_of_the_command_is_tried_here(tmp_path: Path) -> None:
    assert {*GIVEN, "data", "action"} == set(vars(cluster_arguments(tmp_path)))
    assert {name for names in OF_ACTION.values() for name in names} | {*ANY_ACTION} == {*GIVEN, "data"}


@pytest.mark.parametrize("option", GIVEN)
@pytest.mark.parametrize("action", [action for action in OF_ACTION if action is not None])
def test_an_action_refuses_an_option_of_another(
    action: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = cluster_arguments(tmp_path, action, *GIVEN[option])
    if action == "resize" and option != "brokers":
        given.brokers = 2
    assert run(given) == 1
    is_refused = (
        f"{GIVEN[option][0]} is no option of `kafkacompat cluster {action}`" in capsys.readouterr().err
    )
    assert is_refused == (option not in (*OF_ACTION[action], *ANY_ACTION))


@pytest.mark.parametrize("option", OF_ACTION[None])
def test_an_option_of_a_new_cluster_is_not_ignored_by_one_that_is_there(option: str, tmp_path: Path) -> None:
    files = ClusterFiles(tmp_path)
    files.save(layout())
    assert load_same(files, cluster_arguments(tmp_path)) == layout()
    given = cluster_arguments(tmp_path, *GIVEN[option])
    if option in ANY_TIME:
        assert load_same(files, given) == layout()
    else:
        with pytest.raises(CommandFailed, match=f"{GIVEN[option][0]}|`kafkacompat node add`"):
            load_same(files, given)
