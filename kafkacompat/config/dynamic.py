"""Broker settings that change at runtime: layers over the static file.

It checks changes and computes the effective settings of a node. Follows Kafka 4.4: this broker's layer has precedence
over the cluster's default layer, then the file, then the built-in defaults. A setting in a layer replaces all settings
of the same meaning below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from kafkacompat.config.keys import (
    ConfigError,
    DynamicScope,
    broker_keys,
    listener_base,
    parse_value,
)
from kafkacompat.config.of_listeners import is_of_listener
from kafkacompat.config.server import (
    ServerConfig,
    check_constraints,
    check_copy_lags,
    check_local_retention,
)
from kafkacompat.config.topic import LogConfig, effective_log_config

_THREAD_COUNTS = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
)
"""Of Kafka's DynamicThreadPool and DynamicRemoteLogConfig."""
_KEPT_LOCALLY = tuple(
    f"log.{name}.{unit}"
    for name in ("retention", "local.retention", "remote.copy.lag")
    for unit in ("ms", "bytes")
)
"""They bound each other. server.properties may have others, of which a change of something else says nothing."""
_NOT_ZERO = ("max.connections", "max.connection.creation.rate")
"""They may be 0 in server.properties only: with 0 nobody could connect to change them back (ListenerConnectionQuota)."""
_EMPTY: Mapping[str, str] = MappingProxyType({})


def _names(text: str, names: list[str]) -> ConfigError:
    return ConfigError(names[0], None, f"{text}: [{', '.join(names)}]", whole=True)


def _is_static(name: str) -> bool:
    key = broker_keys().get(name)
    return key is not None and key.dynamic is DynamicScope.NONE


def _needs_listener_prefix(name: str) -> bool:
    return name == "ssl.key.password" or name.startswith(("ssl.keystore.", "ssl.truststore."))


def _is_per_broker(name: str) -> bool:
    base = listener_base(name)
    key = broker_keys().get(base or name)
    if base is not None:
        return key is None or key.dynamic is not DynamicScope.CLUSTER or not is_of_listener(base)
    return key is not None and key.dynamic is DynamicScope.PER_BROKER


def validate_dynamic_broker(
    changes: Mapping[str, str], *, per_broker: bool, current: DynamicConfig | None = None
) -> None:
    """Check the complete layer that a change would result in. `per_broker` is False for the cluster's default layer.

    With `current`, the resulting settings must also fit together. Raises ConfigError otherwise. As in Kafka, unknown
    names are accepted.
    """
    if static := sorted(filter(_is_static, changes)):
        raise _names("Cannot update these configs dynamically", static)
    if unprefixed := sorted(filter(_needs_listener_prefix, changes)):
        raise _names(
            "These security configs can be dynamically updated only per-listener using the listener prefix",
            unprefixed,
        )
    keys = broker_keys()
    for name, text in changes.items():
        base = listener_base(name) or name
        key = keys.get(name) or keys.get(base)
        if key is not None and parse_value(key, text) == 0 and base in _NOT_ZERO:
            raise ConfigError(name, text, "expected at least 1")
    if not per_broker and (single := sorted(filter(_is_per_broker, changes))):
        raise _names(
            "Cannot update these configs at default cluster level, broker id must be specified", single
        )
    if current is not None:
        layers = (current.default_layer, changes) if per_broker else (changes, current.broker_layer)
        changed = current.static.with_overrides(layers)[0]
        check_constraints(changed)
        if any(changed.get_int(name) != current.effective.get_int(name) for name in _KEPT_LOCALLY):
            check_local_retention(changed)
            check_copy_lags(changed)


def check_thread_counts(changes: Mapping[str, str], *, per_broker: bool, current: DynamicConfig) -> None:
    """Check that a change makes no pool of threads of this broker less than half, or more than twice as large.

    `changes` is the complete layer that results, as for `validate_dynamic_broker`; so a removed setting counts too. As in
    Kafka this is a check of a request only: what a layer already has holds, also on a broker with other values of its
    own. Raises ConfigError.
    """
    before = current.effective
    layers = (current.default_layer, changes) if per_broker else (changes, current.broker_layer)
    after = current.static.with_overrides(layers)[0]
    for name in _THREAD_COUNTS:
        _check_thread_count(name, before.get_int(name), after.get_int(name))
    for listener in after.listeners():
        name = "num.network.threads"
        counts = [each.of_listener(listener.listener_name, name) for each in (before, after)]
        _check_thread_count(name, *map(int, counts))  # type: ignore[arg-type]
    name = "log.cleaner.threads"
    old, new = before.get_int(name), after.get_int(name)
    if new != old:
        text = "Log cleaner threads cannot be {} the current value {}"
        if new < old // 2:
            raise ConfigError(name, None, text.format("reduced to less than half", old), whole=True)
        if new > old * 2:
            raise ConfigError(name, None, text.format("increased to more than double", old), whole=True)


