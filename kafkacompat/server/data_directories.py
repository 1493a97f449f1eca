"""Formats, checks and locks a node's directories, and opens the metadata log for raft.

This module connects raft's storage with the log package. It knows no records, listeners or clients.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kafkacompat.config import EndPoint, ServerConfig, parse_voters
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import uuid_to_text
from kafkacompat.ports import Disk, Random
from kafkacompat.raft.contracts import NetworkChannel
from kafkacompat.raft.election_state import QUORUM_STATE_FILE
from kafkacompat.raft.metadata_log import PartitionMetadataLog, metadata_log_config, open_metadata_log
from kafkacompat.raft.quorum_config import (
    default_listener,
    quorum_member,
    quorum_settings,
    static_voters,
)
from kafkacompat.raft.quorum_driver import QuorumDriver
from kafkacompat.raft.snapshot import BrokenSnapshot, parse_snapshot, snapshot_file_name
from kafkacompat.raft.storage import (
    BOOTSTRAP_CHECKPOINT,
    LOCK_FILE,
    META_PROPERTIES,
    METADATA_PARTITION,
    DirectoryLocks,
    FormatRequest,
    MetaPropertiesEnsemble,
    StorageProblem,
    format_storage,
    is_formatted,
    load_directories,
    read_meta_properties,
)
from kafkacompat.raft.voter_node import VoterNode

if TYPE_CHECKING:
    from kafkacompat.server.services import NodeServices
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord


@dataclass(slots=True)
class NodeDirectories:
    """A node's checked and locked directories. `log_dirs` are absolute paths in the order of the setting."""

    identity: MetaPropertiesEnsemble
    log_dirs: tuple[str, ...]
    bootstrap_values: tuple[bytes, ...]
    """The framed records with which a new metadata log begins."""
    locks: DirectoryLocks
    failed: Mapping[str, OSError] = field(default_factory=dict)
    """Log directories that cannot be read or written. They are offline from the start, as in Kafka. The metadata
    directory is never among them."""


def absolute_log_dirs(config: ServerConfig) -> tuple[str, ...]:
    return tuple(os.path.abspath(path) for path in config.log_dirs)


def absolute_metadata_dir(config: ServerConfig) -> str:
    return os.path.abspath(config.metadata_log_dir)


