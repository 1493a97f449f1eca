"""A topic's settings: checked definitions, and overrides merged with the broker's defaults into one typed value.

The result is a LogConfig. Overrides of topics are validated here. Follows Kafka 4.4: a topic's own setting has
precedence, then the broker's setting of the same meaning, then the built-in default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkacompat.config.keys import (
    ConfigError,
    ConfigType,
    ConfigValue,
    broker_keys,
    group_keys,
    parse_typed,
    parse_value,
    topic_keys,
)
from kafkacompat.config.server import COMPACTED_TOO, TIERING, ServerConfig
from kafkacompat.dataclass import dataclass

TIERED = "remote.storage.enable"
MIRROR_NAME = "mirror.name"
MIRROR_BOOTSTRAP_SERVERS = "mirror.source.bootstrap.servers"
MIRROR_TOPIC_ID = "mirror.source.topic.id"
MIRROR_LEADER_EPOCH = "mirror.leader.epoch"
"""The partitions of a mirror begin in this leader epoch, so that no batch of the source has one of theirs."""
MIRROR_STATE = "mirror.state"
MIRRORING, PAUSED, STOPPED = "mirroring", "paused", "stopped"
"""Values of mirror.state."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The effective settings of one topic. `_ms` in milliseconds, `_bytes` in bytes. -1 means no retention limit."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86400000
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60000
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = 2**63 - 1
    max_decompressed_message_bytes: int = 2147483639
    max_message_bytes: int = 1048588
    message_timestamp_after_max_ms: int = 3600000
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_type: str = "CreateTime"
    """'CreateTime' or 'LogAppendTime'."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    mirror_leader_epoch: int = 0
    mirror_name: str = ""
    mirror_source_bootstrap_servers: str = ""
    mirror_source_topic_id: str = ""
    mirror_state: str = STOPPED
    preallocate: bool = False
    remote_copy_lag_bytes: int = -1
    remote_copy_lag_ms: int = 0
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604800000
    segment_bytes: int = 1073741824
    segment_index_bytes: int = 10485760
    segment_jitter_ms: int = 0
    segment_ms: int = 604800000
    unclean_leader_election_enable: bool = False
    internal_segment_bytes: int | None = None

    @property
    def delete(self) -> bool:
        """Old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def compact(self) -> bool:
        """The log keeps the last record of each key. Every record must have a key."""
        return "compact" in self.cleanup_policy

    @property
    def is_mirror(self) -> bool:
        """The topic takes records from its source only."""
        return self.mirror_state != STOPPED


def _field(name: str) -> str:
    return name.replace(".", "_")


def broker_default(effective: ServerConfig, name: str) -> ConfigValue:
    """A topic's value for `name` without an override."""
    key = topic_keys()[name]
    return effective.resolved(key.broker) if key.broker else key.default


def effective_log_config(effective: ServerConfig, topic_overrides: Mapping[str, str]) -> LogConfig:
    """A topic's settings over the node's effective ones. Unknown or invalid overrides are left out."""
    values: dict[str, Any] = {_field(name): broker_default(effective, name) for name in topic_keys()}
    for name, text in topic_overrides.items():
        key = topic_keys().get(name)
        if key is None:
            continue
        try:
            values[_field(name)] = parse_value(key, text)
        except ConfigError:
            # A record from another version may have a value that is invalid here. Then the default applies, as in
            # Kafka.
            continue
    return LogConfig(**values)


def log_config(
    static: ServerConfig,
    default_layer: Mapping[str, str],
    broker_layer: Mapping[str, str],
    topic_overrides: Mapping[str, str],
) -> LogConfig:
    """A topic's settings, by precedence: topic, broker, cluster default, file, built-in."""
    layered = (
        static
        if not default_layer and not broker_layer
        else static.with_overrides((default_layer, broker_layer))[0]
    )
    return effective_log_config(layered, topic_overrides)


def validate_topic_configs(
    overrides: Mapping[str, str | None],
    effective: ServerConfig | None = None,
    existing: Mapping[str, str] | None = None,
) -> None:
    """Check all overrides of a topic. Raises ConfigError for an unknown name, a bad value, or a conflicting pair.

    With `effective` the other half of a pair may come from the broker. `existing` has the topic's present overrides.
    """
    keys = topic_keys()
    for name in overrides:
        if name not in keys:
            raise ConfigError(name, None, f"Unknown topic config name: {name}", whole=True)
    values: dict[str, Any] = {}
    for name, key in keys.items():
        text = overrides.get(name)
        if name in overrides:
            if text is None:
                raise ConfigError(name, None, f"{name} must have a value", whole=True)
            values[name] = parse_value(key, text)
        else:
            values[name] = key.default if effective is None else broker_default(effective, name)
    least_ms, most_ms = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if least_ms > most_ms:
        text = f"conflict topic config setting min.compaction.lag.ms ({least_ms}) > max.compaction.lag.ms ({most_ms})"
        raise ConfigError("min.compaction.lag.ms", least_ms, text, whole=True)
    if effective is not None:
        _validate_remote(values, effective, existing or {})
    _validate_mirror(values)


