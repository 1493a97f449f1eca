"""A node's settings from server.properties and a command line, with dynamic layers over them (KafkaConfig).

Typed values for reading, with Kafka's defaults, settings of the same meaning resolved, and listeners. Settings that
cannot work together are refused at the start, with their names. If Kafka only warns, a warning is given. Follows what
a Kafka 4.4.0 broker refuses and accepts at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kafkacompat.addresses import host_and_port, split_host_and_port
from kafkacompat.config.endpoints import EndPoint, listener_name_of, parse_listeners, parse_protocol_map
from kafkacompat.config.group import (
    CONSUMER_ASSIGNORS,
    SHARE_ASSIGNORS,
    STREAMS_ASSIGNORS,
    check_group_defaults,
    consumer_assignors,
    share_assignor,
    streams_assignors,
)
from kafkacompat.config.keys import (
    ConfigError,
    ConfigValue,
    broker_keys,
    broker_synonyms,
    listener_base,
    listener_prefix,
    parse_value,
    render_value,
)
from kafkacompat.config.of_listeners import is_of_listener
from kafkacompat.config.properties import provider_prefixes, resolved
from kafkacompat.ids import parse_int

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


def _resolve(values: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Values of settings that are not set themselves and depend on others."""

    def number(name: str) -> int | None:
        value = values[name]
        return value if isinstance(value, int) else None

    def first(*choices: tuple[str, int]) -> int:
        return next(value * unit for name, unit in choices if (value := number(name)) is not None)

    retention_ms = first(
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MS_PER_MINUTE),
        ("log.retention.hours", _MS_PER_HOUR),
    )
    log_dirs = values["log.dirs"] if values["log.dirs"] is not None else values["log.dir"]
    assert isinstance(log_dirs, tuple)
    resolved: dict[str, ConfigValue] = {
        "log.retention.ms": -1 if retention_ms < 0 else retention_ms,
        "log.roll.ms": first(("log.roll.ms", 1), ("log.roll.hours", _MS_PER_HOUR)),
        "log.roll.jitter.ms": first(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _MS_PER_HOUR)),
        "log.flush.interval.ms": first(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        "log.dirs": log_dirs,
        "metadata.log.dir": values["metadata.log.dir"] or log_dirs[0],
    }
    if values["num.replica.alter.log.dirs.threads"] is None:
        resolved["num.replica.alter.log.dirs.threads"] = len(log_dirs)
    return resolved


COMPACTED_TOO = "remote.storage.compacted.topics.enable"
TIERING = "remote.log.storage.system.enable"
AUTHORIZER_CLASS_NAME = "authorizer.class.name"
CONTROLLER_BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
AUTO_JOIN = "controller.quorum.auto.join.enable"
AUTHORIZER_SETTINGS = frozenset(("super.users", "allow.everyone.if.no.acl.found"))
"""Read only by the authorizer, so they are not settings of the broker."""


