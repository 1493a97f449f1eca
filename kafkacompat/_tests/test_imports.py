"""Walks every import of the package against the table of who may import whom (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FREE = {
    "addresses",
    "compiled",
    "ids",
    "ports",
    "config",
    "dataclass",
    "deferred",
    "expressions",
    "faults",
    "late",
    "memory",
    "meters",
    "tasks",
}
"""What every package may import."""

EVERYTHING = {"*"}
ALLOWED: dict[str, set[str]] = {
    "addresses": set(),
    "compiled": set(),
    "dataclass": set(),
    "ids": set(),
    "deferred": set(),
    "expressions": set(),
    "failure": set(),
    "faults": set(),
    "late": set(),
    "memory": set(),
    "meters": set(),
    "ports": {"wire.errors"},
    "tasks": set(),
    "config": set(),
    "wire": set(),
    "telemetry": {"quota.rate", "records", "wire"},
    "quota": set(),
    "records": {"wire"},
    "log": {"records", "wire"},
    "raft": {"records", "wire", "log", "net", "quota.rate"},
    "partition": {
        "records",
        "wire",
        "log",
        "controller.image",
        "net.failures",
        "remote.ports",
    },
    "coordinator": {
        "partition.service",
        "controller.image",
        "records",
        "wire",
    },
    "controller": {"wire", "raft", "quota", "security", "api.request_context"},
    "group": {
        "partition.service",
        "api.request_context",
        "share.service",
        "controller.image",
        "coordinator",
        "net.failures",
        "quota.rate",
        "wire",
    },
    "share": {
        "coordinator",
        "net.failures",
        "quota.rate",
        "records",
        "wire",
        "partition.partition",
        "partition.delayed_operations",
        "partition.fetch_session",
        "partition.list_offsets",
        "partition.remote_fetch",
        "partition.replica_manager",
        "partition.traffic",
        "controller.image",
        "partition.service",
        "api.request_context",
    },
    "remote": {
        "controller.image",
        "log",
        "net.failures",
        "partition.service",
        "partition.traffic",
        "quota.rate",
        "records",
        "wire",
    },
    "mirror": {
        "net.failures",
        "partition.fetch_session_handler",
        "partition.following",
        "partition.hosted_partitions",
        "partition.partition",
        "partition.traffic",
        "records",
        "wire",
    },
    "txn": {
        "partition.service",
        "controller.image",
        "coordinator",
        "net.failures",
        "records",
        "wire",
    },
    "node": {"net", "wire", "controller", "api.long_requests", "api.request_context"},
    "api": {
        "wire",
        "records",
        "security",
        "controller.configuration_control_manager",
        "controller.features",
        "controller.image",
        "quota",
        "telemetry",
        "group.service",
        "partition.list_offsets",
        "partition.service",
        "share.service",
        "txn.service",
    },
    "metrics": {
        "api.meters",
        "controller.controller_metrics",
        "controller.image",
        "group.meters",
        "group.group_coordinator",
        "share.share_coordinator",
        "txn.transaction_coordinator",
        "txn.add_partitions_to_txn_manager",
        "log",
        "mirror.traffic",
        "net.watchdog",
        "partition",
        "quota",
        "remote.traffic",
        "raft.quorum_driver",
        "share",
        "telemetry",
        "wire.errors",
        "exchanges.watching",
    },
    "net": {"wire", "quota", "security.sasl_client"},
    "security": {"wire"},
    "exchanges": {"records", "wire"},
    "client": {
        "failure",
        "wire",
        "security.cluster_address",
        "security.http_fetch",
        "security.sasl_client",
    },
    "console": {
        "client",
        "failure",
        "pipeline.failure",
        "pipeline.formats.named_fields",
        "pipeline.formats.patterns",
        "pipeline.schemas",
        "pipeline.topics",
        "wire",
        "security.cluster_address",
        "security.http_fetch",
        "security.sasl_client",
    },
    "pipeline": {"security.cluster_address", "security.http_fetch", "security.ssl_factory"},
    "server": EVERYTHING,
    "cli": EVERYTHING,
    "container": EVERYTHING,
    "testing": EVERYTHING,
    "__main__": EVERYTHING,
    "sim": EVERYTHING,
}

PURE: dict[str, set[str]] = {
    "group": {"wire", "coordinator.core"},
    "txn": {"wire", "coordinator.core"},
    "share/state": {"wire", "coordinator.core", "share.service"},
}
"""What the cores of a package (CORES) may import besides each other, whatever the shells beside them may."""


def project_modules() -> list[Path]:
    return sorted(
        path for path in ROOT.rglob("*.py") if "_tests" not in path.parts and path.name != "__init__.py"
    )


class Import(NamedTuple):
    """`module` is None for a plain import of `names`."""

    module: str | None
    names: tuple[str, ...]
    is_for_types: bool
    """Whether it is for the type checker alone."""


class Source(NamedTuple):
    docstring: str
    imports: tuple[Import, ...]
    borrowed: frozenset[str]
    """Names that it imports and does not offer as its own."""


@cache
def source_of(path: Path) -> Source:
    """What the tests look for in a module. Each module is parsed once."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[Import] = []
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_for_types = waiting.pop()
        if isinstance(node, ast.If) and any(
            isinstance(each, ast.Name) and each.id == "TYPE_CHECKING" for each in ast.walk(node.test)
        ):
            waiting += [(each, True) for each in node.body]
            waiting += [(each, is_for_types) for each in node.orelse]
            continue
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if isinstance(node, ast.Import) or module:
                found.append(Import(module, tuple(alias.name for alias in node.names), is_for_types))
        waiting += [(each, is_for_types) for each in ast.iter_child_nodes(node)]
    return Source(ast.get_docstring(tree) or "", tuple(found), borrowed_names(tree))