_KEEPS_REMOTE_DATA = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and turn to "
    "read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote storage "
    "and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
_TIERING_IS_OFF = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
_IS_COMPACTED = "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."


def _validate_remote(values: Mapping[str, Any], effective: ServerConfig, existing: Mapping[str, str]) -> None:
    """In Kafka's words and order."""
    if not values[TIERED]:
        was_enabled = existing.get(TIERED, "").strip().lower() == "true"
        if was_enabled and not values["remote.log.delete.on.disable"]:
            raise ConfigError(TIERED, None, _KEEPS_REMOTE_DATA, whole=True)
        return
    if existing.get(TIERED, "").strip().lower() == "true":
        policy: Any = broker_default(effective, "cleanup.policy")
        if "cleanup.policy" in existing:
            policy = parse_value(topic_keys()["cleanup.policy"], existing["cleanup.policy"])
        if ("compact" in policy) != ("compact" in values["cleanup.policy"]):
            raise ConfigError(
                "cleanup.policy",
                ",".join(values["cleanup.policy"]),
                "compaction of a tiered topic cannot begin or end",
            )
    if not effective.get_boolean(TIERING):
        raise ConfigError(TIERED, None, _TIERING_IS_OFF, whole=True)
    if "compact" in values["cleanup.policy"] and not effective.get_boolean(COMPACTED_TOO):
        raise ConfigError(TIERED, None, _IS_COMPACTED, whole=True)
    for unit in _UNITS:
        _check_local_retention(unit, values[f"local.retention.{unit}"], values[f"retention.{unit}"])
    for unit in _UNITS:
        lag, kept = values[f"remote.copy.lag.{unit}"], values[f"local.retention.{unit}"]
        if kept == -2:
            kept = values[f"retention.{unit}"]
        if 0 <= kept < lag:
            raise ConfigError(
                f"remote.copy.lag.{unit}",
                lag,
                f"Value must not exceed local.retention.{unit} (effective value: {kept})",
            )
    for unit in _UNITS if values["remote.log.copy.disable"] else ():
        local, other = f"local.retention.{unit}", f"retention.{unit}"
        if values[local] not in (-2, values[other]):
            text = f"When `remote.log.copy.disable` is set to true, the `{local}` and `{other}` must be set to the identical "
            text += "value because there will be no more logs copied to the remote storage."
            raise ConfigError(local, values[local], text, whole=True)


_UNITS = ("bytes", "ms")


def _check_local_retention(unit: str, local: int, total: int) -> None:
    name, other = f"local.retention.{unit}", f"retention.{unit}"
    if total < 0 or local == -2:
        return
    if local == -1:
        raise ConfigError(name, local, f"Value must not be -1 as {other} value is set as {total}.")
    if local > total:
        raise ConfigError(name, local, f"Value must not be more than {other} property value: {total}")


def _validate_mirror(values: Mapping[str, Any]) -> None:
    state = values[MIRROR_STATE]
    if state == STOPPED:
        return
    if not values[MIRROR_LEADER_EPOCH]:
        raise ConfigError(
            MIRROR_STATE, state, f"it needs {MIRROR_LEADER_EPOCH}, which `kafkacompat mirror` sets"
        )
    for name in (MIRROR_BOOTSTRAP_SERVERS, MIRROR_TOPIC_ID):
        if not values[name]:
            raise ConfigError(name, values[name], f"must be given while {MIRROR_STATE} is {state}")
    if values[TIERED]:
        raise ConfigError(TIERED, "true", f"not possible while {MIRROR_STATE} is {state}")


def apply_list_op(name: str, current: str | None, operand: str, *, subtract: bool) -> str:
    """The text of a list after APPEND (or SUBTRACT) of `operand`. The order is kept, and present entries are not
    appended again.

    `current` is the override, or otherwise the default. Raises ConfigError if `name` is not a list setting.
    """
    key = topic_keys().get(name) or broker_keys().get(name) or group_keys().get(name)
    if key is None or key.type is not ConfigType.LIST:
        operation = "SUBTRACT" if subtract else "APPEND"
        raise ConfigError(name, operand, f"{operation} is for lists, and {name} is none", whole=True)
    entries = parse_typed(name, ConfigType.LIST, current or "")
    changes = parse_typed(name, ConfigType.LIST, operand)
    assert isinstance(entries, tuple)
    assert isinstance(changes, tuple)
    if subtract:
        return ",".join(entry for entry in entries if entry not in changes)
    return ",".join(dict.fromkeys((*entries, *changes)))
