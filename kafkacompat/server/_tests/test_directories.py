"""A broker's log directories at the start and when they fail: which failures the node survives, and which halt it.
KIP-112, KIP-858."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkacompat.config import ServerConfig
from kafkacompat.controller.image import MetadataImage
from kafkacompat.ids import Uuid
from kafkacompat.log.directory import random_text
from kafkacompat.log.disk import RealDisk
from kafkacompat.net.runtime import SystemClock, SystemRandom
from kafkacompat.node.settings import NodeSettings
from kafkacompat.partition._tests.kit import broker_image
from kafkacompat.ports import ORDINARY_MODE
from kafkacompat.raft.storage import StorageProblem
from kafkacompat.server.broker_logs import BrokerLogs, DirectoryFailed
from kafkacompat.server.data_directories import NodeDirectories, format_node, open_directories
from kafkacompat.server.process import _halt


def config_of(tmp_path: Path, **settings: str) -> ServerConfig:
    return ServerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": ",".join(str(tmp_path / name) for name in "abc"),
            **settings,
        }
    )


def formatted(config: ServerConfig) -> ServerConfig:
    format_node(config, RealDisk(), SystemRandom(), 0, cluster_id="AAAAAAAAAAAAAAAAAAAAAQ", standalone=False)
    return config


def opened(config: ServerConfig) -> NodeDirectories:
    return open_directories(config, RealDisk(), SystemRandom(), 0, format_if_empty=False)


class Life:
    def __init__(self) -> None:
        self.failed: list[Uuid] = []
        self.cordoned: tuple[Uuid, ...] = ()

    def directory_failed(self, directory_id: Uuid) -> None:
        self.failed.append(directory_id)

    def cordon(self, directory_ids: tuple[Uuid, ...]) -> None:
        self.cordoned = directory_ids


class BrokerDisks:
    def __init__(self, config: ServerConfig, brokers: int = 2) -> None:
        self.found = opened(config)
        self.halted: list[BaseException] = []
        self.life = Life()
        image = MetadataImage(brokers={each: broker_image(each) for each in range(1, brokers + 1)})
        services: Any = SimpleNamespace(
            config=config,
            disk=RealDisk(),
            clock=SystemClock(),
            random=SystemRandom(),
            unique_text=random_text,
            keep=lambda: None,
            halt=self.halted.append,
            descriptors=None,
            monotonic_s=lambda: 0.0,
        )
        machine: Any = SimpleNamespace(image=image)
        settings = NodeSettings(config, 1)
        self.logs = BrokerLogs(services, self.found, settings, machine, cast(Any, self.life))
        self.manager = self.logs.manager
        self.manager.load_all()
        self.logs.cordon(settings.effective)
        self.ids = [each.directory_id for each in self.manager.directories]

    def fail(self, at: int, number: int = 5) -> None:
        self.manager.directory_failed(self.manager.directories[at], OSError(number, "broken"))


def test_the_controller_is_told_of_a_failed_directory(tmp_path: Path) -> None:
    broker_disks = BrokerDisks(formatted(config_of(tmp_path)))
    broker_disks.fail(1)
    broker_disks.fail(1)
    assert broker_disks.life.failed == [broker_disks.ids[1]]
    assert broker_disks.logs.online_ids() == (broker_disks.ids[0], broker_disks.ids[2])
    assert broker_disks.halted == []


def test_the_metadata_logs_directory_halts_the_node(tmp_path: Path) -> None:
    broker_disks = BrokerDisks(formatted(config_of(tmp_path)))
    broker_disks.fail(0)
    assert [type(each) for each in broker_disks.halted] == [DirectoryFailed]
    assert "metadata" in str(broker_disks.halted[0])
    assert "broken" in str(broker_disks.halted[0].__cause__)
    elsewhere = BrokerDisks(formatted(config_of(tmp_path / "x", **{"metadata.log.dir": str(tmp_path / "m")})))
    elsewhere.fail(0)
    assert elsewhere.halted == []


def test_the_last_directory_halts_the_node(tmp_path: Path) -> None:
    broker_disks = BrokerDisks(formatted(config_of(tmp_path, **{"metadata.log.dir": str(tmp_path / "m")})))
    for at in range(3):
        broker_disks.fail(at)
    (halted,) = broker_disks.halted
    assert isinstance(halted, DirectoryFailed)
    assert [f"{tmp_path / each} ([Errno 5] broken)" in str(halted) for each in "abc"] == [True] * 3
    assert broker_disks.life.failed == broker_disks.ids[:2]


def test_a_node_without_directories_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The path that the disk refused does not help the operator. The line names the setting."""
    statuses: list[int] = []
    monkeypatch.setattr("os._exit", statuses.append)
    _halt(DirectoryFailed("all log directories have failed"))
    (record,) = caplog.records
    assert (statuses, record.getMessage(), record.exc_info) == (
        [1],
        "the node halts: all log directories have failed",
        None,
    )