def borrowed_names(tree: ast.Module) -> frozenset[str]:
    """`import x as x` and __all__ offer a name as the module's own."""
    borrowed: set[str] = set()
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            borrowed.update(each.asname or each.name for each in node.names if each.asname != each.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            own.update(ast.literal_eval(node.value))
    return frozenset(borrowed - own)


@cache
def imported_names(path: Path) -> frozenset[str]:
    """Dotted names below kafkacompat that a module imports, TYPE_CHECKING blocks included."""
    names: set[str] = set()
    for each in source_of(path).imports:
        if each.module is None:
            names.update(
                name.removeprefix("kafkacompat.") for name in each.names if name.startswith("kafkacompat.")
            )
        elif each.module.split(".")[0] == "kafkacompat":
            base = each.module.removeprefix("kafkacompat").lstrip(".")
            names.update(f"{base}.{name}".lstrip(".") for name in each.names)
    return frozenset(names)


def core_of(path: Path) -> str | None:
    """The entry of CORES for a module."""
    name = str(path.relative_to(ROOT).with_suffix(""))
    return next((core for core in CORES if name == core or name.startswith(core + "/")), None)


def allowed_for(path: Path) -> set[str]:
    name = str(path.relative_to(ROOT))
    if core_of(path) is not None:
        for place, allowed in PURE.items():
            if name.startswith(place + "/"):
                cores = {core.replace("/", ".") for core in CORES if (core + "/").startswith(place + "/")}
                return allowed | FREE | cores
    package = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return ALLOWED[package] | FREE | {package}


def permitted(allowed: set[str], name: str) -> bool:
    return (
        "*" in allowed
        or name == "__version__"
        or any(name == entry or name.startswith(entry + ".") for entry in allowed)
    )


def test_no_module_is_described_by_a_form() -> None:
    """What a module may know is said once, in the table above."""
    filled_in = [
        str(path.relative_to(ROOT))
        for path in project_modules()
        if re.search("^Duty:|Must not know", source_of(path).docstring, re.MULTILINE)
    ]
    assert not filled_in


def test_imports_follow_the_table() -> None:
    packages = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in project_modules()}
    assert packages <= ALLOWED.keys()
    forbidden: dict[str, list[str]] = {}
    for path in project_modules():
        allowed = allowed_for(path)
        if names := sorted(name for name in imported_names(path) if not permitted(allowed, name)):
            forbidden[str(path.relative_to(ROOT))] = names
    assert not forbidden


def test_nobody_is_granted_what_nobody_uses() -> None:
    used: dict[str, set[str]] = {}
    for path in project_modules():
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        used.setdefault(package, set()).update(imported_names(path))
    unused = [
        f"{package}: {entry}"
        for package, entries in ALLOWED.items()
        for entry in sorted(entries - EVERYTHING)
        if not any(name == entry or name.startswith(entry + ".") for name in used.get(package, ()))
    ]
    assert not unused


def test_the_kinds_of_coordinators_do_not_know_each_other() -> None:
    """They stand on the runtime in coordinator/, which knows none of them. The group coordinator asks the persister of share
    groups, and knows what it answers."""
    kinds = {"group", "txn", "share"}
    known = {
        (package, name.split(".")[0])
        for path in project_modules()
        if (package := path.relative_to(ROOT).parts[0]) in kinds | {"coordinator"}
        for name in imported_names(path)
        if not (package == "group" and permitted({"share.service"}, name))
    }
    assert not {(one, other) for one, other in known if other in kinds and one != other}


def test_no_handler_takes_a_log() -> None:
    """It asks the owner of a partition by the partition's name. So a node could have several owners."""
    taking = [
        path.name
        for path in project_modules()
        if path.parent.name == "api" and "partitions.log(" in path.read_text()
    ]
    assert not taking


def test_no_part_of_a_broker_imports_the_client() -> None:
    """Nodes talk to each other through net/, with its bounds and its loop."""
    users = {
        package
        for path in project_modules()
        if (package := path.relative_to(ROOT).parts[0].removesuffix(".py")) != "client"
        and any(permitted({"client"}, name) for name in imported_names(path) - {"__version__"})
    }
    assert users <= {"cli", "console", "container"}


