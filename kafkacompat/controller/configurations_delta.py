"""Changes of the settings of topics, brokers, groups and client metrics by records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from kafkacompat.controller.image import ConfigResourceType, KeyChanges, MetadataImage

if TYPE_CHECKING:
    from kafkacompat.wire.messages.config_record import ConfigRecord

Configs: TypeAlias = Mapping[tuple[int, str], Mapping[str, str]]
"""By (resource type, name)."""


class ConfigurationsDelta:
    __slots__ = ("_base", "_changed")

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._changed: dict[tuple[int, str], dict[str, str]] = {}

    def apply(self) -> tuple[Configs, KeyChanges[tuple[int, str]]]:
        """The settings after the changes, and what has changed. A resource without settings is left out."""
        base = self._base
        if not self._changed:
            return base.configs, base.config_changes
        configs = {**base.configs, **self._changed}
        for key, values in self._changed.items():
            if not values:
                del configs[key]
        since = base.config_changes.state if base.offset >= 0 else None
        return configs, KeyChanges(since, tuple(self._changed))

    def replay_config(self, record: ConfigRecord) -> None:
        values = self._editable((record.resource_type, record.resource_name))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def delete_topic(self, name: str) -> None:
        key = (int(ConfigResourceType.TOPIC), name)
        if key in self._base.configs or key in self._changed:
            self._editable(key).clear()

    def _editable(self, key: tuple[int, str]) -> dict[str, str]:
        """The settings of a resource, copied before the first write."""
        values = self._changed.get(key)
        if values is None:
            values = self._changed[key] = dict(self._base.configs.get(key, {}))
        return values
