"""The brokers of one machine: their number, ports and settings, the folder that a single node leaves to them, and what of
their output and metrics is one."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import trio

from kafkacompat.__main__ import main
from kafkacompat.cli import brokers_folder, cluster_status, machine, resize, supervisor
from kafkacompat.cli import brokers_plan as plan
from kafkacompat.cli.brokers_folder import BrokersFolder, move_below
from kafkacompat.cli.brokers_metrics import AllBrokers
from kafkacompat.cli.cluster_files import BROKER, ClusterFiles, Layout, Node
from kafkacompat.cli.examination import examine_machine
from kafkacompat.cli.log_format import JsonFormatter, TextFormatter, entry_of
from kafkacompat.cli.machine import refused_listener
from kafkacompat.cli.resize import shrink_plan
from kafkacompat.cli.settings import load_settings, runs_several
from kafkacompat.cli.supervisor import LONGEST_PAUSE_S, levels_of_loggers, prepared, resized, restart_pause_s
from kafkacompat.config import ConfigError, EndPoint, ServerConfig
from kafkacompat.failure import CommandFailed
from kafkacompat.log.disk import RealDisk
from kafkacompat.metrics.http import answer_head, chunk
from kafkacompat.ports import ORDINARY_MODE
from kafkacompat.raft.storage import META_PROPERTIES, METADATA_PARTITION
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.server.process_wide import StopSignals

MIB = 1024 * 1024
FILE = {
    "process.roles": "broker,controller",
    "node.id": "5",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/one,/two",
}


def config_of(**changes: str | None) -> ServerConfig:
    return ServerConfig.from_properties(properties_of(**changes))


def properties_of(**changes: str | None) -> dict[str, str]:
    """The file with other settings, whose names have _ instead of dots. None: without it."""
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return {name: value for name, value in {**FILE, **changed}.items() if value is not None}


def settings(place: int, number: int = 3, **changes: str | None) -> dict[str, str]:
    properties = properties_of(**changes)
    return plan.settings_of(
        properties,
        ServerConfig.from_properties(properties),
        place,
        number,
        machine="box",
        directories=lambda path: f"{path}/of-{place}",
    )


@pytest.mark.parametrize(
    ("text", "processors", "mebibytes", "number"),
    [("1", 8, 100, 1), ("3", 1, 100, 3), ("auto", 8, None, 8), ("auto", 8, 1024, 4), ("auto", 8, 100, 1)],
)
def test_the_number_of_brokers(text: str, processors: int, mebibytes: int | None, number: int) -> None:
    memory = None if mebibytes is None else mebibytes * MIB
    assert plan.number_of(text, processors, memory) == number


@pytest.mark.parametrize("text", ["0", "101", "many", "-1", "1.5"])
def test_a_number_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"num\.brokers.*1 to 100, or auto"):
        plan.number_of(text, 2, None)


def test_too_little_memory_is_told() -> None:
    assert plan.memory_note(2, 512 * MIB) is None
    assert plan.memory_note(2, None) is None
    assert "3 brokers may need 768 MiB" in (plan.memory_note(3, 512 * MIB) or "")


def test_ports_follow_each_other_around_those_of_other_listeners() -> None:
    assert [each["PLAINTEXT"] for each in plan.ports_of(config_of(), 4)] == [9092, 9094, 9095, 9096]
    two = config_of(
        listeners="A://:9092,B://:9094,CONTROLLER://:9093",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="A",
        metrics_listener_port="9096",
    )
    rows = plan.ports_of(two, 3)
    assert rows == [{"A": 9092, "B": 9094}, {"A": 9095, "B": 9097}, {"A": 9098, "B": 9099}]
    assert plan.ports_of(two, 2) == rows[:2]
    with pytest.raises(ConfigError, match="no port for broker 6"):
        plan.ports_of(config_of(listeners="PLAINTEXT://:65535,CONTROLLER://:9093"), 2)
    assert plan.ports_of(config_of(listeners="PLAINTEXT://:0,CONTROLLER://:9093"), 2)[1] == {"PLAINTEXT": 0}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_settings_of_every_broker_are_valid(number: int) -> None:
    for place in range(number):
        config = ServerConfig.from_properties(settings(place, number, num_brokers=str(number)))
        assert config.node_id == 5 + place
        assert config.roles == ({"broker", "controller"} if place == 0 else {"broker"})
        assert config.log_dirs == (f"/one/of-{place}", f"/two/of-{place}")
        assert config.get_string("broker.rack") == "box"
        assert config.get_int("offsets.topic.replication.factor") == number
        assert config.get_int("transaction.state.log.min.isr") == (2 if number > 2 else 1)
        assert config.get_int("default.replication.factor") == 1
        assert (config.unknown, config.without_effect) == ((), ())


def test_what_the_file_says_is_kept() -> None:
    said = settings(
        1, broker_rack="mine", offsets_topic_replication_factor="1", ssl_key_password="${env:KEY}"
    )
    assert said["broker.rack"] == "mine"
    assert said["offsets.topic.replication.factor"] == "1"
    assert said["ssl.key.password"] == "${env:KEY}"


def test_only_the_controller_among_the_brokers_joins_the_quorum_by_itself() -> None:
    of_brokers = [settings(place, controller_quorum_auto_join_enable="true") for place in range(3)]
    configs = map(ServerConfig.from_properties, of_brokers)
    joins = [each.get_boolean("controller.quorum.auto.join.enable") for each in configs]
    assert joins == [True, False, False]


def test_brokers_are_advertised_as_far_from_each_other_as_they_listen() -> None:
    said = settings(2, advertised_listeners="PLAINTEXT://outside:19092")
    assert said["listeners"] == "PLAINTEXT://:9095"
    assert said["advertised.listeners"] == "PLAINTEXT://outside:19095"
    assert "advertised.listeners" not in settings(2)
    assert (
        settings(1, listeners="PLAINTEXT://[::1]:9092,CONTROLLER://:9093")["listeners"]
        == "PLAINTEXT://[::1]:9094"
    )


def test_directories_of_other_settings_are_those_of_the_broker() -> None:
    said = settings(1, metadata_log_dir="/three", cordoned_log_dirs="/two")
    assert (said["metadata.log.dir"], said["cordoned.log.dirs"]) == ("/three/of-1", "/two/of-1")
    assert settings(1, cordoned_log_dirs="*")["cordoned.log.dirs"] == "*"
    said = settings(1, log_dirs=None, log_dir="/single")
    assert (said["log.dirs"], "log.dir" in said) == ("/single/of-1", False)


def test_a_machine_of_a_larger_cluster_leaves_the_replicas_of_internal_topics_to_it() -> None:
    more = {"controller_quorum_bootstrap_servers": "a:9093,b:9093"}
    assert "offsets.topic.replication.factor" not in settings(0, **more)
    assert not plan.is_whole_cluster(config_of(**more))
    broker = {"process_roles": "broker", "listeners": "PLAINTEXT://:9092", **more}
    assert ServerConfig.from_properties(settings(1, **broker)).node_id == 6


def test_a_machine_without_a_broker_is_refused() -> None:
    plan.check(config_of())
    with pytest.raises(ConfigError, match=r"num\.brokers needs the role broker"):
        plan.check(config_of(process_roles="controller", listeners="CONTROLLER://:9093"))


def test_the_brokers_of_a_start_without_a_file_have_ports_in_a_row() -> None:
    config = ServerConfig.from_properties(plan.defaults())
    assert [each["PLAINTEXT"] for each in plan.ports_of(config, 4)] == [9092, 9093, 9094, 9095]
    assert "offsets.topic.replication.factor" not in plan.defaults()


def test_metrics_of_all_are_served_in_one_place() -> None:
    said = settings(1, metrics_listener_port="9404", metrics_listener_host="0.0.0.0")
    assert (said["metrics.listener.port"], said["metrics.listener.host"]) == ("0", "127.0.0.1")
    assert "metrics.listener.port" not in settings(1)


# The folder.


async def test_a_broker_that_ends_within_its_answer_tells_no_numbers(nursery: trio.Nursery) -> None:
    """The last number of the part may be another: a counter seems to have begun again."""

    async def served(*, is_cut: bool) -> int:
        async def tell(stream: trio.SocketStream) -> None:
            in_chunks = b"HTTP/1.1" in await stream.receive_some(4096)
            text = b"# TYPE size gauge\nsize 1234\n"
            body = chunk(text) + chunk(b"") if in_chunks else text
            body = body[: body.index(b"34")] if is_cut else body
            await stream.send_all(answer_head(200, "text/plain", None, in_chunks=in_chunks) + body)

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, tell, [listener])
        port: int = listener.socket.getsockname()[1]
        return port

    ports = {1: await served(is_cut=True), 2: await served(is_cut=False)}
    text = b"".join([piece async for piece in AllBrokers(lambda: ports).pieces()]).decode()
    assert [each for each in text.splitlines() if not each.startswith("#")] == [
        'kafkacompat_broker_up{node_id="1"} 0.0',
        'kafkacompat_broker_up{node_id="2"} 1.0',
        'size{node_id="2"} 1234',
    ]


def folder_in(tmp_path: Path, **changes: str | None) -> BrokersFolder:
    dirs = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    properties = properties_of(
        log_dirs=dirs, listeners="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", **changes
    )
    return BrokersFolder(properties, ServerConfig.from_properties(properties), "box")


def single_node(tmp_path: Path, node_id: int = 5) -> None:
    """What a single node leaves. Its topic has the name that a broker's folder has."""
    for name in ("one", "two"):
        directory = tmp_path / name
        (directory / "node-5").mkdir(parents=True)
        (directory / "node-5" / "00000000000000000000.log").write_text(name)
        (directory / META_PROPERTIES).write_text(
            f"version=1\ncluster.id=c\nnode.id={node_id}\ndirectory.id={name:A<22}\n"
        )


