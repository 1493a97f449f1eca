"""Putting a local controller together from a node's settings and directories, and formatting those.

Duty: the wiring that start, format and tests share. Decides nothing about records or roles.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence

from kafkacompat.config import EndPoint, ServerConfig, parse_voters
from kafkacompat.controller.bootstrap import bootstrap_values
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.service import LocalController
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.ids import ZERO_UUID
from kafkacompat.ports import Clock, Disk, Random, Workers
from kafkacompat.raft.driver import RaftDriver
from kafkacompat.raft.metadata_log import PartitionMetadataLog, metadata_log_config, open_metadata_log
from kafkacompat.raft.snapshot import BrokenSnapshot, parse_snapshot
from kafkacompat.raft.storage import (
    BOOTSTRAP_CHECKPOINT,
    METADATA_PARTITION,
    DirectorySet,
    FormatRequest,
    StorageProblem,
    format_storage,
)
from kafkacompat.raft.voters import Voter


def format_directories(
    config: ServerConfig,
    disk: Disk,
    random: Random,
    now_ms: int,
    cluster_id: str,
    *,
    standalone: bool | None = None,
    ignore_formatted: bool = False,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Format this node's directories. `standalone` writes this node as the sole voter of a dynamic quorum; by default it does
    when controller.quorum.voters is not set. StorageProblem as format_storage."""
    if standalone is None:
        standalone = not config.list("controller.quorum.voters") and "controller" in config.roles
    listeners = _voter_listeners(config.controller_listeners()) if standalone else ()
    request = FormatRequest(
        log_dirs=tuple(os.path.abspath(path) for path in config.log_dirs),
        metadata_log_dir=os.path.abspath(config.metadata_log_dir),
        node_id=config.node_id,
        cluster_id=cluster_id,
        bootstrap_values=bootstrap_values(),
        controller_listeners=listeners,
        ignore_formatted=ignore_formatted,
    )
    format_storage(disk, request, random, now_ms, progress)


def _voter_listeners(endpoints: Sequence[EndPoint]) -> tuple[tuple[str, str, int], ...]:
    return tuple((each.listener_name, each.host or "localhost", each.port) for each in endpoints)


def read_bootstrap(disk: Disk, metadata_directory: str) -> Sequence[bytes]:
    """Framed records of bootstrap.checkpoint; the defaults when there is none. StorageProblem for a broken one."""
    path = posixpath.join(metadata_directory, BOOTSTRAP_CHECKPOINT)
    if not disk.exists(path):
        return bootstrap_values()
    try:
        return parse_snapshot(disk.read_bytes(path)).values
    except BrokenSnapshot as error:
        raise StorageProblem(f"{path}: {error}") from error


class LocalQuorum:
    """A node's controller with the log under it. `controller.start(...)` next; `close` last of all that may append."""

    __slots__ = ("bootstrap", "controller", "driver", "log")

    def __init__(
        self,
        controller: LocalController,
        driver: RaftDriver,
        log: PartitionMetadataLog,
        bootstrap: Sequence[bytes],
    ) -> None:
        self.controller = controller
        self.driver = driver
        self.log = log
        self.bootstrap = bootstrap

    def close(self) -> None:
        """Commit what was accepted, flush and close the log. Blocks on the disk."""
        self.controller.close()
        self.log.close()


def open_local_quorum(
    config: ServerConfig,
    directories: DirectorySet,
    *,
    disk: Disk,
    clock: Clock,
    random: Random,
    workers: Workers,
    controller_listeners: Sequence[EndPoint],
    clean: bool,
    fail: Callable[[BaseException], None],
    note: Callable[[str], None] = lambda text: None,
) -> LocalQuorum:
    """`controller_listeners` with the ports to be told; `clean`: the metadata directory's clean-shutdown mark was there;
    `fail` halts the node; `note` gets what log recovery found."""
    metadata_directory = directories.metadata_directory
    log_config = metadata_log_config(
        config.int("metadata.log.segment.bytes"), config.int("metadata.log.segment.ms")
    )
    log = open_metadata_log(disk, metadata_directory, log_config, clock, clean=clean, note=note)
    own = _voter_listeners(controller_listeners)
    name = own[0][0] if own else "CONTROLLER"
    static = tuple(
        Voter(voter_id, ZERO_UUID, ((name, host, port),))
        for voter_id, (host, port) in parse_voters(config).items()
    )
    driver = RaftDriver(
        node_id=directories.node_id,
        directory_id=directories.metadata_directory_id,
        directory=posixpath.join(metadata_directory, METADATA_PARTITION),
        log=log,
        disk=disk,
        workers=workers,
        clock=clock,
        static_voters=static,
        own_listeners=own,
        fail=fail,
    )
    core = ControllerCore(ControllerSettings(config, directories.node_id, directories.cluster_id))
    controller = LocalController(
        core,
        driver,
        random,
        max_bytes_between_snapshots=config.int("metadata.log.max.record.bytes.between.snapshots"),
    )
    return LocalQuorum(controller, driver, log, read_bootstrap(disk, metadata_directory))
