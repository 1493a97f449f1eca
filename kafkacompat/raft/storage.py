"""Log directories as Kafka formats them: meta.properties, the 0-0 snapshot or bootstrap.checkpoint, .lock.

It identifies directories, formats new ones, and refuses foreign or incomplete ones with their names. Raft roles are
unknown here, and so are records except those written by a format. Follows kafka-storage format and the settings
node.id, log.dirs, metadata.log.dir.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from kafkacompat.config.properties import parse_properties
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import Uuid, is_reserved_uuid, parse_int, uuid_from_text, uuid_to_text
from kafkacompat.ports import DirectoryLock, Disk, Random
from kafkacompat.raft.snapshot import FROZEN_MODE, SnapshotContent, format_snapshot, snapshot_file_name
from kafkacompat.raft.voter_node import VoterNode

_ESCAPED = {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}
_SPECIAL = "=:#!\\"


def format_properties(properties: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, True)}={_escape(value, False)}" for key, value in properties.items()]
    return "".join(line + "\n" for line in lines)


def _escape(text: str, is_key: bool) -> str:
    out: list[str] = []
    for position, character in enumerate(text):
        if character == " " and (is_key or position == 0):
            out.append("\\ ")
        elif character in _SPECIAL:
            out.append("\\" + character)
        elif character in _ESCAPED:
            out.append("\\" + _ESCAPED[character])
        elif not " " <= character <= "~":
            out.append(f"\\u{ord(character):04X}")
        else:
            out.append(character)
    return "".join(out)


META_PROPERTIES = "meta.properties"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
METADATA_PARTITION = "__cluster_metadata-0"
PRIVATE_MODE = 0o600


class StorageProblem(Exception):
    """A directory cannot be used. The message has directory and setting."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """One directory's identity. `version` is 1 as in Kafka 4.x. Version 0 is read too (broker.id, optional cluster
    id)."""

    cluster_id: str | None
    node_id: int
    directory_id: Uuid | None
    version: int = 1


@dataclass(frozen=True, slots=True)
class MetaPropertiesEnsemble:
    """All log directories of a node after the checks. All are formatted, by path in the order of log.dirs."""

    cluster_id: str
    node_id: int
    directory_ids: dict[str, Uuid]
    metadata_directory: str

    @property
    def metadata_directory_id(self) -> Uuid:
        return self.directory_ids[self.metadata_directory]


def parse_meta_properties(text: str, path: str) -> MetaProperties:
    properties = parse_properties(text)
    try:
        version = parse_int(properties.get("version", "0").strip())
        if version not in (0, 1):
            raise StorageProblem(f"{path}: version {version} is not supported (0 and 1 are)")
        directory_id = uuid_from_text(properties["directory.id"]) if "directory.id" in properties else None
        if version == 0:
            return MetaProperties(
                properties.get("cluster.id"), parse_int(properties["broker.id"]), directory_id, 0
            )
        return MetaProperties(properties["cluster.id"], parse_int(properties["node.id"]), directory_id, 1)
    except KeyError as error:
        raise StorageProblem(f"{path}: {error.args[0]} is missing") from error
    except ValueError as error:
        raise StorageProblem(f"{path}: {error}") from error


def format_meta_properties(meta: MetaProperties, now_ms: int) -> str:
    if meta.cluster_id is None or meta.directory_id is None:
        raise ValueError("version 1 of meta.properties names the cluster and the directory")
    # datetime and what it needs would be a hundredth of a start.
    moment = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms // 1000))
    properties = {
        "node.id": str(meta.node_id),
        "directory.id": uuid_to_text(meta.directory_id),
        "version": "1",
        "cluster.id": meta.cluster_id,
    }
    return format_properties(properties, ("", moment))


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """None for a directory without the file."""
    path = posixpath.join(directory, META_PROPERTIES)
    if not disk.exists(path):
        return None
    return parse_meta_properties(disk.read_bytes(path).decode("latin-1"), path)


def is_formatted(disk: Disk, log_dirs: Sequence[str], metadata_log_dir: str | None = None) -> bool:
    return read_meta_properties(disk, metadata_log_dir or log_dirs[0]) is not None


@dataclass(frozen=True, slots=True)
class FormatRequest:
    """The input of `format`. Directories are absolute. At most one of `controller_listeners` and `initial_voters` has
    the voters of a dynamic quorum. With neither, the quorum is static (controller.quorum.voters) or the node joins
    later."""

    log_dirs: tuple[str, ...]
    metadata_log_dir: str | None
    node_id: int
    cluster_id: str
    bootstrap_values: tuple[bytes, ...]
    """The framed records with which a new metadata log begins: the feature levels, and users."""
    controller_listeners: tuple[tuple[str, str, int], ...] = ()
    """(listener name, host, port) for the 0-0 voters record of a standalone quorum. Empty writes no such record."""
    ignore_formatted: bool = False
    initial_voters: tuple[VoterNode, ...] = ()
    """The 0-0 voters record of a quorum of several nodes, the same on each node. If this node is among them, its
    metadata directory gets the id from there."""
    has_bootstrap_snapshot: bool = True
    """Whether `bootstrap_values` are in the 0-0 snapshot of a controller, as from Kafka 4.4 on (KIP-1170). Otherwise they
    are in bootstrap.checkpoint, which earlier releases read."""
    is_controller: bool = True
    kraft_version: int = 0
    """That of the 0-0 snapshot if it names no voters: 1 for a controller that joins a dynamic quorum."""


def format_storage(
    disk: Disk,
    request: FormatRequest,
    random: Random,
    now_ms: int,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Format every unformatted directory, like kafka-storage format. Raises StorageProblem if one is already formatted
    (unless ignored).

    meta.properties is written last in each directory, so an interrupted format is repeated. The metadata directory comes first:
    without it, directories that are formatted belong to a node whose disk with the metadata may not be mounted.
    """
    metadata_directory = request.metadata_log_dir or request.log_dirs[0]
    directories = _all_directories((metadata_directory, *request.log_dirs), None)
    found = {directory: read_meta_properties(disk, directory) for directory in directories}
    formatted = [directory for directory in directories if found[directory] is not None]
    if formatted and not request.ignore_formatted:
        raise StorageProblem(
            f"log directory {formatted[0]} is already formatted; --ignore-formatted leaves it as it is"
        )
    own_voter = next((voter for voter in request.initial_voters if voter.id == request.node_id), None)
    taken = {meta.directory_id for meta in found.values() if meta is not None}
    taken.update(voter.directory_id for voter in request.initial_voters)
    for meta in found.values():
        if meta is not None and (meta.cluster_id != request.cluster_id or meta.node_id != request.node_id):
            raise StorageProblem(
                f"a directory of log.dirs belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
                f"not to node {request.node_id} of cluster {request.cluster_id}"
            )
    for directory in directories:
        if found[directory] is not None:
            continue
        if own_voter is not None and directory == metadata_directory:
            directory_id = own_voter.directory_id
        else:
            directory_id = random.uuid()
            while directory_id in taken:
                directory_id = random.uuid()
        taken.add(directory_id)
        if progress is not None:
            progress(f"Formatting {directory}")
        disk.make_directory(directory)
        if not request.has_bootstrap_snapshot:
            _write_bootstrap(disk, directory, request, now_ms)
        if directory == metadata_directory:
            _write_initial_snapshot(disk, directory, directory_id, request, now_ms)
        meta = MetaProperties(request.cluster_id, request.node_id, directory_id)
        text = format_meta_properties(meta, now_ms)
        disk.write_atomic(posixpath.join(directory, META_PROPERTIES), text.encode("latin-1"))