def test_a_node_whose_log_cannot_be_written_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(logging.NullHandler):
        def flush(self) -> None:
            raise ValueError("I/O operation on closed file.")

    statuses: list[int] = []
    monkeypatch.setattr("os._exit", statuses.append)
    monkeypatch.setattr(logging.root, "handlers", [Closed()])
    _halt(DirectoryFailed("all log directories have failed"))
    assert statuses == [1]


@pytest.mark.parametrize(("brokers", "online"), [(1, True), (2, False)])
def test_a_full_directory_is_given_up_where_others_can_take_over(
    tmp_path: Path, brokers: int, online: bool
) -> None:
    broker_disks = BrokerDisks(formatted(config_of(tmp_path)), brokers)
    broker_disks.fail(1, 28)
    assert broker_disks.manager.directories[1].online == online


def test_cordoned_directories(tmp_path: Path) -> None:
    config = formatted(config_of(tmp_path))
    broker_disks = BrokerDisks(config)
    assert broker_disks.life.cordoned == ()
    broker_disks.logs.cordon(config_of(tmp_path, **{"cordoned.log.dirs": str(tmp_path / "b")}))
    assert broker_disks.life.cordoned == (broker_disks.ids[1],)
    assert broker_disks.manager.cordoned == {broker_disks.ids[1]}
    broker_disks.logs.cordon(config_of(tmp_path, **{"cordoned.log.dirs": "*"}))
    assert broker_disks.life.cordoned == tuple(sorted(broker_disks.ids))


def test_changed_settings_cordon_and_let_the_cleaner_look_at_once(tmp_path: Path) -> None:
    broker_disks = BrokerDisks(formatted(config_of(tmp_path)))
    looks: list[bool] = []
    broker_disks.logs._cleaning = cast(Any, SimpleNamespace(look_soon=lambda: looks.append(True)))
    broker_disks.logs.follow_settings(config_of(tmp_path, **{"cordoned.log.dirs": "*"}))
    assert broker_disks.life.cordoned == tuple(sorted(broker_disks.ids))
    assert looks == [True]


def test_a_directory_that_cannot_be_read_is_offline_from_the_start(tmp_path: Path) -> None:
    config = formatted(config_of(tmp_path))
    (tmp_path / "c").rename(tmp_path / "aside")
    (tmp_path / "c").write_text("a file")
    broker_disks = BrokerDisks(config)
    assert [each.online for each in broker_disks.manager.directories] == [True, True, False]
    assert len(broker_disks.logs.online_ids()) == 2
    assert broker_disks.halted == []
    assert broker_disks.life.failed == []
    broker_disks.found.locks.release()


