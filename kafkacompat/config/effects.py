"""Settings that are accepted without effect, and those that Kafka does not have, for the documentation page that lists
them.

The lists are derived from the definitions.
"""

from __future__ import annotations

from kafkacompat.config.keys import ConfigKey, broker_keys, group_keys, own_names, render_value, topic_keys


def own_table() -> list[tuple[str, str, str, str]]:
    """(kind, name, default, meaning) of each setting that Kafka 4.3 does not have."""
    return [
        (kind, name, _default_text(keys[name]), keys[name].documentation or "")
        for kind, keys in (("broker", broker_keys()), ("topic", topic_keys()), ("group", group_keys()))
        for name in sorted(own_names(kind))
    ]


def without_effect_table() -> list[tuple[str, str, str]]:
    """(kind, name, default) of each setting that Kafka documents and this broker accepts without effect."""
    rows = []
    for kind, keys in (("broker", broker_keys()), ("topic", topic_keys()), ("group", group_keys())):
        for name, key in sorted(keys.items()):
            if not key.honoured and not key.internal:
                rows.append((kind, name, _default_text(key)))
    return rows


def _default_text(key: ConfigKey) -> str:
    default = "required" if key.required else render_value(key, key.default)
    return "null" if default is None else default
