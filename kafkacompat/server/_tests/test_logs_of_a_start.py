"""A start that lacks descriptors or memory for some logs opens them as soon as it has them."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.log._tests.disks import CONFIG, DIRECTORY_IDS, PATHS, Broker, append, refusing
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.directory import random_text
from kafkacompat.net.runtime import SystemRandom
from kafkacompat.server.broker_logs import LACK_AGAIN_MS, LACK_TRIES, BrokerLogs
from kafkacompat.sim.processes import CoroutineRun
from kafkacompat.tasks import Tasks


class Start:
    """Four logs of 40 records are loaded while opening files of partition 2 fails, or another operation."""

    def __init__(self, number: int, *, clean: bool, operations: str = "open", path: str = "/a/t-2") -> None:
        before = Broker(MemoryDisk())
        for each in range(4):
            append(before.log(each), 40)
        if clean:
            before.manager.shut_down(1)
        self.disk = before.disk.copy()
        self.disk.refuse = refusing(operations, path, number)
        self.time, self.workers = HandTime(), HandWorkers()
        pools = SimpleNamespace(files=self.workers, recovery=self.workers)
        services: Any = SimpleNamespace(
            config=ServerConfig.from_properties(defaults_without_file(), {}),
            clock=self.time,
            timers=self.time,
            tasks=Tasks(self.time),
            random=SystemRandom(),
            disk=self.disk,
            workers=pools,
            monotonic_s=lambda: 0.0,
            descriptors=None,
            unique_text=random_text,
        )
        identity = SimpleNamespace(
            directory_ids=dict(zip(PATHS, DIRECTORY_IDS, strict=True)), metadata_directory="/m"
        )
        directories: Any = SimpleNamespace(identity=identity, log_dirs=PATHS, failed={})
        settings: Any = SimpleNamespace(log_config=lambda topic: CONFIG)
        machine: Any = None  # only a full disk asks for the image
        lifecycle: Any = SimpleNamespace(directory_failed=lambda directory_id: None)
        logs = BrokerLogs(services, directories, settings, machine, lifecycle)
        self.logs = logs.manager
        self.ended: list[None] = []
        CoroutineRun(logs.load(), self.ended.append)

    def run(self, by_ms: int) -> None:
        for _ in range(by_ms // LACK_AGAIN_MS):
            self.workers.run_all()
            self.time.advance(LACK_AGAIN_MS)
            self.workers.run_all()
            self.time.advance(0)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_the_start_waits_for_descriptors(number: int, clean: bool) -> None:
    start = Start(number, clean=clean)
    start.run(5 * LACK_AGAIN_MS)
    assert not start.ended
    start.disk.refuse = None
    start.run(2 * LACK_AGAIN_MS)
    assert start.ended
    assert {name.partition: log.log_end_offset for name, log in start.logs.logs.items()} == dict.fromkeys(
        range(4), 40
    )
    assert start.logs.previous_broker_epoch == (1 if clean else -1)


@pytest.mark.parametrize("operations", ["list_directory", "read_bytes"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_that_cannot_be_looked_at_for_want_of_descriptors_stays_online(
    clean: bool, path: str, operations: str
) -> None:
    start = Start(errno.EMFILE, clean=clean, operations=operations, path=path)
    start.run(5 * LACK_AGAIN_MS)
    assert not start.ended
    start.disk.refuse = None
    start.run(2 * LACK_AGAIN_MS)
    assert start.ended
    assert len(start.logs.logs) == 4
    assert start.logs.previous_broker_epoch == (1 if clean else -1)


def test_a_directory_that_can_never_be_looked_at_goes_offline() -> None:
    start = Start(errno.EMFILE, clean=True, operations="list_directory", path=PATHS[0])
    start.run((LACK_TRIES + 1) * LACK_AGAIN_MS)
    assert start.ended
    assert [directory.online for directory in start.logs.directories] == [False, True]


@pytest.mark.parametrize("clean", [True, False])
def test_a_lack_that_lasts_leaves_those_logs_offline_alone(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    start = Start(errno.EMFILE, clean=clean)
    start.run((LACK_TRIES + 1) * LACK_AGAIN_MS)
    assert start.ended
    assert sorted(name.partition for name in start.logs.logs) == [0, 1, 3]
    assert "/a/t-2 cannot be opened and is offline" in caplog.text


def test_a_broken_directory_is_not_waited_for() -> None:
    start = Start(errno.EIO, clean=True)
    start.run(LACK_AGAIN_MS)
    assert start.ended
