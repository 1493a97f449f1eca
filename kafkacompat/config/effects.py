"""Settings that are accepted without effect, for the documentation page that lists them.

The list is derived from the definitions.
"""

from __future__ import annotations

from kafkacompat.config.keys import broker_keys, group_keys, render_value, topic_keys


def without_effect_table() -> list[tuple[str, str, str]]:
    """(kind, name, default) of each setting that Kafka documents and this broker accepts without effect."""
    rows = []
    for kind, keys in (("broker", broker_keys()), ("topic", topic_keys()), ("group", group_keys())):
        for name, key in sorted(keys.items()):
            if not key.honoured and not key.internal:
                default = "required" if key.required else render_value(key, key.default)
                rows.append((kind, name, "null" if default is None else default))
    return rows
