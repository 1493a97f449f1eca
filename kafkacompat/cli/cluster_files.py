"""The directory of a cluster on one machine: its nodes, their server.properties and their directories.

The files are DIR/cluster.json and DIR/node-N/server.properties. This module starts no process and asks no node. A
server.properties is written once, when its node is created. From then on the user may edit it, and only the line that
says where the controllers are is updated.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from kafkacompat.addresses import host_and_port
from kafkacompat.cli.settings import LAYOUT_FILE
from kafkacompat.config import ConfigError
from kafkacompat.config.server import AUTO_JOIN, CONTROLLER_BOOTSTRAP_SERVERS
from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress

HOST = "127.0.0.1"
BROKER = "broker"
CONTROLLER = "controller"
BOTH = "broker,controller"
INITIAL_CONTROLLERS_MAX = 3
"""Three voters survive the loss of one. With more voters, each commit would wait for more disks."""
REPLICAS_MAX = 3
CONTROLLER_PORT_DISTANCE = 1000
HIGHEST_PORT = 65535
NODES_MAX = 100


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was created. port or controller_port is 0 if the node lacks that role."""

    node_id: int
    roles: str
    port: int
    controller_port: int
    directory_id: str
    rack: str | None = None
    is_formatted: bool = False
    host: str = HOST
    """Where the node listens for this machine's commands."""

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def address(self) -> str:
        """The address for clients or, of a controller without the broker role, for other controllers."""
        return host_and_port(self.host, self.port or self.controller_port)

    @property
    def controller_address(self) -> str:
        return f"{HOST}:{self.controller_port}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The content of cluster.json. initial_size: the number of nodes for which the replication settings were chosen.

    is_secure: every listener is SASL_SSL. is_one_machine: the nodes are the brokers of `kafkacompat start --brokers`, which
    derives their settings from the user's file. to_move: directories of a former single node whose content has not yet
    moved below node-N. wanted: how many brokers `kafkacompat cluster resize` asks for, 0 when that is done. refusal: why it
    could not be. What has a default here is missing in a cluster.json of an older version.
    """

    cluster_id: str
    base_port: int
    initial_size: int
    highest_node_id: int
    overrides: dict[str, str]
    nodes: tuple[Node, ...]
    is_secure: bool = False
    is_one_machine: bool = False
    to_move: tuple[str, ...] = ()
    wanted: int = 0
    refusal: str = ""

    @property
    def protocol(self) -> str:
        """The security protocol of every listener. It is also the name of the brokers' listener."""
        return "SASL_SSL" if self.is_secure else "PLAINTEXT"

    def node(self, node_id: int) -> Node:
        for each in self.nodes:
            if each.node_id == node_id:
                return each
        raise CommandFailed(
            f"there is no node {node_id}; there are {', '.join(str(n.node_id) for n in self.nodes)}"
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.nodes if each.is_broker)

    def with_node(self, node: Node) -> Layout:
        """Return a layout with this node added, or replaced if the id exists."""
        others = [each for each in self.nodes if each.node_id != node.node_id]
        nodes = sorted([*others, node], key=lambda each: each.node_id)
        return replace(self, nodes=tuple(nodes), highest_node_id=max(self.highest_node_id, node.node_id))

    def without_node(self, node_id: int) -> Layout:
        return replace(self, nodes=tuple(each for each in self.nodes if each.node_id != node_id))


def new_layout(
    size: int,
    base_port: int,
    cluster_id: str,
    directory_ids: Sequence[str],
    racks: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    *,
    is_secure: bool = False,
) -> Layout:
    """Return the layout of nodes 1 to size, with ports from base_port on. The first nodes, at most three, are also
    controllers.

    Raises CommandFailed for impossible values.
    """
    if not 1 <= size <= NODES_MAX:
        raise CommandFailed(f"--nodes takes 1 to {NODES_MAX}, not {size}")
    empty = Layout(cluster_id, base_port, size, 0, dict(overrides or {}), (), is_secure)
    layout = empty
    for node_id in range(1, size + 1):
        roles = BOTH if node_id <= INITIAL_CONTROLLERS_MAX else BROKER
        rack = racks[(node_id - 1) % len(racks)] if racks else None
        layout = layout.with_node(new_node(layout, node_id, roles, directory_ids[node_id - 1], rack))
    return layout