def format_node(
    config: ServerConfig,
    disk: Disk,
    random: Random,
    now_ms: int,
    *,
    cluster_id: str,
    standalone: bool,
    initial_voters: tuple[VoterNode, ...] = (),
    feature_levels: Sequence[tuple[str, int]] | None = None,
    users: Sequence[UserScramCredentialRecord] = (),
    ignore_formatted: bool = False,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Format a node's directories, as kafka-storage format does.

    `standalone`: a dynamic quorum with this node as its only voter. `initial_voters`: a dynamic quorum of these
    voters, including this node. `feature_levels`: the cluster's feature levels, instead of Kafka's defaults. `users`:
    SCRAM credentials that are valid from the first start on. Raises StorageProblem.
    """
    from kafkacompat.controller.core import bootstrap_values
    from kafkacompat.controller.features import (
        METADATA_VERSION,
        bootstrap_snapshot_supported,
        default_levels,
    )

    levels = dict(default_levels() if feature_levels is None else feature_levels)
    request = FormatRequest(
        log_dirs=absolute_log_dirs(config),
        metadata_log_dir=absolute_metadata_dir(config),
        node_id=config.node_id,
        cluster_id=cluster_id,
        bootstrap_values=bootstrap_values(tuple(levels.items()), users),
        has_bootstrap_snapshot=bootstrap_snapshot_supported(levels[METADATA_VERSION]),
        is_controller="controller" in config.roles,
        kraft_version=0 if parse_voters(config) else 1,
        controller_listeners=controller_listeners(config) if standalone else (),
        initial_voters=initial_voters,
        ignore_formatted=ignore_formatted,
    )
    format_storage(disk, request, random, now_ms, progress)


UNUSED = frozenset({META_PROPERTIES, BOOTSTRAP_CHECKPOINT, METADATA_PARTITION, LOCK_FILE, "lost+found"})
"""What may be in a directory that no node has used. The last one is at the root of a file system."""


def begun_format(disk: Disk, log_dirs: Sequence[str], metadata_dir: str) -> str | None:
    """Return the cluster id of a format that has ended before all of these directories were formatted, so that it can be finished.

    None if there is none, and if a node has used one of the directories: the others may be on disks that are not mounted. A format
    begins with the metadata directory. Without it nothing is finished: a node without the broker role leaves nothing in the others.
    Raises OSError, StorageProblem.
    """
    found = {path: read_meta_properties(disk, path) for path in (metadata_dir, *log_dirs)}
    first = found[metadata_dir]
    formatted = [path for path, meta in found.items() if meta is not None]
    if first is None or len(formatted) == len(found) or any(is_used(disk, path) for path in formatted):
        return None
    return first.cluster_id


def is_used(disk: Disk, directory: str) -> bool:
    """Whether a formatted directory has more than a format writes."""
    if disk.exists(posixpath.join(directory, METADATA_PARTITION, QUORUM_STATE_FILE)):
        return True
    return not UNUSED.issuperset(disk.list_directory(directory))


def open_directories(
    config: ServerConfig, disk: Disk, random: Random, now_ms: int, *, format_if_empty: bool
) -> NodeDirectories:
    """Lock all directories, format new ones if `format_if_empty` is set, and check their identity. Raises StorageProblem."""
    log_dirs, metadata_dir = absolute_log_dirs(config), absolute_metadata_dir(config)
    if len(set(log_dirs)) < len(log_dirs):
        # Otherwise each log would be found twice, and one of the two would be deleted as superfluous. A duplicate
        # behind a link is detected by its directory id.
        raise StorageProblem(f"log.dirs names a directory twice: {', '.join(config.log_dirs)}")
    failed = _unreadable(disk, log_dirs, metadata_dir)
    readable = tuple(path for path in log_dirs if path not in failed)
    every = tuple(dict.fromkeys((*readable, metadata_dir)))
    if format_if_empty:
        for path in every:
            try:
                disk.make_directory(path)
            except OSError as error:
                raise StorageProblem(
                    f"cannot make log directory {path} of log.dirs: {error.strerror}"
                ) from error
    for path in every:
        if not disk.exists(path):
            raise StorageProblem(f"log directory {path} of log.dirs does not exist; format it first")
    locks = DirectoryLocks(disk, every, _dispensable(disk, log_dirs, metadata_dir))
    try:
        failed |= locks.failed
        usable = tuple(path for path in log_dirs if path not in failed)
        if not usable:
            cause = next(iter(failed.values()))
            raise StorageProblem(f"all log directories of log.dirs have failed: {_told(failed)}") from cause
        if format_if_empty and not is_formatted(disk, log_dirs, metadata_dir):
            format_node(
                config,
                disk,
                random,
                now_ms,
                cluster_id=uuid_to_text(random.uuid()),
                standalone=not parse_voters(config),
            )
        identity = load_directories(
            disk, usable, metadata_dir, config.node_id, random, now_ms, format_missing=format_if_empty
        )
        return NodeDirectories(identity, log_dirs, _bootstrap_values(disk, metadata_dir), locks, failed)
    except BaseException:
        locks.release()
        raise


def _unreadable(disk: Disk, log_dirs: Sequence[str], metadata_dir: str) -> dict[str, OSError]:
    """Return the directories that cannot be listed, or whose meta.properties cannot be read, unless they do not exist."""
    found: dict[str, OSError] = {}
    for path in _dispensable(disk, log_dirs, metadata_dir):
        try:
            if disk.exists(path):
                disk.list_directory(path)
                is_formatted(disk, (), path)
        except OSError as error:
            found[path] = error
    return found


def _dispensable(disk: Disk, log_dirs: Sequence[str], metadata_dir: str) -> tuple[str, ...]:
    """Return the directories without which the node can start. None if the node is not formatted, because formatting
    needs all of them."""
    others = tuple(path for path in log_dirs if path != metadata_dir)
    return others if others and is_formatted(disk, (), metadata_dir) else ()


def _told(failed: Mapping[str, OSError]) -> str:
    return ", ".join(f"{path}: {error.strerror}" for path, error in failed.items())


def _bootstrap_values(disk: Disk, metadata_dir: str) -> tuple[bytes, ...]:
    """The records of the 0-0 snapshot, or if it has none those of bootstrap.checkpoint."""
    partition = posixpath.join(metadata_dir, METADATA_PARTITION)
    snapshot = posixpath.join(partition, snapshot_file_name(0, 0))
    for path in (snapshot, posixpath.join(metadata_dir, BOOTSTRAP_CHECKPOINT)):
        if not disk.exists(path):
            continue
        try:
            values = parse_snapshot(disk.read_bytes(path)).values
        except BrokenSnapshot as error:
            if path == snapshot and _has_log(disk, partition):
                continue  # the quorum's start tells of it
            raise StorageProblem(f"{path} cannot be read: {error}") from error
        if values:
            return tuple(values)
    from kafkacompat.controller.core import bootstrap_values

    return bootstrap_values()


def _has_log(disk: Disk, partition: str) -> bool:
    return any(
        name.endswith(".log") and disk.file_size(posixpath.join(partition, name))
        for name in disk.list_directory(partition)
    )


def controller_listeners(config: ServerConfig) -> tuple[tuple[str, str, int], ...]:
    """Return (name, host, port) of this node's controller endpoints, the default one first."""
    advertised = {each.listener_name: each for each in config.advertised_listeners()}
    return tuple(
        (each.listener_name, each.host, each.port)
        for each in (
            advertised.get(endpoint.listener_name, endpoint) for endpoint in config.controller_listeners()
        )
    )


@dataclass(slots=True)
class QuorumStore:
    """The metadata log's files, and the quorum member that uses them."""

    log: PartitionMetadataLog
    driver: QuorumDriver

    def close(self) -> None:
        """Close the files as Kafka does at a clean shutdown. Call it after the driver's close. Blocks."""
        self.log.close()


def open_quorum_store(
    directories: NodeDirectories,
    services: NodeServices,
    transport: NetworkChannel,
    *,
    endpoints: Sequence[EndPoint],
    note: Callable[[str], None],
) -> QuorumStore:
    """Open `__cluster_metadata-0`. As in Kafka, each start checks every batch, because the quorum depends on the log.

    `endpoints` are this node's advertised controller listeners, the default one first. Empty without the controller
    role.
    """
    config, disk, identity = services.config, services.disk, directories.identity
    # Kafka's tests set smaller segments with this setting, which has no default.
    internal = config.resolved("internal.metadata.log.segment.bytes")
    segment_bytes = internal if isinstance(internal, int) else config.get_int("metadata.log.segment.bytes")
    log_config = metadata_log_config(segment_bytes, config.get_int("metadata.log.segment.ms"))
    try:
        log = open_metadata_log(
            disk, identity.metadata_directory, log_config, services.clock, clean=False, note=note
        )
    except OSError as error:
        raise StorageProblem(
            f"the metadata log in {identity.metadata_directory} (metadata.log.dir, or without it the first of log.dirs) "
            f"cannot be opened: {error}"
        ) from error
    own = tuple((each.listener_name, each.host, each.port) for each in endpoints)
    driver = QuorumDriver(
        member=quorum_member(config, identity.metadata_directory_id, identity.cluster_id, own),
        settings=quorum_settings(config),
        listener_name=default_listener(config),
        directory=posixpath.join(identity.metadata_directory, METADATA_PARTITION),
        log=log,
        disk=disk,
        workers=services.workers.quorum_sync,
        snapshot_workers=services.workers.snapshots,
        clock=services.work_clock,
        timers=services.work_timers,
        random=services.random,
        static_voters=static_voters(config),
        transport=transport,
        fail=services.halt,
        note=note,
    )
    return QuorumStore(log, driver)
