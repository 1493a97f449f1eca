"""The settings of a test's nodes: Kafka's names and values, over defaults that suit tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkacompat.addresses import host_and_port
from kafkacompat.config import ServerConfig
from kafkacompat.config.keys import broker_keys, listener_base
from kafkacompat.config.server import AUTHORIZER_SETTINGS, defaults_without_file
from kafkacompat.ports.dispatcher import ANONYMOUS
from kafkacompat.testing.operations import TESTER
from kafkacompat.testing.ports import ReservedPorts

if TYPE_CHECKING:
    from kafkacompat.testing.secured import Security
    from kafkacompat.testing.versions import Release

DIRECTORY = "/kafka"
HOST = "127.0.0.1"
FOR_TESTS = {
    "log.dirs": DIRECTORY,
    "group.initial.rebalance.delay.ms": "0",
    "metadata.max.idle.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "5",
}
"""Defaults other than Kafka's: a test waits for nobody, needs few partitions of internal topics, and moves its clock past nothing
that is written for no reason but time."""
OF_CLUSTERS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "500",
}
"""The same where nodes wait for each other."""
CONTROLLERS_MAX = 3
METADATA_OF_SCRAM = 11
"""3.5-IV2."""
BETWEEN_NODES = "NODES"
"""The listener of the nodes of a cluster: what they ask each other is no request of a client, and they show each other what they
are where clients see an older release."""
OF_LISTENERS = (
    "listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
)
"""Whoever sets one of them has listeners of their own."""
REPLICATED = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "default.replication.factor",
)
IN_SYNC = ("transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")


class UnknownSetting(ValueError):
    """A setting of this name does not exist."""


def nodes_settings(
    settings: Mapping[str, object],
    nodes: int,
    ports: ReservedPorts,
    release: Release | None = None,
    racks: Sequence[str] = (),
    security: Security | None = None,
) -> dict[int, ServerConfig]:
    """By node id, from 1 on. With the defaults of a release. `racks`: of all nodes, or none. `security`: of the listener of
    clients. Raises UnknownSetting, ConfigError, ValueError."""
    if racks and len(racks) != nodes:
        raise ValueError(f"{nodes} nodes need as many racks, and {len(racks)} are given")
    told = {name: text_of(value) for name, value in settings.items()}
    _refuse_unknown(told)
    is_secured = security is not None and security.is_on
    if is_secured and "listeners" in told:
        raise ValueError("a Kafka that is secured has listeners of its own")
    if told.get("authorizer.class.name"):
        trusted = [TESTER, *([ANONYMOUS] if is_secured else [])]
        others = told.get("super.users")
        told["super.users"] = ";".join(
            [*(f"{each.type}:{each.name}" for each in trusted), *([others] if others else [])]
        )
    ids = range(1, nodes + 1)
    controllers = {each: ports.reserve(HOST) for each in ids[:CONTROLLERS_MAX]}
    voters = ",".join(f"{each}@{host_and_port(HOST, port)}" for each, port in controllers.items())
    replicas = min(nodes, 3)
    has_own_listener = is_secured or (nodes > 1 and told.keys().isdisjoint(OF_LISTENERS))
    protocol = "PLAINTEXT" if security is None else security.protocol
    common = {
        **({} if release is None else release.defaults),
        **FOR_TESTS,
        **(OF_CLUSTERS if nodes > 1 else {}),
        **dict.fromkeys(REPLICATED, str(replicas)),
        **dict.fromkeys(IN_SYNC, str(min(2, replicas))),
        "controller.quorum.voters": voters,
        **({} if security is None else security.settings(has_scram=has_scram(release))),
    }
    found: dict[int, ServerConfig] = {}
    for each in ids:
        listeners = f"{protocol}://{HOST}:{ports.reserve(HOST)}"
        if has_own_listener:
            listeners += f",{BETWEEN_NODES}://{HOST}:{ports.reserve(HOST)}"
            common["inter.broker.listener.name"] = BETWEEN_NODES
            common["listener.security.protocol.map"] = (
                f"CONTROLLER:PLAINTEXT,{protocol}:{protocol},{BETWEEN_NODES}:PLAINTEXT"
            )
        own = {"listeners": listeners, "process.roles": "broker"}
        if each in controllers:
            own = {
                "listeners": f"{listeners},CONTROLLER://{HOST}:{controllers[each]}",
                "process.roles": "broker,controller",
            }
        if racks:
            own["broker.rack"] = racks[each - 1]
        asked = dict(told)
        if "listeners" in asked:
            asked["listeners"] = ports.in_listeners(asked["listeners"])
        found[each] = ServerConfig.from_properties({**defaults_without_file(each), **common, **own, **asked})
    return found


def has_scram(release: Release | None) -> bool:
    """Whether a release keeps users of SCRAM where nodes of ours do."""
    return release is None or release.metadata_version >= METADATA_OF_SCRAM


def client_listeners(config: ServerConfig, nodes: int) -> frozenset[str]:
    """The names of the listeners that no node uses."""
    names = {each.listener_name for each in config.broker_listeners()}
    return frozenset(names - {config.inter_broker_listener_name} if nodes > 1 else names)


def _refuse_unknown(settings: Mapping[str, str]) -> None:
    known = broker_keys()
    unknown = [
        name
        for name in settings
        if name not in known and listener_base(name) not in known and name not in AUTHORIZER_SETTINGS
    ]
    if unknown:
        raise UnknownSetting(f"Kafka has no setting {', '.join(unknown)}")


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