def _write_bootstrap(disk: Disk, directory: str, request: FormatRequest, now_ms: int) -> None:
    # It may have SCRAM credentials, as the metadata log has later.
    bootstrap = SnapshotContent(values=request.bootstrap_values)
    data = format_snapshot(bootstrap, epoch=0, now_ms=now_ms)
    disk.write_atomic(posixpath.join(directory, BOOTSTRAP_CHECKPOINT), data, mode=PRIVATE_MODE)


def _write_initial_snapshot(
    disk: Disk, directory: str, directory_id: Uuid, request: FormatRequest, now_ms: int
) -> None:
    voters = request.initial_voters
    if request.controller_listeners:
        voters = (VoterNode(request.node_id, directory_id, request.controller_listeners),)
    has_values = request.has_bootstrap_snapshot and request.is_controller
    if not (voters or has_values):
        return
    content = SnapshotContent(
        values=request.bootstrap_values if has_values else (),
        last_contained_timestamp_ms=now_ms,
        kraft_version=1 if voters else request.kraft_version,
        voters=voters,
    )
    partition = posixpath.join(directory, METADATA_PARTITION)
    make_metadata_directory(disk, partition)
    data = format_snapshot(content, epoch=0, now_ms=now_ms)
    disk.write_atomic(posixpath.join(partition, snapshot_file_name(0, 0)), data, mode=FROZEN_MODE)


def make_metadata_directory(disk: Disk, partition: str) -> None:
    """The metadata log and its snapshots have the keys of SCRAM users, and passwords among dynamic settings. So only the
    node's user may open a new directory. One that exists keeps its mode: its administrator, or Apache Kafka, made it."""
    disk.make_directory(partition, private=True)


