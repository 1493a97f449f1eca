"""The folder of the brokers that run on one machine as one: made, taken over from a single node, and formatted.

It is the first of log.dirs, and has the files of ClusterFiles. Each of log.dirs has DIR/node-N/data for broker N. This
module starts no process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kafkacompat.cli import brokers_plan as plan
from kafkacompat.cli.cluster_files import (
    BOTH,
    BROKER,
    HOST,
    ClusterFiles,
    Layout,
    Node,
    property_line,
    write_whole,
)
from kafkacompat.cli.node_making import new_id
from kafkacompat.cli.settings import LAYOUT_FILE
from kafkacompat.config import ServerConfig, parse_voters
from kafkacompat.failure import CommandFailed
from kafkacompat.log.disk import RealDisk, sync_directory
from kafkacompat.net.runtime import SystemClock, SystemRandom
from kafkacompat.raft.storage import (
    META_PROPERTIES,
    METADATA_PARTITION,
    DirectoryLocks,
    StorageProblem,
    read_meta_properties,
)
from kafkacompat.server.data_directories import (
    absolute_log_dirs,
    absolute_metadata_dir,
    format_node,
    is_used,
)

DATA = "data"
STAGED = "moving"
"""Holds what moves from a directory to node-N below it."""
RUNNING = "running"
"""The lock of the process that runs the brokers."""
OWN = frozenset((STAGED, LAYOUT_FILE, f"{LAYOUT_FILE}.new", f"{RUNNING}.lock", "changing.lock", "lost+found"))
"""What is not a node's. A partition's directory has a dash in its name, so none is called so. The last one is at the root of a
file system, and its owner is root."""
ANY_ADDRESS = ("", "0.0.0.0", "::")


class BrokersFolder:
    """Raises CommandFailed wherever the disk, the settings or what lies there refuse."""

    def __init__(self, properties: Mapping[str, str], config: ServerConfig, machine: str) -> None:
        """`properties`: as written, `config`: their values."""
        self._properties = properties
        self._machine = machine
        self._disk = RealDisk()
        self.config = config
        self.files = ClusterFiles(config.log_dirs[0])
        self.directories = tuple(dict.fromkeys((*absolute_log_dirs(config), absolute_metadata_dir(config))))

    def config_of(self, node_id: int, number: int) -> ServerConfig:
        return ServerConfig.from_properties(self._settings_of(node_id, number))

    def write_settings(self, node_id: int, number: int) -> Path:
        """Write the broker's server.properties anew, and return its path."""
        self.files.make_folder(node_id)
        path = self.files.settings_path(node_id)
        head = "# Written by each `kafkacompat start` from its own settings: changes here are lost.\n"
        settings = self._settings_of(node_id, number)
        text = "".join(property_line(name, value) for name, value in settings.items())
        if not has_text(path, head + text):
            write_whole(path, head + text, is_private=True)
        return path

    def load(self) -> Layout:
        layout = self.files.load()
        if not layout.is_one_machine:
            raise CommandFailed(
                f"{self.files.root} is the folder of a `kafkacompat cluster`, not of log.dirs"
            )
        first = layout.nodes[0].node_id
        if first != self.config.node_id:
            raise CommandFailed(
                f"the brokers in {self.files.root} begin with node {first}, but node.id is {self.config.node_id}"
            )
        return layout

    def is_single_node(self) -> bool:
        """Whether a single node was formatted here, and is not taken over yet."""
        return not self.files.exists() and any(map(self._cluster_id, self.directories))

    def save(self, number: int, cluster_id: str, to_move: Sequence[str] = ()) -> Layout:
        """Write down which brokers there are, with the ports that the settings of now give them."""
        config, nodes = self.config, []
        listener = config.broker_listeners()[0]
        controllers = config.controller_listeners()
        for place, ports in enumerate(plan.ports_of(config, number)):
            is_controller = place == 0 and bool(controllers)
            node = Node(
                config.node_id + place,
                BOTH if is_controller else BROKER,
                ports[listener.listener_name],
                controllers[0].port if is_controller else 0,
                directory_id="",
                rack=config.get_string("broker.rack") or self._machine,
                is_formatted=True,
                host=HOST if listener.host in ANY_ADDRESS else listener.host,
            )
            nodes.append(node)
        layout = Layout(
            cluster_id,
            listener.port,
            number,
            nodes[-1].node_id,
            {},
            tuple(nodes),
            is_one_machine=True,
            to_move=tuple(to_move),
        )
        # A full disk has no room for another file. A broker that starts on it may make room.
        if not (self.files.exists() and self.files.load() == layout):
            self.files.save(layout)
        return layout

    # Formatting.

    def format(self, number: int) -> Layout:
        """Format the first broker of a new cluster, and save the layout. The others are formatted when they start."""
        config = self.config_of(self.config.node_id, number)
        directories = (absolute_metadata_dir(config), *absolute_log_dirs(config))
        # A start that ended before the layout was saved has given directories an id, the one with the metadata first. Those of a
        # broker that has run are refused by the format, as they have another id: the disk with the layout may not be mounted.
        formatted = [each for each in directories if self._cluster_id(each)]
        is_new = any(map(self._is_used, formatted))
        cluster_id = new_id() if is_new else self._cluster_id(directories[0]) or new_id()
        self._format(config, cluster_id, standalone=not parse_voters(config))
        return self.save(number, cluster_id)

    def make(self, node_id: int, layout: Layout) -> Path:
        """Write a broker's settings, and format it if it is new. Return the path of the settings."""
        number = len(layout.nodes)
        path = self.write_settings(node_id, number)
        config = self.config_of(node_id, number)
        if node_id != self.config.node_id and not self._has_run(absolute_metadata_dir(config)):
            self._format(config, layout.cluster_id, standalone=False)
        return path

    def _has_run(self, metadata_directory: str) -> bool:
        """Whether a broker without the controller role has been started. Before that, a format that was interrupted may have left
        out some of its directories. After that, one that is not formatted may be a disk that is not mounted."""
        metadata_log = os.path.join(metadata_directory, METADATA_PARTITION)
        return self._cluster_id(metadata_directory) is not None and self._disk.exists(metadata_log)

    def _is_used(self, directory: str) -> bool:
        """Whether a formatted directory has more than a format writes. One that cannot be read counts as used."""
        try:
            return is_used(self._disk, directory)
        except OSError:
            return True

    def format_new(self, node_id: int, layout: Layout, tell: Callable[[str], None]) -> None:
        """Format those directories of a broker that are not formatted."""
        self._format(
            self.config_of(node_id, len(layout.nodes)), layout.cluster_id, standalone=False, tell=tell
        )

    def _format(
        self,
        config: ServerConfig,
        cluster_id: str,
        *,
        standalone: bool,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        try:
            format_node(
                config,
                self._disk,
                SystemRandom(),
                SystemClock().now_ms(),
                cluster_id=cluster_id,
                standalone=standalone,
                ignore_formatted=True,
                progress=tell,
            )
        except StorageProblem as problem:
            raise CommandFailed(str(problem)) from problem
        except OSError as error:
            raise CommandFailed(f"cannot format {error.filename} of log.dirs: {error.strerror}") from error

    # A single node becomes the first of several.

    def take_over(self, number: int) -> Layout:
        """Move the directories of a single node to those of the first of several brokers. If this is interrupted,
        `finish_moves` goes on with it."""
        found = {}
        for directory in self.directories:
            try:
                meta = read_meta_properties(self._disk, directory)
            except (StorageProblem, OSError) as problem:
                raise CommandFailed(f"{directory} of log.dirs: {problem}") from problem
            if meta is None or meta.cluster_id is None:
                raise CommandFailed(f"{directory} of log.dirs is not formatted; format it first")
            if meta.node_id != self.config.node_id:
                raise CommandFailed(
                    f"{directory} of log.dirs belongs to node {meta.node_id}, but node.id is {self.config.node_id}"
                )
            found[directory] = meta.cluster_id
        try:
            locks = DirectoryLocks(self._disk, self.directories)
        except StorageProblem as problem:
            raise CommandFailed(str(problem)) from problem
        try:
            return self.finish_moves(self.save(number, found[self.directories[0]], self.directories))
        finally:
            locks.release()

    def finish_moves(self, layout: Layout) -> Layout:
        for directory in layout.to_move:
            try:
                move_below(Path(directory), self.files.folder(self.config.node_id).name)
            except OSError as error:
                raise CommandFailed(
                    f"cannot move the files in {directory} of log.dirs: {error.strerror}"
                ) from error
            layout = replace(layout, to_move=tuple(each for each in layout.to_move if each != directory))
            self.files.save(layout)
        return layout

    def _settings_of(self, node_id: int, number: int) -> dict[str, str]:
        return plan.settings_of(
            self._properties,
            self.config,
            node_id - self.config.node_id,
            number,
            machine=self._machine,
            directories=self._directories_of(node_id),
        )

    def _directories_of(self, node_id: int) -> Callable[[str], str]:
        below = self.files.folder(node_id).name
        return lambda path: os.path.join(os.path.abspath(path), below, DATA)

    def _cluster_id(self, directory: str) -> str | None:
        """Return the cluster id of a formatted directory. One that cannot be read counts as formatted: the node's own
        start tells of it."""
        try:
            meta = read_meta_properties(self._disk, directory)
        except (StorageProblem, OSError):
            return "unknown"
        return None if meta is None else meta.cluster_id or "unknown"


def has_text(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode("latin-1")
    except OSError:
        return False


def move_below(directory: Path, name: str) -> None:
    """Move what is in a directory to NAME/data below it. It can be repeated after a crash at any point. Raises OSError."""
    staged = directory / STAGED
    if not staged.exists() and not (directory / META_PROPERTIES).exists():
        return
    data = staged / DATA
    data.mkdir(parents=True, exist_ok=True)
    for each in sorted(os.listdir(directory)):
        if each not in OWN:
            os.rename(directory / each, data / each)
    for changed in (data, staged, directory):
        sync_directory(str(changed))
    # A topic may have had that name. Its directory is not here any more.
    os.rename(staged, directory / name)
    sync_directory(str(directory))