def contents(folder: Path) -> Mapping[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name in ("00000000000000000000.log", META_PROPERTIES)
    }


def test_a_single_node_becomes_the_first_of_several(tmp_path: Path) -> None:
    single_node(tmp_path)
    folder = folder_in(tmp_path)
    before = contents(tmp_path)
    layout = prepared(folder, 2, format_if_empty=False)
    assert (layout.cluster_id, [each.node_id for each in layout.nodes], layout.to_move) == ("c", [5, 6], ())
    moved = {name.replace("/node-5/data", "", 1): text for name, text in contents(tmp_path).items()}
    assert moved == before
    assert folder.load() == layout
    assert prepared(folder, 9, format_if_empty=False).nodes == layout.nodes
    assert runs_several(folder.config)


def test_what_a_file_system_keeps_for_itself_stays_where_it_is(tmp_path: Path) -> None:
    """It belongs to root, so the node's user could not move it."""
    single_node(tmp_path)
    (tmp_path / "one" / "lost+found").mkdir()
    prepared(folder_in(tmp_path), 2, format_if_empty=False)
    assert (tmp_path / "one" / "lost+found").is_dir()


def test_taking_over_goes_on_after_a_crash_at_any_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, allowed = os.rename, 0

    def until_the_crash(source: str, target: str) -> None:
        nonlocal allowed
        if "one" not in str(source) and "two" not in str(source):
            rename(source, target)
            return
        if allowed == 0:
            raise OSError(5, "power failed", source)
        allowed -= 1
        rename(source, target)

    for crash_after in range(8):
        place = tmp_path / str(crash_after)
        single_node(place)
        before = contents(place)
        allowed = crash_after
        with monkeypatch.context() as patched:
            patched.setattr(brokers_folder.os, "rename", until_the_crash)
            with suppress(CommandFailed):
                prepared(folder_in(place), 2, format_if_empty=False)
        assert prepared(folder_in(place), 2, format_if_empty=False).to_move == ()
        moved = {name.replace("/node-5/data", "", 1): text for name, text in contents(place).items()}
        assert moved == before, crash_after


