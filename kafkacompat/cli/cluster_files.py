"""The directory of a cluster on one machine: which nodes there are, their server.properties, their folders.

Its files are DIR/cluster.json and DIR/node-N/server.properties. Nothing is started here, and nobody asked.
A server.properties is written once, when its node is made, and is the user's from then on, save for the one line that says where
controllers are found.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kafkacompat.cli.failure import CommandFailed

HOST = "127.0.0.1"
BROKER = "broker"
CONTROLLER = "controller"
BOTH = "broker,controller"
INITIAL_CONTROLLERS_MAX = 3
"""Three voters survive the loss of one; more of them make each commit wait for more disks."""
REPLICAS_MAX = 3
CONTROLLER_PORT_DISTANCE = 1000
HIGHEST_PORT = 65535
NODES_MAX = 100
CONTROLLERS_SETTING = "controller.quorum.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was made. port or controller_port is 0 without that role."""

    node_id: int
    roles: str
    port: int
    controller_port: int
    directory_id: str
    rack: str | None = None
    is_formatted: bool = False

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def address(self) -> str:
        """Where clients find it, or, of a controller alone, its peers."""
        return f"{HOST}:{self.port or self.controller_port}"

    @property
    def controller_address(self) -> str:
        return f"{HOST}:{self.controller_port}"


@dataclass(frozen=True, slots=True)
class Layout:
    """What cluster.json holds. initial_size: how many nodes the replication settings were made for."""

    cluster_id: str
    base_port: int
    initial_size: int
    highest_node_id: int
    overrides: dict[str, str]
    nodes: tuple[Node, ...]

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
        """This node added, or in the place of its former self."""
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
) -> Layout:
    """Nodes 1 to size at ports from base_port on; the first three, or fewer, are controllers too. CommandFailed for what
    cannot be."""
    if not 1 <= size <= NODES_MAX:
        raise CommandFailed(f"--nodes takes 1 to {NODES_MAX}, not {size}")
    empty = Layout(cluster_id, base_port, size, 0, dict(overrides or {}), ())
    layout = empty
    for node_id in range(1, size + 1):
        roles = BOTH if node_id <= INITIAL_CONTROLLERS_MAX else BROKER
        rack = racks[(node_id - 1) % len(racks)] if racks else None
        layout = layout.with_node(new_node(layout, node_id, roles, directory_ids[node_id - 1], rack))
    return layout


def new_node(layout: Layout, node_id: int, roles: str, directory_id: str, rack: str | None) -> Node:
    """A node at the ports that its id gives it."""
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
    """Settings that fit so many brokers: three copies of everything, or as many as there are brokers, of which two have to
    be in sync where there are three."""
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
    """The value of controller.quorum.bootstrap.servers."""
    return ",".join(each.controller_address for each in layout.nodes if each.is_controller)


def settings_of(layout: Layout, node: Node, data: Path) -> dict[str, str]:
    """The server.properties of a node; valid for Apache Kafka as well. data: its log directory."""
    listeners = []
    if node.is_broker:
        listeners.append(f"PLAINTEXT://{node.address}")
    if node.is_controller:
        listeners.append(f"CONTROLLER://{node.controller_address}")
    return {
        "process.roles": node.roles,
        "node.id": str(node.node_id),
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        CONTROLLERS_SETTING: controllers_of(layout),
        **({"inter.broker.listener.name": "PLAINTEXT"} if node.is_broker else {}),
        **({"broker.rack": node.rack} if node.rack is not None and node.is_broker else {}),
        "log.dirs": str(data),
        **replication_settings(layout.initial_size),
        **layout.overrides,
    }


def property_line(name: str, value: str) -> str:
    """A line of a properties file that Java, and we, read back as this value."""
    escaped = value.replace("\\", "\\\\")
    units = escaped.encode("utf-16-be")
    characters = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    text = "".join(chr(each) if 0x20 <= each < 0x7F else f"\\u{each:04x}" for each in characters)
    return f"{name}={text}\n"


class ClusterFiles:
    """DIR."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    @property
    def layout_path(self) -> Path:
        return self.root / "cluster.json"

    def exists(self) -> bool:
        return self.layout_path.exists()

    def folder(self, node_id: int) -> Path:
        return self.root / f"node-{node_id}"

    def settings_path(self, node_id: int) -> Path:
        return self.folder(node_id) / "server.properties"

    def log_path(self, node_id: int) -> Path:
        return self.folder(node_id) / "node.log"

    def pid_path(self, node_id: int) -> Path:
        return self.folder(node_id) / "node.pid"

    def load(self) -> Layout:
        """CommandFailed where there is no cluster, or its file is spoiled."""
        try:
            read = json.loads(self.layout_path.read_text("utf-8"))
            nodes = tuple(Node(**each) for each in read.pop("nodes"))
            return Layout(nodes=nodes, **read)
        except FileNotFoundError:
            raise CommandFailed(
                f"there is no cluster in {self.root}; `kafkacompat cluster --data {self.root}` makes one"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CommandFailed(f"{self.layout_path} cannot be read: {error}") from error

    def save(self, layout: Layout) -> None:
        self._make(self.root)
        write_whole(self.layout_path, json.dumps(asdict(layout), indent=2) + "\n", "utf-8")

    def write_settings(self, layout: Layout, node: Node, overrides: Mapping[str, str]) -> None:
        """The server.properties of a new node. overrides: what is its own."""
        folder = self.folder(node.node_id)
        self._make(folder)
        settings = {**settings_of(layout, node, folder / "data"), **overrides}
        text = "".join(property_line(name, value) for name, value in settings.items())
        write_whole(self.settings_path(node.node_id), text)

    def tell_of_controllers(self, layout: Layout) -> None:
        """Every node finds the controllers that there are now when it is started next; nothing else of its file changes. One whose
        files are lost is passed over: another is about to take its place."""
        wanted = property_line(CONTROLLERS_SETTING, controllers_of(layout))
        for node in layout.nodes:
            path = self.settings_path(node.node_id)
            try:
                lines = path.read_text("latin-1").splitlines(keepends=True)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
            changed = [
                wanted if line.partition("=")[0].strip() == CONTROLLERS_SETTING else line for line in lines
            ]
            if changed != lines:
                write_whole(path, "".join(changed))

    @contextmanager
    def locked(self, name: str, refusal: str) -> Iterator[None]:
        """Nobody else holds the lock of this name meanwhile; CommandFailed with the refusal when somebody does."""
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

    def _make(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFailed(f"cannot make {path}: {error.strerror}") from error


def write_whole(path: Path, text: str, encoding: str = "latin-1") -> None:
    """The file is the old or the new one, whenever we are stopped and however full the disk is. A link stays one, and a user's
    file keeps its mode. CommandFailed when the disk refuses."""
    target = path.resolve()
    written = target.with_name(f"{target.name}.new")
    try:
        try:
            with open(written, "w", encoding=encoding) as file:
                if target.exists():
                    shutil.copymode(target, written)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(written, target)
        except OSError:
            written.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from error