def new_node(layout: Layout, node_id: int, roles: str, directory_id: str, rack: str | None) -> Node:
    """Return a node with the ports that belong to its id."""
    port = layout.base_port + node_id - 1
    controller_port = port + CONTROLLER_PORT_DISTANCE
    if controller_port > HIGHEST_PORT:
        raise CommandFailed(f"--port {layout.base_port} leaves no port for the controller of node {node_id}")
    return Node(
        node_id,
        roles,
        port if BROKER in roles else 0,
        controller_port if CONTROLLER in roles else 0,
        directory_id,
        rack,
    )


def replication_settings(size: int) -> dict[str, str]:
    """Return replication settings for this number of brokers: three replicas, or one per broker if there are fewer.

    min.insync.replicas is two if there are three replicas.
    """
    copies = str(min(REPLICAS_MAX, size))
    in_sync = "2" if size >= REPLICAS_MAX else "1"
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def controllers_of(layout: Layout) -> str:
    """Return the value of controller.quorum.bootstrap.servers."""
    return ",".join(each.controller_address for each in layout.nodes if each.is_controller)


def settings_of(
    layout: Layout, node: Node, data: Path, security: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the server.properties of a node, also valid for Apache Kafka.

    data: its log directory. security: the settings of a secured node besides the protocol of its listeners.
    """
    listeners = []
    if node.is_broker:
        listeners.append(f"{layout.protocol}://{node.address}")
    if node.is_controller:
        listeners.append(f"CONTROLLER://{node.controller_address}")
    return {
        "process.roles": node.roles,
        "node.id": str(node.node_id),
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": f"CONTROLLER:{layout.protocol},{layout.protocol}:{layout.protocol}",
        "controller.listener.names": "CONTROLLER",
        CONTROLLER_BOOTSTRAP_SERVERS: controllers_of(layout),
        **({"inter.broker.listener.name": layout.protocol} if node.is_broker else {}),
        **({"broker.rack": node.rack} if node.rack is not None and node.is_broker else {}),
        "log.dirs": str(data),
        **replication_settings(layout.initial_size),
        **(security or {}),
        # The overrides are of all nodes, and this one is refused without the controller role.
        **{
            name: value for name, value in layout.overrides.items() if node.is_controller or name != AUTO_JOIN
        },
    }


def property_line(name: str, value: str) -> str:
    """Return a line of a properties file from which Java and kafkacompat read this value."""
    escaped = value.replace("\\", "\\\\")
    units = escaped.encode("utf-16-be")
    characters = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    text = "".join(chr(each) if 0x20 <= each < 0x7F else f"\\u{each:04x}" for each in characters)
    return f"{name}={text}\n"


class ClusterFiles:
    """The files of one cluster directory."""

    def __init__(self, root: str | Path, command_config: str | None = None) -> None:
        """command_config: a file of client properties with which commands connect, in place of the cluster's own."""
        self.root = Path(root).absolute()
        self._command_config = command_config

    @property
    def layout_path(self) -> Path:
        return self.root / LAYOUT_FILE

    def exists(self) -> bool:
        return self.layout_path.exists()

    def folder(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}"

    def settings_path(self, node_id: int) -> Path:
        return self.folder(node_id) / "server.properties"

    def log_path(self, node_id: int) -> Path:
        return self.folder(node_id) / "node.log"

    def output_path(self, node_id: int) -> Path:
        """What the node's process printed since its last start."""
        return self.folder(node_id) / "node.out"

    @property
    def client_path(self) -> Path:
        """The client properties of a secured cluster's administrator."""
        return self.root / "admin.properties"

    def client_option(self, layout: Layout) -> str:
        """Return the option, after a blank, that a printed command needs to connect to the cluster."""
        return f" --command-config {self.client_path}" if layout.is_secure else ""

    def address(self, layout: Layout, servers: str) -> ClusterAddress:
        """Return the address with which the cluster's own commands connect to these brokers. Raises CommandFailed for
        a wrong client file."""
        try:
            own = str(self.client_path) if layout.is_secure else None
            return ClusterAddress.of_file(servers, self._command_config or own)
        except ConfigError as error:
            raise CommandFailed(str(error)) from None

    def pid_path(self, node_id: int) -> Path:
        return self.folder(node_id) / "node.pid"

    def load(self) -> Layout:
        """Load the layout. Raises CommandFailed if there is no cluster or its file is corrupt."""
        try:
            read = json.loads(self.layout_path.read_text("utf-8"))
            nodes = tuple(Node(**each) for each in read.pop("nodes"))
            return Layout(nodes=nodes, to_move=tuple(read.pop("to_move", ())), **read)
        except FileNotFoundError:
            raise CommandFailed(
                f"there is no cluster in {self.root}; `kafkacompat cluster --data {self.root}` makes one"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CommandFailed(f"{self.layout_path} cannot be read: {error}") from error

    def save(self, layout: Layout) -> None:
        """The overrides may have passwords."""
        self._make(self.root)
        write_whole(self.layout_path, json.dumps(asdict(layout), indent=2) + "\n", "utf-8", is_private=True)

    def make_folder(self, node_id: int, *, is_private: bool = False) -> Path:
        """is_private: nobody else may read a new folder. Its logs have what access control entries protect."""
        folder = self.folder(node_id)
        self._make(folder, 0o700 if is_private else 0o777)
        return folder

    def write_settings(
        self,
        layout: Layout,
        node: Node,
        overrides: Mapping[str, str],
        security: Mapping[str, str] | None = None,
    ) -> None:
        """Write the server.properties of a new node. overrides: settings of this node only. security: as in
        `settings_of`, with passwords."""
        folder = self.make_folder(node.node_id, is_private=layout.is_secure)
        settings = {**settings_of(layout, node, folder / "data", security), **overrides}
        text = "".join(property_line(name, value) for name, value in settings.items())
        write_whole(self.settings_path(node.node_id), text, is_private=True)

    def tell_of_controllers(self, layout: Layout) -> None:
        """Update the line with the controllers in each node's file, for the node's next start. The rest of the file
        stays as it is.

        A node whose file is lost is skipped, because a new node is about to replace it.
        """
        wanted = property_line(CONTROLLER_BOOTSTRAP_SERVERS, controllers_of(layout))
        for node in layout.nodes:
            path = self.settings_path(node.node_id)
            try:
                lines = path.read_text("latin-1").splitlines(keepends=True)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
            changed = [
                wanted if line.partition("=")[0].strip() == CONTROLLER_BOOTSTRAP_SERVERS else line
                for line in lines
            ]
            if changed != lines:
                write_whole(path, "".join(changed))

    @contextmanager
    def locked(self, name: str, refusal: str) -> Iterator[None]:
        """Hold the lock with this name. Raises CommandFailed with the refusal if another process holds it."""
        self._make(self.root)
        path = self.root / f"{name}.lock"
        try:
            opened = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise CommandFailed(f"cannot write {path}: {error.strerror}") from error
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CommandFailed(refusal) from None
            yield

    def is_locked(self, name: str) -> bool:
        """Whether a process holds the lock with this name."""
        try:
            with self.locked(name, name):
                return False
        except CommandFailed:
            return True

    def _make(self, path: Path, mode: int = 0o777) -> None:
        try:
            path.mkdir(mode, parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"cannot create {path}: {error.strerror}") from error


def write_whole(path: Path, text: str, encoding: str = "latin-1", *, is_private: bool = False) -> None:
    """Replace the file atomically: after a crash or on a full disk it has either the old or the new content.

    A symbolic link stays a link, and the file keeps its mode. is_private: the file may hold a password. A new one has mode
    0600 from its first byte on. Raises CommandFailed if the disk fails.
    """
    target = path.resolve()
    written = target.with_name(f"{target.name}.new")
    try:
        try:
            # A temporary file from a killed command may have another mode.
            written.unlink(missing_ok=True)
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
            created = (0o600 if is_private else 0o666) if mode is None else mode
            with os.fdopen(os.open(written, _NEW_FILE, created), "w", encoding=encoding) as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(written, target)
        except OSError:
            written.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from error


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
