"""Which settings of a node can be combined.

Settings that cannot work are refused at the start, with their names. If Kafka only warns, a warning is given. Follows
what a Kafka 4.3.0 broker refuses and accepts at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.addresses import split_host_and_port
from kafkacompat.config.assignors import (
    CONSUMER_ASSIGNORS,
    SHARE_ASSIGNORS,
    consumer_assignors,
    share_assignor,
)
from kafkacompat.config.errors import ConfigError
from kafkacompat.ids import parse_int

if TYPE_CHECKING:
    from kafkacompat.config.abstract import AbstractServerConfig

_NO_ROUTE = ("0.0.0.0",)
_MIB = 1 << 20
_GROUP_KINDS = ("consumer", "share", "streams")
_GROUP_BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
_SHARE_BOUNDED = ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
COMPRESSION_CODEC_COUNT = 5


def parse_voters(config: AbstractServerConfig) -> dict[int, tuple[str, int]]:
    """controller.quorum.voters as node id to (host, port)."""
    voters: dict[int, tuple[str, int]] = {}
    for entry in config.get_list("controller.quorum.voters"):
        node_id, _, address = entry.partition("@")
        found = split_host_and_port(address)
        assert found is not None  # the setting's validator has seen to it
        voters[int(node_id)] = found
    return voters


def parse_connection_overrides(text: str) -> dict[str, int]:
    """max.connections.per.ip.overrides, `host:count,...`, as host to count. Raises ConfigError for any other form."""
    setting = "max.connections.per.ip.overrides"
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = entry.rpartition(":")
        host = host.strip()
        try:
            bound = parse_int(count.strip())
        except ValueError:
            bound = -1
        if not colon or not host or bound < 0 or any(c.isspace() for c in host):
            raise ConfigError(setting, entry, "expected entries of the form host:count")
        overrides[host.strip("[]")] = bound
    return overrides


def _refuse(setting: str, text: str) -> ConfigError:
    return ConfigError(setting, None, f"{setting} {text}", whole=True)


def _check_roles(config: AbstractServerConfig) -> None:
    if config.get_int("broker.id") != config.get_int("node.id"):
        raise _refuse(
            "node.id", f"({config.get_int('node.id')}) and broker.id ({config.get_int('broker.id')}) differ"
        )
    voters, roles = parse_voters(config), config.roles
    if not voters and not config.get_list("controller.quorum.bootstrap.servers"):
        raise _refuse(
            "controller.quorum.voters", "or controller.quorum.bootstrap.servers must name the controllers"
        )
    names = config.controller_listener_names
    listening = {endpoint.listener_name for endpoint in config.listeners()}
    if "controller" in roles:
        if voters and config.node_id not in voters:
            raise _refuse(
                "controller.quorum.voters",
                f"({config.get_string('controller.quorum.voters')}) lacks this node's id {config.node_id}",
            )
        missing = [name for name in names if name not in listening]
        if missing:
            raise _refuse(
                "controller.listener.names", f"names {', '.join(missing)}, which listeners does not have"
            )
        if "broker" not in roles and listening != set(names):
            extra = ", ".join(sorted(listening - set(names)))
            raise _refuse(
                "listeners", f"has {extra}, not in controller.listener.names, but process.roles is controller"
            )
    else:
        if config.node_id in voters:
            raise _refuse(
                "controller.quorum.voters",
                f"contains node.id {config.node_id}, but process.roles has no controller role",
            )
        shared = [name for name in names if name in listening]
        if shared:
            raise _refuse(
                "controller.listener.names",
                f"names {', '.join(shared)}, which listeners has too, but process.roles is broker",
            )
        known = config.security_protocols()
        unmapped = [name for name in names if name not in known]
        if unmapped:
            raise _refuse(
                "listener.security.protocol.map",
                f"has no protocol for {', '.join(unmapped)} of controller.listener.names",
            )


def _check_listeners(config: AbstractServerConfig) -> None:
    listening = {endpoint.listener_name for endpoint in config.listeners()}
    for endpoint in config.advertised_listeners():
        if endpoint.host in _NO_ROUTE:
            raise _refuse("advertised.listeners", f"cannot hold {endpoint.host}: nobody can connect to it")
    if config.get_string("inter.broker.listener.name") is not None:
        if "security.inter.broker.protocol" in config.originals:
            raise _refuse(
                "inter.broker.listener.name", "and security.inter.broker.protocol exclude each other"
            )
        if config.inter_broker_listener_name not in config.security_protocols():
            raise _refuse(
                "inter.broker.listener.name",
                f"({config.inter_broker_listener_name}) is not in listener.security.protocol.map",
            )
    if "broker" in config.roles:
        advertised = {endpoint.listener_name for endpoint in config.advertised_broker_listeners()}
        if not advertised:
            raise _refuse(
                "advertised.listeners", "has no listener for clients: all are in controller.listener.names"
            )
        if config.inter_broker_listener_name not in advertised:
            raise _refuse(
                "inter.broker.listener.name",
                f"({config.inter_broker_listener_name}) must be one of advertised.listeners: "
                + ", ".join(sorted(advertised)),
            )
        if not advertised <= listening:
            raise _refuse(
                "advertised.listeners",
                f"has {', '.join(sorted(advertised - listening))}, which listeners does not have",
            )
    for name in config.get_list("early.start.listeners"):
        if name.upper() not in listening | set(config.controller_listener_names):
            raise _refuse(
                "early.start.listeners", f"names {name}, not in listeners or controller.listener.names"
            )


def _check_logs(config: AbstractServerConfig) -> None:
    if config.get_int("log.roll.ms") < 1:
        raise _refuse("log.roll.ms", "must be at least 1")
    if config.get_int("log.roll.jitter.ms") < 0:
        raise _refuse("log.roll.jitter.ms", "must be at least 0")
    if config.get_int("log.retention.ms") == 0:
        raise _refuse(
            "log.retention.ms", "(or log.retention.minutes, log.retention.hours) must be -1 or at least 1"
        )
    threads = config.get_int("log.cleaner.threads")
    if threads < 1:
        raise _refuse("log.cleaner.threads", "must be at least 1")
    if config.get_int("log.cleaner.dedupe.buffer.size") // threads <= _MIB:
        raise _refuse("log.cleaner.dedupe.buffer.size", "must exceed 1 MiB per thread of log.cleaner.threads")
    missing = [name for name in config.get_list("cordoned.log.dirs") if name not in ("*", *config.log_dirs)]
    if missing:
        raise _refuse("cordoned.log.dirs", f"has {', '.join(missing)}, not in log.dirs or log.dir")
    codec = config.get_int("offsets.topic.compression.codec")
    if not 0 <= codec < COMPRESSION_CODEC_COUNT:
        raise ConfigError("offsets.topic.compression.codec", codec, "expected 0 to 4")


def _check_network(config: AbstractServerConfig) -> None:
    wait_ms = config.get_int("replica.fetch.wait.max.ms")
    for other in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait_ms > config.get_int(other):
            raise _refuse(
                "replica.fetch.wait.max.ms", f"({wait_ms}) must not exceed {other} ({config.get_int(other)})"
            )
    queued = config.get_int("queued.max.request.bytes")
    if 0 < queued < config.get_int("socket.request.max.bytes"):
        raise _refuse(
            "queued.max.request.bytes", "must be at least socket.request.max.bytes, or not positive"
        )
    overrides = parse_connection_overrides(config.get_string("max.connections.per.ip.overrides") or "")
    if config.get_int("max.connections.per.ip") == 0 and not overrides:
        raise _refuse("max.connections.per.ip", "can be 0 only with max.connections.per.ip.overrides")
    idle_ms = config.get_int("connections.max.idle.ms")
    delay_ms = config.get_int("connection.failed.authentication.delay.ms")
    if 0 <= idle_ms <= delay_ms:
        raise _refuse(
            "connection.failed.authentication.delay.ms",
            f"({delay_ms}) must be less than connections.max.idle.ms ({idle_ms})",
        )


def _check_groups(config: AbstractServerConfig) -> None:
    consumer_assignors(config.get_list(CONSUMER_ASSIGNORS))
    share_assignor(config.get_list(SHARE_ASSIGNORS))
    sessions, size = config.get_int("group.share.max.share.sessions"), config.get_int("group.share.max.size")
    if sessions < size:
        raise _refuse(
            "group.share.max.share.sessions", f"({sessions}) must be at least group.share.max.size ({size})"
        )
    if "classic" not in config.get_list("group.coordinator.rebalance.protocols"):
        raise _refuse("group.coordinator.rebalance.protocols", "must contain classic")
    for kind in _GROUP_KINDS:
        for bounded in (*_GROUP_BOUNDED, *(_SHARE_BOUNDED if kind == "share" else ())):
            name = f"group.{kind}.{bounded}"
            low, high = f"group.{kind}.min.{bounded}", f"group.{kind}.max.{bounded}"
            if config.get_int(high) < config.get_int(low):
                raise _refuse(
                    high, f"({config.get_int(high)}) must be at least {low} ({config.get_int(low)})"
                )
            if not config.get_int(low) <= config.get_int(name) <= config.get_int(high):
                raise _refuse(
                    name,
                    f"({config.get_int(name)}) must lie between {low} ({config.get_int(low)}) "
                    f"and {high} ({config.get_int(high)})",
                )
        if config.get_int(f"group.{kind}.heartbeat.interval.ms") >= config.get_int(
            f"group.{kind}.session.timeout.ms"
        ):
            raise _refuse(
                f"group.{kind}.heartbeat.interval.ms", f"must be less than group.{kind}.session.timeout.ms"
            )


_CHECKS: tuple[Callable[[AbstractServerConfig], None], ...] = (
    _check_roles,
    _check_listeners,
    _check_logs,
    _check_network,
    _check_groups,
)


def check_constraints(config: AbstractServerConfig) -> tuple[str, ...]:
    """Warnings about these settings. Raises ConfigError if a node cannot start with them."""
    for check in _CHECKS:
        check(config)
    warnings = []
    heartbeat_ms, session_ms = (
        config.get_int("broker.heartbeat.interval.ms"),
        config.get_int("broker.session.timeout.ms"),
    )
    if heartbeat_ms > session_ms // 2:
        warnings.append(
            f"broker.heartbeat.interval.ms ({heartbeat_ms}) exceeds half of broker.session.timeout.ms "
            f"({session_ms}): a broker may be fenced between two heartbeats"
        )
    return tuple(warnings)