def test_a_folder_of_others_is_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="is not formatted; format it first"):
        prepared(folder_in(tmp_path), 2, format_if_empty=False)
    single_node(tmp_path, node_id=1)
    before = contents(tmp_path)
    with pytest.raises(CommandFailed, match=r"belongs to node 1, but node\.id is 5"):
        prepared(folder_in(tmp_path), 2, format_if_empty=False)
    assert contents(tmp_path) == before
    for name in ("one", "two"):
        path = tmp_path / name / META_PROPERTIES
        path.write_text(path.read_text().replace("node.id=1", "node.id=5"))
    (tmp_path / "two" / META_PROPERTIES).unlink()
    with pytest.raises(CommandFailed, match=r"two of log\.dirs is not formatted"):
        prepared(folder_in(tmp_path), 2, format_if_empty=False)
    assert before.keys() - contents(tmp_path).keys() == {f"two/{META_PROPERTIES}"}
    assert not folder_in(tmp_path).files.exists()


def test_a_directory_that_was_moved_is_not_moved_again(tmp_path: Path) -> None:
    single_node(tmp_path)
    move_below(tmp_path / "one", "node-5")
    before = contents(tmp_path)
    move_below(tmp_path / "one", "node-5")
    assert contents(tmp_path) == before


def test_a_new_folder_is_formatted_for_as_many_as_are_wanted(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 3, format_if_empty=True)
    for node in layout.nodes:
        path = folder.make(node.node_id, layout)
        assert path.stat().st_mode & 0o777 == 0o600
    ids = {
        line for name, text in contents(tmp_path).items() for line in text.splitlines() if "cluster" in line
    }
    assert ids == {f"cluster.id={layout.cluster_id}"}
    assert len(contents(tmp_path)) == 6
    other = folder_in(tmp_path, node_id="7")
    with pytest.raises(CommandFailed, match=r"begin with node 5, but node\.id is 7"):
        other.load()