def modules_by_name() -> dict[str, Path]:
    packages = [path for path in ROOT.rglob("*/__init__.py") if "_tests" not in path.parts]
    named = [(path.with_suffix(""), path) for path in project_modules()] + [
        (each.parent, each) for each in packages
    ]
    return {".".join(name.relative_to(ROOT).parts): path for name, path in named}


def imported_modules(path: Path, modules: Mapping[str, Path], *, types: bool) -> set[str]:
    """Of the project, by name. `types`: also what is imported for the type checker alone."""
    found: set[str] = set()
    for each in source_of(path).imports:
        if each.is_for_types and not types:
            continue
        if each.module is None:
            found.update(name.removeprefix("kafkacompat.") for name in each.names)
        elif each.module.split(".")[0] == "kafkacompat":
            base = each.module.removeprefix("kafkacompat").lstrip(".")
            names = [f"{base}.{name}".lstrip(".") for name in each.names]
            found.update(name if name in modules else base for name in names)
    return found & modules.keys()


def test_a_name_comes_from_its_own_module() -> None:
    """mypy lets tests replace a name in the module that imports it, so it does not see this."""
    modules = modules_by_name()
    elsewhere = [
        f"{path.relative_to(ROOT)}: {name} of {each.module}"
        for path in modules.values()
        for each in source_of(path).imports
        if each.module is not None and each.module.startswith("kafkacompat.")
        for base in [each.module.removeprefix("kafkacompat.")]
        for name in each.names
        if f"{base}.{name}" not in modules and name in source_of(modules[base]).borrowed
    ]
    assert not elsewhere


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """What is left when modules that import nothing that is left are taken away again and again, and those that nobody imports."""
    left = {name: set(imported) for name, imported in imports.items()}
    while True:
        wanted = set().union(*left.values()) if left else set()
        ends = {name for name, imported in left.items() if not imported or name not in wanted}
        if not ends:
            return [[name, *sorted(left[name])] for name in sorted(left)]
        left = {name: imported - ends for name, imported in left.items() if name not in ends}


def test_modules_form_no_circle() -> None:
    modules = modules_by_name()
    assert not circles({name: imported_modules(path, modules, types=False) for name, path in modules.items()})


def test_modules_form_no_circle_by_the_types_that_they_name() -> None:
    modules = modules_by_name()
    assert not circles({name: imported_modules(path, modules, types=True) for name, path in modules.items()})


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"], ["c", "b"]]


CORE_BANS = {"trio", "time", "random", "os", "socket", "threading", "logging", "asyncio"}
CORES = [
    "api/returning",
    "client/brokers",
    "client/exchange",
    "console/core",
    "wire",
    "records",
    "security/acl",
    "security/distinguished_name",
    "security/gssapi",
    "security/jaas",
    "security/java_patterns",
    "security/jks",
    "security/jwt_validator",
    "security/kerberos_names",
    "security/oauthbearer",
    "security/pem",
    "security/principal_mapping",
    "security/sasl_authenticator",
    "security/sasl_client",
    "security/sasl_server",
    "security/scram",
    "security/scram_exchange",
    "controller/controller_result",
    "group/group",
    "group/classic",
    "group/offset_metadata_manager",
    "group/consumer",
    "group/consumer_protocol",
    "group/describe",
    "group/environment",
    "group/modern_group",
    "group/records",
    "group/group_metadata_manager",
    "group/share",
    "group/sizes",
    "group/streams",
    "group/target_assignment",
    "group/topics",
    "txn/transaction_state_manager",
    "txn/operations",
    "txn/transaction_log",
    "txn/transaction_metadata",
    "share/state",
    "controller/core",
    "controller/reach",
    "metrics/families",
    "metrics/http",
    "net/job_queue",
    "node/opening",
    "quota",
    "partition/partition",
    "partition/following",
    "partition/replica_selector",
    "partition/fetch_session",
    "partition/fetch_session_handler",
    "partition/traffic",
    "partition/replication_quota_manager",
    "remote/metadata",
    "remote/metadata_cache",
    "remote/metadata_follower",
    "remote/ports",
    "remote/records",
    "remote/traffic",
    "raft/effects",
    "raft/elections",
    "raft/epoch_election",
    "raft/events",
    "raft/following",
    "raft/leader_state",
    "raft/leading",
    "raft/log_shape",
    "raft/membership",
    "raft/messages",
    "raft/quorum",
    "raft/request_manager",
    "raft/roles",
    "raft/voter_set",
    "share/acknowledgement",
    "share/acquisition",
    "share/dead_letters",
    "share/in_flight",
    "share/service",
    "share/share_partition",
    "share/transitions",
    "share/values",
]


def core_modules() -> list[Path]:
    return [
        path
        for path in project_modules()
        if core_of(path) is not None and path.name not in {"generate.py", "shell.py"}
    ]


def test_cores_touch_neither_time_nor_the_world() -> None:
    touched = {
        str(path.relative_to(ROOT)): {
            name.split(".")[0]
            for each in source_of(path).imports
            for name in (each.names if each.module is None else (each.module,))
        }
        & CORE_BANS
        for path in core_modules()
    }
    assert {path: names for path, names in touched.items() if names} == {}