def _check_thread_count(name: str, old: int, new: int) -> None:
    if new == old:
        return
    text = f"Dynamic thread count update validation failed for {name}={new}, value should "
    if new < old // 2:
        raise ConfigError(name, None, f"{text}be at least half the current value {old}", whole=True)
    if new > old * 2:
        raise ConfigError(name, None, f"{text}not be greater than double the current value {old}", whole=True)


def settings_in_force(layer: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """A layer of the metadata without the settings that no broker takes, as earlier releases have stored them. As in Kafka
    they refuse no change of another setting."""
    return _accepted(layer, per_broker)[0]


def _accepted(layer: Mapping[str, str], per_broker: bool) -> tuple[dict[str, str], dict[str, ConfigError]]:
    """A layer without its invalid settings, and those settings."""
    accepted: dict[str, str] = {}
    refused: dict[str, ConfigError] = {}
    for name, text in layer.items():
        try:
            validate_dynamic_broker({name: text}, per_broker=per_broker)
        except ConfigError as error:
            refused[name] = error
        else:
            accepted[name] = text
    return accepted, refused


class DynamicConfig:
    """One node's settings in all layers. Immutable: an image with other layers needs a new object."""

    static: ServerConfig
    default_layer: Mapping[str, str]
    """The cluster's defaults in force, without invalid ones."""
    broker_layer: Mapping[str, str]
    """This broker's own settings in force."""
    refused: Mapping[str, ConfigError]
    """Settings of the layers that were left out, with the reason, for the log."""
    effective: ServerConfig

    def __init__(
        self,
        static: ServerConfig,
        default_layer: Mapping[str, str] = _EMPTY,
        broker_layer: Mapping[str, str] = _EMPTY,
    ) -> None:
        self.static = static
        default, refused = _accepted(default_layer, per_broker=False)
        broker, more = _accepted(broker_layer, per_broker=True)
        refused.update(more)
        try:
            self.effective = self._layered(default, broker)
        except ConfigError:
            default, broker = self._without_conflicts(default, broker, refused)
            self.effective = self._layered(default, broker)
        self.default_layer = MappingProxyType(default)
        self.broker_layer = MappingProxyType(broker)
        self.refused = MappingProxyType(refused)

    def _layered(self, default: Mapping[str, str], broker: Mapping[str, str]) -> ServerConfig:
        if not default and not broker:
            return self.static
        layered, _ = self.static.with_overrides((default, broker))
        check_constraints(layered)
        return layered

    def _without_conflicts(
        self, default: Mapping[str, str], broker: Mapping[str, str], refused: dict[str, ConfigError]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Both layers, built setting by setting, without those that conflict with earlier ones."""
        kept: tuple[dict[str, str], dict[str, str]] = ({}, {})
        for layer, settings in zip(kept, (default, broker), strict=True):
            for name, text in settings.items():
                layer[name] = text
                try:
                    self._layered(*kept)
                except ConfigError as error:
                    del layer[name]
                    refused[name] = error
        return kept

    def log_config(self, topic_overrides: Mapping[str, str] = _EMPTY) -> LogConfig:
        """The effective settings of a topic with these overrides. All topics without overrides share one object."""
        return (
            effective_log_config(self.effective, topic_overrides)
            if topic_overrides
            else self._plain_log_config
        )

    @cached_property
    def _plain_log_config(self) -> LogConfig:
        return effective_log_config(self.effective, _EMPTY)

    def get_int(self, name: str) -> int:
        return self.effective.get_int(name)

    def get_boolean(self, name: str) -> bool:
        return self.effective.get_boolean(name)

    def get_double(self, name: str) -> float:
        return self.effective.get_double(name)

    def get_string(self, name: str) -> str | None:
        return self.effective.get_string(name)


def effective(
    static: ServerConfig, default_layer: Mapping[str, str], broker_layer: Mapping[str, str]
) -> ServerConfig:
    """A node's effective settings with both layers."""
    return DynamicConfig(static, default_layer, broker_layer).effective