def load_directories(
    disk: Disk,
    log_dirs: Sequence[str],
    metadata_log_dir: str | None,
    node_id: int,
    random: Random,
    now_ms: int,
    *,
    format_missing: bool = False,
) -> MetaPropertiesEnsemble:
    """Check every directory's identity as Kafka does at a start. A directory id is added to files without one.

    An unformatted directory beside a formatted metadata directory is refused, because its disk may not be mounted.
    `format_missing` formats it instead.
    """
    directories = _all_directories(log_dirs, metadata_log_dir)
    metadata_directory = metadata_log_dir or log_dirs[0]
    found: dict[str, MetaProperties | None] = {path: read_meta_properties(disk, path) for path in directories}
    first = found[metadata_directory]
    if first is None:
        raise StorageProblem(
            f"log directory {metadata_directory} (metadata.log.dir or the first of log.dirs) is not formatted: "
            f"it has no {META_PROPERTIES}; run the format command"
        )
    cluster_id = first.cluster_id
    if cluster_id is None:
        raise StorageProblem(f"{metadata_directory}/{META_PROPERTIES}: cluster.id is missing")
    ids: dict[str, Uuid] = {}
    owners: dict[Uuid, str] = {}
    for directory in directories:
        meta = found[directory]
        if meta is not None:
            _check_identity(directory, meta, cluster_id, node_id, metadata_directory)
            if meta.directory_id is not None:
                if meta.directory_id in owners:
                    raise StorageProblem(
                        f"log directories {owners[meta.directory_id]} and {directory} of log.dirs have the same "
                        f"directory.id {uuid_to_text(meta.directory_id)}"
                    )
                owners[meta.directory_id] = directory
                ids[directory] = meta.directory_id
        elif not format_missing:
            raise StorageProblem(
                f"log directory {directory} of log.dirs is not formatted: it has no {META_PROPERTIES}. If its disk is mounted and "
                "it is to begin empty, run the format command with --ignore-formatted"
            )
    _check_metadata_log(disk, directories, metadata_directory)
    for directory in directories:
        if directory not in ids:
            directory_id = random.uuid()
            while directory_id in owners:
                directory_id = random.uuid()
            owners[directory_id] = directory
            ids[directory] = directory_id
            disk.make_directory(directory)
            text = format_meta_properties(MetaProperties(cluster_id, node_id, directory_id), now_ms)
            disk.write_atomic(posixpath.join(directory, META_PROPERTIES), text.encode("latin-1"))
    return MetaPropertiesEnsemble(
        cluster_id, node_id, {path: ids[path] for path in directories}, metadata_directory
    )


def _check_metadata_log(disk: Disk, directories: Sequence[str], metadata_directory: str) -> None:
    """Refuse a metadata log in another directory: the settings have named that directory before. An empty metadata log
    in the new one would remove every topic."""
    for directory in directories:
        if directory != metadata_directory and disk.exists(posixpath.join(directory, METADATA_PARTITION)):
            raise StorageProblem(
                f"log directory {directory} of log.dirs has a metadata log ({METADATA_PARTITION}), but "
                f"metadata.log.dir, or without it the first of log.dirs, is {metadata_directory}"
            )


def _check_identity(
    directory: str, meta: MetaProperties, cluster_id: str, node_id: int, metadata_directory: str
) -> None:
    if meta.node_id != node_id:
        raise StorageProblem(
            f"log directory {directory} belongs to node.id {meta.node_id}, but the configured node.id is {node_id}"
        )
    if meta.cluster_id is not None and meta.cluster_id != cluster_id:
        raise StorageProblem(
            f"log directory {directory} belongs to cluster.id {meta.cluster_id}, but {metadata_directory} to {cluster_id}"
        )
    if meta.directory_id is not None and is_reserved_uuid(meta.directory_id):
        raise StorageProblem(
            f"log directory {directory} has the reserved directory.id {uuid_to_text(meta.directory_id)}"
        )


def _all_directories(log_dirs: Sequence[str], metadata_log_dir: str | None) -> list[str]:
    directories = list(dict.fromkeys(log_dirs))
    if metadata_log_dir is not None and metadata_log_dir not in directories:
        directories.insert(0, metadata_log_dir)
    if not directories:
        raise StorageProblem("log.dirs names no directory")
    return directories


LOCK_FILE = ".lock"


class DirectoryLocks:
    """Locks on every directory, all or none. Call `release` at the very end of a node's life."""

    def __init__(self, disk: Disk, directories: Sequence[str], dispensable: Container[str] = ()) -> None:
        """Raises StorageProblem with the directory that another process has locked, or that cannot be written and is
        not dispensable."""
        self._locks: list[DirectoryLock] = []
        self.failed: dict[str, OSError] = {}
        """Dispensable directories that cannot be written, for example on a file system mounted read-only."""
        try:
            for directory in directories:
                self._take(disk, directory, directory in dispensable)
        except BaseException:
            self.release()
            raise

    def _take(self, disk: Disk, directory: str, is_dispensable: bool) -> None:
        try:
            self._locks.append(disk.lock(posixpath.join(directory, LOCK_FILE)))
        except BlockingIOError as error:
            raise StorageProblem(
                f"failed to acquire the lock on file {LOCK_FILE} in {directory} (log.dirs): "
                "another process is using this directory"
            ) from error
        except OSError as error:
            if not is_dispensable:
                raise StorageProblem(
                    f"cannot lock log directory {directory} of log.dirs: {error.strerror}"
                ) from error
            self.failed[directory] = error

    def release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()