@pytest.mark.parametrize("formatted", [["one", "two"], ["one"]])
def test_a_new_folder_whose_first_start_was_interrupted_is_finished_by_the_next(
    tmp_path: Path, formatted: list[str]
) -> None:
    first = prepared(folder_in(tmp_path), 2, format_if_empty=True)
    folder_in(tmp_path).files.layout_path.unlink()
    for name in {"one", "two"}.difference(formatted):
        (tmp_path / name / "node-5" / "data" / META_PROPERTIES).unlink()
    layout = prepared(folder_in(tmp_path), 2, format_if_empty=True)
    assert layout == first
    assert contents(tmp_path).keys() == {f"{name}/node-5/data/{META_PROPERTIES}" for name in ("one", "two")}


@pytest.mark.parametrize("left", ["orders-0", f"{METADATA_PARTITION}/quorum-state", ".lock"])
def test_a_new_folder_is_not_made_around_what_a_broker_has_written(tmp_path: Path, left: str) -> None:
    """The list of the brokers and their metadata are on the first disk, which may not be mounted."""
    prepared(folder_in(tmp_path), 2, format_if_empty=True)
    (tmp_path / "two" / "node-5" / "data" / left).mkdir(parents=True)
    before = contents(tmp_path / "two")
    shutil.rmtree(tmp_path / "one")
    (tmp_path / "one").mkdir()
    with pytest.raises(CommandFailed, match=r"a directory of log\.dirs belongs to node 5 of cluster"):
        prepared(folder_in(tmp_path), 2, format_if_empty=True)
    assert contents(tmp_path / "one") == {}
    assert contents(tmp_path / "two") == before
    assert not folder_in(tmp_path).files.exists()


class FullDisk(RealDisk):
    """Nothing can be written to the directory `two`."""

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = ORDINARY_MODE) -> None:
        if "/two/" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().write_atomic(path, data, sync=sync, mode=mode)