class ServerConfig:
    """The settings of one node, created by `from_properties`. Immutable."""

    __slots__ = (
        "_advertised",
        "_listeners",
        "_resolved",
        "_values",
        "originals",
        "unknown",
        "warnings",
        "without_effect",
    )

    originals: Mapping[str, str]
    """What was set, as text. node.id and broker.id replace one another."""
    unknown: tuple[str, ...]
    """Names set that Kafka does not know, in the given order."""
    without_effect: tuple[str, ...]
    """Names set that are accepted without effect, in the given order."""
    warnings: tuple[str, ...]
    """Combinations that Kafka only warns about at a start."""

    def __init__(self, originals: Mapping[str, str], values: Mapping[str, ConfigValue]) -> None:
        """Not for callers. `values` must have every broker setting."""
        keys = broker_keys()
        self.originals = MappingProxyType(dict(originals))
        self._values = values
        self._resolved = {**values, **_resolve(values)}
        unknown, without_effect = [], []
        prefixes = (*provider_prefixes(originals), *_remote_storage_prefixes(values))
        for name in originals:
            key = keys.get(name) or keys.get(listener_base(name) or "")
            if key is None and name in AUTHORIZER_SETTINGS:
                if not values[AUTHORIZER_CLASS_NAME]:
                    without_effect.append(name)
            elif key is None:
                if not name.startswith(prefixes):
                    unknown.append(name)
            elif not key.honoured or (name not in keys and not is_of_listener(key.name)):
                without_effect.append(name)
        self.unknown = tuple(unknown)
        self.without_effect = tuple(without_effect)
        protocols = self._protocols()
        self._listeners = parse_listeners(
            "listeners", self.get_list("listeners"), protocols, distinct_ports=True
        )
        self._advertised = (
            self._listeners
            if values["advertised.listeners"] is None
            else parse_listeners(
                "advertised.listeners", self.get_list("advertised.listeners"), protocols, distinct_ports=False
            )
        )
        self.warnings = ()

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> ServerConfig:
        """Settings from a file's properties and from the command line's overrides, which have precedence.

        Raises ConfigError for a value out of bounds, a missing setting, or settings that do not fit together.
        """
        originals = resolved({**properties, **(overrides or {})})
        if "node.id" in originals:
            originals.setdefault("broker.id", originals["node.id"])
        elif "broker.id" in originals:
            originals["node.id"] = originals["broker.id"]
        config = cls(originals, _parse(originals))
        config.warnings = check_constraints(config)
        _check_compaction_lags(config)
        return config

    def with_overrides(
        self, layers: Iterable[Mapping[str, str]]
    ) -> tuple[ServerConfig, dict[str, ConfigError]]:
        """These settings with dynamic layers over them, of which later ones have precedence, and the refused values by
        name.

        A setting in a layer replaces all settings of the same meaning. As in Kafka, an invalid value is left out.
        """
        keys = broker_keys()
        originals, values = dict(self.originals), dict(self._values)
        refused: dict[str, ConfigError] = {}
        for layer in layers:
            for name, text in layer.items():
                key = keys.get(name)
                try:
                    value = None if key is None else parse_value(key, text)
                except ConfigError as error:
                    refused[name] = error
                    continue
                for synonym in broker_synonyms(name, with_listener_base=False):
                    if originals.pop(synonym, None) is not None:
                        values[synonym] = keys[synonym].default if synonym in keys else None
                originals[name] = text
                if key is not None:
                    values[name] = value
        return ServerConfig(originals, values), refused

    def value(self, name: str) -> ConfigValue:
        """The typed value as set or by default, independent of other settings. Raises KeyError for an unknown name."""
        return self._values[name]

    def resolved(self, name: str) -> ConfigValue:
        """The typed value after other settings were taken into account. Raises KeyError for an unknown name."""
        return self._resolved[name]

    def text(self, name: str) -> str | None:
        """The value as DescribeConfigs renders it."""
        return render_value(broker_keys()[name], self._values[name])

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> ConfigValue:
        """The typed value of a setting for one listener, or one of its SASL mechanisms:
        listener.name.<listener>.<mechanism>.<name>, then listener.name.<listener>.<name>, then the node's value.
        Raises ConfigError, or KeyError for a name that is none of OF_LISTENERS."""
        _require_of_listener(name)
        for prefix in (listener_prefix(listener, mechanism), listener_prefix(listener)):
            if prefix + name in self.originals:
                return self._parsed(prefix, name)
        return self._values[name]

    def _parsed(self, prefix: str, name: str) -> ConfigValue:
        full_name = prefix + name
        return parse_value(replace(broker_keys()[name], name=full_name), self.originals[full_name])

    def get_int(self, name: str) -> int:
        """A whole number. For log.retention.ms and similar settings, the resolved value of their family."""
        value = self._resolved[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not a number: {value!r}")
        return value

    get_long = get_int

    def get_double(self, name: str) -> float:
        value = self._resolved[name]
        if not isinstance(value, float):
            raise TypeError(f"{name} is not a double: {value!r}")
        return value

    def get_boolean(self, name: str) -> bool:
        value = self._resolved[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is not a boolean: {value!r}")
        return value

    def get_string(self, name: str) -> str | None:
        """Any setting as text, None for null."""
        return render_value(broker_keys()[name], self._resolved[name])

    def get_list(self, name: str) -> tuple[str, ...]:
        """A list's entries. Empty for null. For log.dirs and similar settings, the resolved value."""
        value = self._resolved[name]
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise TypeError(f"{name} is not a list: {value!r}")
        return value

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    @property
    def roles(self) -> frozenset[str]:
        """'broker', 'controller' or both."""
        return frozenset(self.get_list("process.roles"))

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Data directories in order. log.dir is used if log.dirs is not set."""
        return self.get_list("log.dirs")

    @property
    def metadata_log_dir(self) -> str:
        """The directory of __cluster_metadata: metadata.log.dir, or otherwise the first data directory."""
        return self.get_string("metadata.log.dir") or self.log_dirs[0]

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.get_list("controller.listener.names"))

    def listeners(self) -> tuple[EndPoint, ...]:
        """All listeners of the node, including the controller's."""
        return self._listeners

    def advertised_listeners(self) -> tuple[EndPoint, ...]:
        """The listeners as published to others. The same as listeners() if not set."""
        return self._advertised

    def broker_listeners(self) -> tuple[EndPoint, ...]:
        """The listeners that clients connect to."""
        controller = self.controller_listener_names
        return tuple(endpoint for endpoint in self._listeners if endpoint.listener_name not in controller)

    def controller_listeners(self) -> tuple[EndPoint, ...]:
        controller = self.controller_listener_names
        return tuple(endpoint for endpoint in self._listeners if endpoint.listener_name in controller)

    def advertised_broker_listeners(self) -> tuple[EndPoint, ...]:
        controller = self.controller_listener_names
        return tuple(endpoint for endpoint in self._advertised if endpoint.listener_name not in controller)

    @property
    def inter_broker_listener_name(self) -> str:
        """Upper case; by default the listener named after security.inter.broker.protocol."""
        return (
            self.get_string("inter.broker.listener.name")
            or self.get_string("security.inter.broker.protocol")
            or ""
        ).upper()

    def security_protocols(self) -> dict[str, str]:
        """Listener name, in upper case, to security protocol."""
        return self._protocols()

    def _protocols(self) -> dict[str, str]:
        setting = "listener.security.protocol.map"
        protocols = parse_protocol_map(setting, self.get_string(setting) or "")
        if setting in self.originals:
            return protocols
        # If the protocols of the controller listeners are not set, they are PLAINTEXT, unless a secure listener is in
        # use.
        names = self.controller_listener_names
        used = (*names, *(listener_name_of("listeners", entry) for entry in self.get_list("listeners")))
        if not any(name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT") for name in used):
            for name in names:
                protocols.setdefault(name, "PLAINTEXT")
        return protocols


# --- which settings can be combined


_NO_ROUTE = ("0.0.0.0",)
_MIB = 1 << 20
COMPRESSION_CODEC_COUNT = 5
_CODEC_SETTINGS = ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec")


def parse_voters(config: ServerConfig) -> dict[int, tuple[str, int]]:
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


def _check_roles(config: ServerConfig) -> None:
    if config.get_int("broker.id") != config.get_int("node.id"):
        raise _refuse(
            "node.id", f"({config.get_int('node.id')}) and broker.id ({config.get_int('broker.id')}) differ"
        )
    voters, roles = parse_voters(config), config.roles
    if not voters and not config.get_list(CONTROLLER_BOOTSTRAP_SERVERS):
        raise _refuse(
            "controller.quorum.voters", f"or {CONTROLLER_BOOTSTRAP_SERVERS} must name the controllers"
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
        if config.get_boolean(AUTO_JOIN):
            raise _refuse(AUTO_JOIN, "is for nodes with the controller role in process.roles")
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


def _check_listeners(config: ServerConfig) -> None:
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


def _check_logs(config: ServerConfig) -> None:
    if config.get_int("log.roll.ms") < 1:
        raise _refuse("log.roll.ms", "must be at least 1")
    if config.get_int("log.roll.jitter.ms") < 0:
        raise _refuse("log.roll.jitter.ms", "must be at least 0")
    if config.get_int("log.retention.ms") == 0:
        raise _refuse(
            "log.retention.ms", "(or log.retention.minutes, log.retention.hours) must be -1 or at least 1"
        )
    if config.get_boolean(TIERING) and "broker" in config.roles:
        check_local_retention(config)
    threads = config.get_int("log.cleaner.threads")
    if threads < 1:
        raise _refuse("log.cleaner.threads", "must be at least 1")
    if config.get_int("log.cleaner.dedupe.buffer.size") // threads <= _MIB:
        raise _refuse("log.cleaner.dedupe.buffer.size", "must exceed 1 MiB per thread of log.cleaner.threads")
    if "broker" in config.roles:
        _check_cordoned(config)
    for name in _CODEC_SETTINGS:
        if not 0 <= config.get_int(name) < COMPRESSION_CODEC_COUNT:
            raise ConfigError(name, config.get_int(name), f"expected 0 to {COMPRESSION_CODEC_COUNT - 1}")


def _check_compaction_lags(config: ServerConfig) -> None:
    """Of a broker's file. As in Kafka a change of a running broker is not checked."""
    least, most = (f"log.cleaner.{bound}.compaction.lag.ms" for bound in ("min", "max"))
    if "broker" in config.roles and config.get_int(least) > config.get_int(most):
        raise _refuse(least, f"({config.get_int(least)}) must not exceed {most} ({config.get_int(most)})")


def check_local_retention(config: ServerConfig) -> None:
    """In Kafka's words. Each change of a running broker is checked, and the file of a broker with a remote storage."""
    for unit in ("ms", "bytes"):
        name, other = f"log.local.retention.{unit}", f"log.retention.{unit}"
        local, total = config.get_int(name), config.get_int(other)
        if total < 0 or local == -2:
            continue
        if local == -1:
            raise ConfigError(name, local, f"Value must not be -1 as {other} value is set as {total}.")
        if local > total:
            raise ConfigError(name, local, f"Value must not be more than {other} property value: {total}")


def check_copy_lags(config: ServerConfig) -> None:
    """In Kafka's words. Each change of a running broker is checked, but not its file."""
    for unit in ("ms", "bytes"):
        name, other = f"log.remote.copy.lag.{unit}", f"log.local.retention.{unit}"
        lag, kept = config.get_int(name), config.get_int(other)
        if kept == -2:
            kept = config.get_int(f"log.retention.{unit}")
        if lag > 0 and 0 <= kept < lag:
            raise ConfigError(name, lag, f"Value must not exceed {other} (effective value: {kept})")


def _check_cordoned(config: ServerConfig) -> None:
    """In Kafka's words."""
    cordoned = config.get_list("cordoned.log.dirs")
    if "*" in cordoned:
        if len(cordoned) == 1:
            return
        text = "When cordoned.log.dirs is set to *, it must not contain other values"
    else:
        missing = [name for name in cordoned if name not in config.log_dirs]
        if not missing:
            return
        text = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "
        text += ", ".join(missing)
    raise ConfigError("cordoned.log.dirs", None, f"requirement failed: {text}", whole=True)


def _check_network(config: ServerConfig) -> None:
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


def _check_groups(config: ServerConfig) -> None:
    consumer_assignors(config.get_list(CONSUMER_ASSIGNORS))
    share_assignor(config.get_list(SHARE_ASSIGNORS))
    streams_assignors(config.get_list(STREAMS_ASSIGNORS))
    sessions, size = config.get_int("group.share.max.share.sessions"), config.get_int("group.share.max.size")
    if sessions < size:
        raise _refuse(
            "group.share.max.share.sessions", f"({sessions}) must be at least group.share.max.size ({size})"
        )
    if "classic" not in config.get_list("group.coordinator.rebalance.protocols"):
        raise _refuse("group.coordinator.rebalance.protocols", "must contain classic")
    check_group_defaults(config)


_CHECKS: tuple[Callable[[ServerConfig], None], ...] = (
    _check_roles,
    _check_listeners,
    _check_logs,
    _check_network,
    _check_groups,
)


def check_constraints(config: ServerConfig) -> tuple[str, ...]:
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


def defaults_without_file(
    node_id: int = 1, host: str = "127.0.0.1", port: int = 9092, controller_port: int = 9093
) -> dict[str, str]:
    """The settings for a start without a file: one node with both roles. Also valid for Apache Kafka."""
    return {
        "node.id": f"{node_id}",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{host_and_port(host, port)},CONTROLLER://{host_and_port(host, controller_port)}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": f"{node_id}@{host_and_port(host, controller_port)}",
        "log.dirs": "./kafkacompat-data",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def _remote_storage_prefixes(values: Mapping[str, ConfigValue]) -> tuple[str, ...]:
    """The beginnings of settings that the remote storage takes."""
    if not values[TIERING]:
        return ()
    duties = ("storage", "metadata")
    return tuple(str(values[f"remote.log.{duty}.manager.impl.prefix"]) for duty in duties)


def _require_of_listener(name: str) -> None:
    if not is_of_listener(name):
        raise KeyError(f"{name} is none of OF_LISTENERS in config/of_listeners.py")


def _parse(originals: Mapping[str, str]) -> dict[str, ConfigValue]:
    keys = broker_keys()
    values: dict[str, ConfigValue] = {}
    for name, key in keys.items():
        if name in originals:
            values[name] = parse_value(key, originals[name])
        elif key.required:
            raise ConfigError(name, None, f"{name} must be set: it has no default", whole=True)
        else:
            values[name] = key.default
    for name, text in originals.items():
        base = listener_base(name)
        if base is not None and base in keys:
            parse_value(replace(keys[base], name=name), text)
    return values
