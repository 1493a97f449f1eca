"""Which modules a node may ever need. They are imported in the background, soon after its first answer (late.py).

A start imports what its first answer needs. Whatever comes later, a first group, a codec or a command of the
controller, must not depend on a free descriptor, nor on the files of the package: these vanish for seconds while an
installer replaces them.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from kafkacompat import __version__
from kafkacompat.config import parse_voters
from kafkacompat.late import Provisions

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.config import ServerConfig
    from kafkacompat.ports import Workers
    from kafkacompat.tasks import Tasks

ROOT = "kafkacompat"
OF_EVERY_NODE = ("wire.messages", "records", "log", "raft", "node", "quota")
OF_BROKERS = ("group", "txn", "coordinator", "share", "partition", "mirror")
OF_CONTROLLERS = ("controller",)
NOT_OF_A_NODE = {
    *("log.dump", "api.meters"),
    # What only another setting needs.
    *("api.get_telemetry_subscriptions", "api.push_telemetry", "api.telemetry", "api.sasl_dispatch"),
    *("security.kerberos_library", "security.librdkafka", "security.cluster_address"),
}
"""Modules of the packages above that are for commands, or that a node imports at its start if it needs them."""
UNSERVED = ("remote_", "zk_")
"""How the messages of APIs and records begin that no node uses."""
ENCODINGS = ("ascii", "idna", "latin_1", "utf_8_sig", "utf_16", "utf_16_be", "utf_16_le")
OF_PYTHON = (*(f"encodings.{name}" for name in ENCODINGS), "ipaddress", "tokenize", "zlib")
"""For texts, names of hosts, addresses, tracebacks, checksums."""
CODECS = ("lz4.frame", "zstandard")
CERTIFICATES = (
    *("ssl", "cryptography.x509", "cryptography.exceptions"),
    *("cryptography.hazmat.primitives.serialization", "cryptography.hazmat.primitives.serialization.pkcs12"),
    "cryptography.hazmat.backends.openssl.backend",
)
TOKENS = ("jwt.api_jws", "jwt.algorithms", "jwt.exceptions", "http.client", "urllib.parse")


AMONG_OTHERS = (
    *("net.channel", "raft.wire_client", "raft.wire_server", "raft.batches"),
    *("partition.replica_fetcher", "partition.following", "partition.alter_partition_manager"),
)
"""What connects a node to others. The quorum and new images need it without warning and cannot wait."""


def load_for_others(config: ServerConfig) -> None:
    """Import it now, unless the node is alone: then it comes in the background."""
    is_alone = len(config.roles) > 1 and set(parse_voters(config)) == {config.node_id}
    for name in () if is_alone else AMONG_OTHERS:
        import_module(f"{ROOT}.{name}")


def provisions_of(
    config: ServerConfig, workers: Workers, tasks: Tasks, keep: Callable[[], None]
) -> Provisions:
    return Provisions(partial(modules_of, config), workers, tasks, keep, check_package)


def check_package() -> None:
    """Raise OSError while the files of another version lie where this node's were. Its modules would not fit."""
    path = os.path.join(_folder(""), "__init__.py")
    with open(path, encoding="utf-8") as file:
        if f'"{__version__}"' not in file.read():
            raise OSError(
                errno.ESTALE, "kafkacompat was replaced by another version; restart this node", path
            )


def modules_of(config: ServerConfig) -> list[str]:
    """The modules of a node with these settings. Those of the leaves come first, so that none brings many others. Reads
    directories: raises OSError."""
    packages = [*OF_EVERY_NODE]
    names: list[str] = []
    if "broker" in config.roles:
        packages += OF_BROKERS
    if "controller" in config.roles:
        packages += OF_CONTROLLERS
    for package in (*packages, "api"):
        names += _modules_in(package)
    names += [f"{ROOT}.net.channel", f"{ROOT}.server.broker_coordinators", *OF_PYTHON, *CODECS]
    if config.get_int("metrics.listener.port") >= 0:
        names += [
            f"{ROOT}.api.{name}" for name in ("get_telemetry_subscriptions", "push_telemetry", "telemetry")
        ]
    listeners = config.listeners()
    if any(each.has_tls or each.is_sasl for each in listeners):
        names += _modules_in("security")
    if any(each.has_tls for each in listeners):
        names += [f"{ROOT}.net.tls_socket", f"{ROOT}.net.tls_connection"]
        names += CERTIFICATES
    mechanisms = [text for key, text in config.originals.items() if key.endswith("sasl.enabled.mechanisms")]
    if any("OAUTHBEARER" in text.upper() for text in mechanisms):
        names += [*CERTIFICATES, *TOKENS]
    return names


def _modules_in(package: str) -> list[str]:
    """All modules of a package, after those of its packages."""
    inner: list[str] = []
    own: list[str] = []
    for name in sorted(os.listdir(_folder(package))):
        stem, ending = os.path.splitext(name)
        if name.startswith("_") or name.startswith(UNSERVED) or f"{package}.{stem}" in NOT_OF_A_NODE:
            continue
        if ending == ".py":
            own.append(f"{ROOT}.{package}.{stem}")
        elif not ending:
            inner += _modules_in(f"{package}.{name}")
    return inner + own


def _folder(package: str) -> str:
    (folder,) = import_module(f"{ROOT}.{package}".rstrip(".")).__path__
    return folder