def test_a_broker_whose_second_disk_was_full_is_formatted_when_it_has_room(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    folder._disk = FullDisk()
    with pytest.raises(CommandFailed, match=r"cannot format .*two.*No space left on device"):
        folder.make(6, layout)
    folder._disk = RealDisk()
    folder.make(6, layout)
    assert {f"{name}/node-6/data/{META_PROPERTIES}" for name in ("one", "two")} <= contents(tmp_path).keys()


def test_a_broker_that_has_run_gets_no_new_directory_in_place_of_a_missing_disk(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    folder.make(6, layout)
    (tmp_path / "one" / "node-6" / "data" / METADATA_PARTITION).mkdir()
    (tmp_path / "two" / "node-6" / "data" / META_PROPERTIES).unlink()
    folder.make(6, layout)
    assert f"two/node-6/data/{META_PROPERTIES}" not in contents(tmp_path)


def test_a_new_disk_is_formatted_for_all_brokers(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    for node in layout.nodes:
        folder.make(node.node_id, layout)
    file = tmp_path / "server.properties"
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    more = properties_of(log_dirs=f"{folder.config.log_dirs[0]},{tmp_path / 'new'}", listeners=listeners)
    file.write_text("".join(f"{name}={value}\n" for name, value in more.items()))
    assert main(["format", "--standalone", str(file)]) == 1
    assert not (tmp_path / "new").exists()
    assert main(["format", "--standalone", "--ignore-formatted", str(file)]) == 0
    assert {f"new/node-{each}/data/{META_PROPERTIES}" for each in (5, 6)} <= contents(tmp_path).keys()
    facts = examine_machine(load_settings(str(file), []))
    assert (len(facts.log_dirs), facts.unformatted) == (4, [])


def test_a_cluster_json_of_an_older_version_is_no_machines(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    older = asdict(layout)
    del older["is_one_machine"], older["to_move"]
    folder.files.layout_path.write_text(json.dumps(older))
    assert not ClusterFiles(tmp_path / "one").load().is_one_machine
    with pytest.raises(CommandFailed, match="folder of a `kafkacompat cluster`"):
        folder.load()


def test_a_taken_port_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        for host in ("127.0.0.1", ""):
            endpoint = EndPoint("PLAINTEXT", host, port, "PLAINTEXT")
            assert refused_listener([endpoint]) == (endpoint, "Address already in use")
    assert refused_listener([EndPoint("PLAINTEXT", "no-such-host.invalid", 1, "PLAINTEXT")]) is None


def test_what_the_machine_gives_is_bounded_by_its_cgroup(tmp_path: Path) -> None:
    assert machine.processors(tmp_path) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "meminfo").write_text("MemTotal:  2048 kB\n")
    assert machine.processors(tmp_path) == 1
    assert machine.memory_bytes(tmp_path, tmp_path / "meminfo") == 2 * MIB
    (tmp_path / "memory.max").write_text("1048576\n")
    assert machine.memory_bytes(tmp_path, tmp_path / "meminfo") == MIB
    assert machine.memory_bytes(tmp_path / "none", tmp_path / "none") is None


def test_brokers_start_again_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    for node_id in (5, 6):
        folder.make(node_id, layout)
    for name in ("one", "two"):
        (tmp_path / name / "node-6" / "data" / METADATA_PARTITION).mkdir()

    def refuse(path: Path, *_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert prepared(folder_in(tmp_path), 2, format_if_empty=True) == layout
        for node_id in (5, 6):
            folder.make(node_id, layout)
        with pytest.raises(CommandFailed, match="No space left on device"):
            folder.save(3, layout.cluster_id)
    assert folder.load() == layout


# More or fewer.


def test_fewer_brokers_take_all_partitions() -> None:
    current = {("t", 0): (3,), ("t", 1): (4,), ("t", 2): (1,), ("__consumer_offsets", 0): (3, 4, 1)}
    made, fewer = shrink_plan(current, {3, 4}, [1, 2, 3, 4], {})
    assert {each for replicas in made.values() for each in replicas} <= {1, 2}
    assert set(made["__consumer_offsets", 0]) == {1, 2}
    assert fewer == {"__consumer_offsets"}
    assert shrink_plan(current, {4}, [1, 2, 3, 4], {})[1] == set()


def test_a_topic_of_a_user_keeps_its_replicas() -> None:
    with pytest.raises(CommandFailed, match=r"^t: more replicas than the 1 brokers .*--replication-factor 1"):
        shrink_plan({("t", 0): (1, 2)}, {2}, [1, 2], {})


def test_what_is_asked_for_is_made_or_refused(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    assert resized(folder, layout) is layout
    grown = resized(folder, replace(layout, wanted=3))
    assert [each.node_id for each in grown.nodes] == [5, 6, 7]
    assert folder.load() == grown
    assert [each.node_id for each in resized(folder, replace(grown, wanted=1)).nodes] == [5]
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        listeners = f"PLAINTEXT://127.0.0.1:{holder.getsockname()[1] - 1},CONTROLLER://127.0.0.1:0"
        properties = properties_of(log_dirs=str(tmp_path / "one"), listeners=listeners)
        narrow = BrokersFolder(properties, ServerConfig.from_properties(properties), "box")
        refused = resized(narrow, replace(grown, nodes=grown.nodes[:1], wanted=2))
    assert (refused.wanted, len(refused.nodes)) == (0, 1)
    assert "broker 6 cannot listen on PLAINTEXT" in refused.refusal
    assert folder.load() == refused


def test_a_broker_whose_removal_was_interrupted_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    folder.make(6, layout)
    (tmp_path / "one" / "node-6" / "data" / METADATA_PARTITION).mkdir()
    rmtree, removed = shutil.rmtree, 0

    def once(path: Path) -> None:
        nonlocal removed
        removed += 1
        if removed > 1:
            raise OSError(errno.EIO, "Input/output error", str(path))
        rmtree(path)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", once)
        with pytest.raises(CommandFailed, match="cannot delete"):
            resize.remove_files(folder.files, layout.nodes[1])
    folder.make(6, layout)
    assert {f"{name}/node-6/data/{META_PROPERTIES}" for name in ("one", "two")} <= contents(tmp_path).keys()


def test_a_broker_whose_removal_was_interrupted_gets_no_part_of_its_metadata_log_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    folder.make(6, layout)
    metadata_log = tmp_path / "one" / "node-6" / "data" / METADATA_PARTITION
    metadata_log.mkdir()
    snapshot, segment = "00000000000000000050-0000000001.checkpoint", "00000000000000000050.log"
    for name in (snapshot, segment):
        (metadata_log / name).touch()

    def killed(path: Path) -> None:
        next(path.rglob(snapshot)).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            resize.remove_files(folder.files, layout.nodes[1])
    looked_at = [each.path for each in examine_machine(folder.config).log_dirs]
    assert not [each for each in looked_at if resize.REMOVED in each]
    folder.make(6, layout)
    assert not metadata_log.exists()
    assert (metadata_log.parent / META_PROPERTIES).exists()
    resize.remove_files(folder.files, layout.nodes[1])
    assert not list(tmp_path.glob("one/node-6*"))


def test_a_wish_that_a_new_start_has_not_heard_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)

    def start_again(*_: object) -> None:
        prepared(folder, 2, format_if_empty=False)

    monkeypatch.setattr(resize, "wait_for", start_again)
    with pytest.raises(CommandFailed, match="started again meanwhile, with 2 brokers"):
        resize.ask_for(folder.files, layout, 3)


def test_a_broker_is_asked_at_the_address_on_which_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def refuse(host: str, port: int, *_: object) -> None:
        asked.append((host, port))
        raise CommandFailed("refused")

    monkeypatch.setattr(cluster_status, "Connection", refuse)
    nodes = [Node(5, BROKER, 9092, 0, "", host="::1"), Node(6, BROKER, 9093, 0, "")]
    assert cluster_status.ask_any(nodes, ClientSecurity()) is None
    assert asked == [("::1", 9092), ("127.0.0.1", 9093)]


# One output.


def test_a_brokers_entry_is_told_with_its_node() -> None:
    record = logging.LogRecord("kafkacompat.log", logging.ERROR, "", 0, "lost %s", ("it",), None)
    record.created, record.msecs = 1_700_000_000.25, 250.0
    record.exc_text = "Traceback:\n  here"
    theirs, ours = JsonFormatter(), JsonFormatter()
    theirs.node_id = 2
    line = theirs.format(record)
    entry = entry_of(line, 2)
    assert ours.format(entry) == line
    assert TextFormatter().format(entry) == (
        "[2023-11-14 22:13:20,250] ERROR lost it (kafkacompat.log, node 2)\nTraceback:\n  here"
    )


@pytest.mark.parametrize("line", ["Fatal Python error", "{}", '{"level": 3}', "[]", "7"])
def test_other_lines_of_a_broker_are_told_too(line: str) -> None:
    entry = entry_of(line, 3)
    assert (entry.getMessage(), entry.levelname) == (line, "WARNING")
    assert TextFormatter().format(entry).endswith(", node 3)")


def test_a_broker_that_ends_soon_waits_longer_each_time() -> None:
    pauses = [restart_pause_s(count) for count in range(1, 12)]
    assert pauses[:4] == [0, 1, 2, 4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


def test_all_serve_when_one_that_does_not_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_INTERVAL_S", 0.01)
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    told: list[str] = []
    several = supervisor.Supervisor(folder, layout, StopSignals(), told.append)
    several._brokers = {each.node_id: supervisor.Broker(each) for each in layout.nodes}
    several._brokers[5].serves = True

    async def take_away() -> None:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(several._follow_layout, nursery)
                nursery.start_soon(several._tell_when_all_serve)
                await trio.sleep(0.05)
                folder.save(1, layout.cluster_id)
                while not told:
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()

    trio.run(take_away)
    assert "node 5 serving" in told[0]


def test_a_new_broker_is_begun_although_the_layout_could_not_be_read_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file does not change again, so it would never be read."""
    monkeypatch.setattr(supervisor, "LOOK_INTERVAL_S", 0.01)
    folder = folder_in(tmp_path)
    layout = prepared(folder, 1, format_if_empty=True)
    several = supervisor.Supervisor(folder, layout, StopSignals(), lambda line: None)
    several._brokers = {each.node_id: supervisor.Broker(each) for each in layout.nodes}
    monkeypatch.setattr(several, "_begin", lambda node, _: several._brokers.update({node.node_id: node}))
    load, refusals = folder.load, [OSError(errno.EMFILE, "Too many open files")] * 3

    def refused() -> Layout:
        if refusals:
            raise CommandFailed(f"cluster.json cannot be read: {refusals.pop()}")
        return load()

    monkeypatch.setattr(folder, "load", refused)

    async def add_one() -> None:
        with trio.move_on_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(several._follow_layout, nursery)
                await trio.sleep(0.05)
                folder.save(2, layout.cluster_id)
                while len(several._brokers) < 2:
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()

    trio.run(add_one)
    assert sorted(several._brokers) == [5, 6]
    assert len(caplog.messages) == 1


def test_without_a_thread_a_broker_starts_later_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_in(tmp_path)
    layout = prepared(folder, 2, format_if_empty=True)
    several = supervisor.Supervisor(folder, layout, StopSignals(), lambda line: None)

    async def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", no_thread)
    assert trio.run(several._run_once, supervisor.Broker(layout.nodes[1])) is None
    assert caplog.messages == ["broker 6 cannot be started: can't start new thread"]


def test_levels_of_single_loggers_are_passed_on() -> None:
    single = logging.getLogger("kafkacompat.some.module")
    single.setLevel("DEBUG")
    logging.getLogger("library").setLevel("DEBUG")
    try:
        assert levels_of_loggers()["kafkacompat.some.module"] == "DEBUG"
        assert "library" not in levels_of_loggers()
    finally:
        single.setLevel(logging.NOTSET)
        logging.getLogger("library").setLevel(logging.NOTSET)