@pytest.mark.parametrize("below", ["", "meta.properties"])
def test_a_directory_of_which_the_disk_tells_nothing_is_offline_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """A file system that has given up answers stat with an error too. Nobody is told to format it."""
    config = formatted(config_of(tmp_path))
    whole, broken = os.stat, str(tmp_path / "c" / below)

    def refusing(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(broken):
            raise OSError(errno.EIO, "Input/output error", path)
        return whole(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refusing)
    broker_disks = BrokerDisks(config)
    assert [each.online for each in broker_disks.manager.directories] == [True, True, False]
    assert {path: error.errno for path, error in broker_disks.found.failed.items()} == {
        str(tmp_path / "c"): errno.EIO
    }
    broker_disks.found.locks.release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_directory_that_cannot_be_locked_is_not_said_to_be_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A network file system may have no locks."""
    config = formatted(config_of(tmp_path))
    refused: list[int] = [number]

    def refusing(descriptor: int, command: int) -> None:
        raise OSError(refused[0], os.strerror(refused[0]))

    monkeypatch.setattr(fcntl, "lockf", refusing)
    with pytest.raises(StorageProblem, match=f"cannot lock log directory .*: {os.strerror(number)}"):
        opened(config)
    for refused[0] in (errno.EAGAIN, errno.EACCES):
        with pytest.raises(StorageProblem, match="another process is using this directory"):
            opened(config)


class RefusesWrites(RealDisk):
    """As a full disk, for what lies below a directory."""

    def __init__(self, below: Path) -> None:
        self._below = f"{below}/"

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, mode: int = ORDINARY_MODE) -> None:
        if path.startswith(self._below):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().write_atomic(path, data, sync=sync, mode=mode)


def first_start(config: ServerConfig, disk: RealDisk) -> NodeDirectories:
    return open_directories(config, disk, SystemRandom(), 0, format_if_empty=True)


@pytest.mark.parametrize("refusing", ["a", "b", "c"])
def test_a_first_start_that_has_formatted_a_part_of_the_directories_is_finished_by_the_next(
    tmp_path: Path, refusing: str
) -> None:
    config = config_of(tmp_path, **{"metadata.log.dir": str(tmp_path / "b")})
    with pytest.raises(OSError, match="No space"):
        first_start(config, RefusesWrites(tmp_path / refusing))
    (tmp_path / "a" / "lost+found").mkdir()
    paths = [tmp_path / name / "meta.properties" for name in "abc"]
    before = {path: path.read_bytes() for path in paths if path.exists()}
    assert len(before) == "bac".index(refusing)
    first_start(config, RealDisk()).locks.release()
    assert before.items() <= {path: path.read_bytes() for path in paths}.items()
    opened(config).locks.release()


@pytest.mark.parametrize("left", ["orders-0", "replication-offset-checkpoint", ".lock"])
def test_no_node_is_formatted_around_a_directory_without_its_metadata(tmp_path: Path, left: str) -> None:
    """The disk with the metadata may not be mounted. A node that is no broker leaves nothing but .lock in the other directories."""
    config = formatted(config_of(tmp_path, **{"metadata.log.dir": str(tmp_path / "b")}))
    if left == ".lock":
        (tmp_path / "a" / left).touch()
    else:
        (tmp_path / "a" / left).mkdir()
    (tmp_path / "b").rename(tmp_path / "aside")
    with pytest.raises(StorageProblem, match="already formatted"):
        first_start(config, RealDisk())
    assert not (tmp_path / "b" / "meta.properties").exists()


def test_without_the_metadata_logs_directory_no_node_starts(tmp_path: Path) -> None:
    config = formatted(config_of(tmp_path))
    (tmp_path / "a").rename(tmp_path / "aside")
    (tmp_path / "a").write_text("a file")
    with pytest.raises((StorageProblem, OSError)):
        opened(config)


def test_a_directory_that_cannot_be_written_is_offline_from_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = formatted(config_of(tmp_path))
    # The file cannot be opened for writing, as on a file system mounted read-only. File modes would not stop root.
    (tmp_path / "b" / ".lock").mkdir()
    broker_disks = BrokerDisks(config)
    assert [each.online for each in broker_disks.manager.directories] == [True, False, True]
    assert f"Stopping serving logs in dir {tmp_path / 'b'}" in caplog.text
    assert broker_disks.halted == []
    broker_disks.found.locks.release()


def test_without_any_directory_that_can_be_written_no_node_starts(tmp_path: Path) -> None:
    config = formatted(config_of(tmp_path, **{"metadata.log.dir": str(tmp_path / "m")}))
    for name in "abc":
        (tmp_path / name / ".lock").mkdir()
    with pytest.raises(
        StorageProblem, match=rf"log\.dirs have failed: {tmp_path / 'a'}: .*{tmp_path / 'c'}: "
    ):
        opened(config)


@pytest.mark.parametrize("again", ["a/", "b/../a", "link"])
def test_no_directory_is_taken_for_two(tmp_path: Path, again: str) -> None:
    """Otherwise each log in the directory would be found twice, and one of the two would be deleted as a duplicate."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    config = config_of(tmp_path, **{"log.dirs": f"{tmp_path / 'a'},{tmp_path}/{again}"})
    with pytest.raises(StorageProblem, match=rf"log\.dirs .*{again}|{again} of log\.dirs have the same"):
        opened(formatted(config))


def test_a_metadata_logs_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    config = formatted(config_of(tmp_path))
    (tmp_path / "a" / ".lock").mkdir()
    with pytest.raises(StorageProblem, match=str(tmp_path / "a")):
        opened(config)
