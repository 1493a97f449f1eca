"""DescribeConfigs: value, source and synonyms of every setting of a broker, a topic or a group.

The entries are independent of protocol versions. Follows Kafka 4.4: synonyms come in descending precedence, beginning
with the described name, and the source is that of the first one. Entries are sorted by name (Kafka's are in hash
order).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from kafkacompat.config.dynamic import DynamicConfig
from kafkacompat.config.group import group_values
from kafkacompat.config.keys import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    DynamicScope,
    broker_keys,
    broker_synonyms,
    group_keys,
    listener_base,
    names_shown_if_set,
    own_names,
    parse_value,
    render_value,
    topic_keys,
)
from kafkacompat.config.topic import broker_default
from kafkacompat.dataclass import dataclass


class ConfigSource(enum.IntEnum):
    """The source of a value, with Kafka's numbers."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A setting that could give an entry its value. `value` is None if it must not be shown."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One described setting. `value` is None for null, and if it must not be shown (`sensitive`)."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str | None


DYNAMIC_ONLY = "DYNAMIC"
"""The importance, in the table, of settings that exist only in dynamic layers."""


def _default_text(name: str) -> str | None:
    key = broker_keys().get(name)
    return None if key is None or key.importance == DYNAMIC_ONLY else render_value(key, key.default)


def _layers(config: DynamicConfig) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
    return (
        (config.broker_layer, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.default_layer, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static.originals, ConfigSource.STATIC_BROKER_CONFIG),
    )


def source_of_default(config: DynamicConfig, name: str) -> ConfigSource:
    """The layer that gives a topic's setting without an override, by any of the broker's names for it. DescribeConfigs tells
    less: it begins with the first of these names, so a time that is set in hours counts as Kafka's default."""
    broker = topic_keys()[name].broker
    names = broker_synonyms(broker) if broker else ()
    for layer, source in _layers(config):
        if any(each in layer for each in names):
            return source
    return ConfigSource.DEFAULT_CONFIG


def _synonyms(config: DynamicConfig, name: str, names: Iterable[str], sensitive: bool) -> list[ConfigSynonym]:
    names = tuple(names)
    found = [
        ConfigSynonym(synonym, None if sensitive else layer[synonym], source)
        for layer, source in _layers(config)
        for synonym in names
        if synonym in layer
    ]
    for synonym in names:
        default = _default_text(synonym)
        if default is not None:
            found.append(ConfigSynonym(synonym, None if sensitive else default, ConfigSource.DEFAULT_CONFIG))
    start = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[start:]


def _key_of(name: str) -> ConfigKey | None:
    keys = broker_keys()
    return keys.get(name) or keys.get(listener_base(name) or "")


def _entry(
    name: str,
    key: ConfigKey | None,
    text: str | None,
    synonyms: Iterable[ConfigSynonym],
    read_only: bool,
) -> ConfigEntry:
    synonyms = tuple(synonyms)
    sensitive = key is None or key.sensitive
    return ConfigEntry(
        name,
        None if sensitive else text,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only,
        sensitive,
        synonyms,
        ConfigType.UNKNOWN if key is None else key.type,
        key.documentation if key is not None and key.name == name else None,
    )


def _broker_entry(
    config: DynamicConfig, name: str, text: str | None, only_default_layer: bool
) -> ConfigEntry:
    key = _key_of(name)
    synonyms = _synonyms(config, name, broker_synonyms(name), key is None or key.sensitive)
    if only_default_layer:
        synonyms = [s for s in synonyms if s.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]
    own = broker_keys().get(name)
    return _entry(name, key, text, synonyms, own is None or own.dynamic is DynamicScope.NONE)


def describe_cluster_defaults(config: DynamicConfig) -> list[ConfigEntry]:
    """Entries of the BROKER resource "": only the cluster's dynamic defaults."""
    layer = config.default_layer
    return [_broker_entry(config, name, layer[name], only_default_layer=True) for name in sorted(layer)]


def describe_broker(config: DynamicConfig) -> list[ConfigEntry]:
    """Every setting of this node, and other names that are set, by name."""
    keys, effective = broker_keys(), config.effective
    names = {name for name, key in keys.items() if not key.internal}.union(effective.originals)
    return [
        _broker_entry(
            config,
            name,
            effective.text(name) if name in keys else effective.originals[name],
            only_default_layer=False,
        )
        for name in sorted(names)
    ]


def _overridden(
    keys: Mapping[str, ConfigKey], values: dict[str, ConfigValue], overrides: Mapping[str, str]
) -> dict[str, str | None]:
    """Text by name: defaults of the described settings, with the overrides applied."""
    texts: dict[str, str | None] = {
        name: render_value(key, values[name]) for name, key in keys.items() if not key.internal
    }
    for name, text in overrides.items():
        try:
            texts[name] = render_value(keys[name], parse_value(keys[name], text)) if name in keys else text
        except ConfigError:
            texts[name] = text
    return texts


def describe_topic(config: DynamicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a topic with these overrides, by name. Those of mirrors are described only if they are set: a topic
    that is no mirror looks as in Kafka. Those that Kafka does not have are read-only, so that MirrorMaker does not copy
    them to a cluster that refuses them."""
    keys, own = topic_keys(), own_names("topic")
    hidden = names_shown_if_set() - overrides.keys()
    texts = _overridden(keys, {name: broker_default(config.effective, name) for name in keys}, overrides)
    entries = []
    for name in sorted(texts.keys() - hidden):
        key = keys.get(name)
        sensitive = key is None or key.sensitive
        synonyms: list[ConfigSynonym] = []
        if key is not None and key.broker:
            synonyms = _synonyms(config, key.broker, broker_synonyms(key.broker), sensitive)
        if name in overrides:
            text = None if sensitive else texts[name]
            synonyms.insert(0, ConfigSynonym(name, text, ConfigSource.TOPIC_CONFIG))
        entries.append(_entry(name, key, texts[name], synonyms, name in own))
    return entries


def describe_group(config: DynamicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a group with these overrides, by name."""
    keys = group_keys()
    texts = _overridden(keys, group_values(config.effective, {}), overrides)
    entries = []
    for name in sorted(texts):
        key = keys.get(name)
        sensitive = key is None or key.sensitive
        synonyms: list[ConfigSynonym] = []
        if key is not None and key.broker:
            synonyms = _synonyms(config, key.broker, (key.broker,), sensitive)
        elif key is not None and (default := render_value(key, key.default)) is not None:
            synonyms = [ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG)]
        if name in overrides:
            text = None if sensitive else texts[name]
            synonyms.insert(0, ConfigSynonym(name, text, ConfigSource.GROUP_CONFIG))
        entries.append(_entry(name, key, texts[name], synonyms, False))
    return entries
