"""Log lines about settings in the metadata that have no effect or were left out.

Each line appears once: for settings of topics, groups and brokers that are accepted without effect, and for dynamic
settings of this node that are left out. The command line warns about settings in server.properties.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from kafkacompat.config import ConfigKey, broker_keys, group_keys, topic_keys
from kafkacompat.config.synonyms import listener_base
from kafkacompat.controller.image import ConfigResourceType, MetadataImage, changed_configs

logger = logging.getLogger(__name__)

MAX_TOLD = 1000
"""More than Kafka has settings. Without a bound, names with listener prefixes could be unlimited."""
KINDS = {
    int(ConfigResourceType.TOPIC): ("topic", topic_keys),
    int(ConfigResourceType.BROKER): ("broker", broker_keys),
    int(ConfigResourceType.GROUP): ("group", group_keys),
}


class SettingNotices:
    """Logs at most one line per process for each setting without effect and for each setting left out."""

    __slots__ = ("_node_id", "_told")

    def __init__(self, node_id: int) -> None:
        self._node_id = str(node_id)
        self._told: set[tuple[str, str]] = set()

    def on_image(self, old: MetadataImage, new: MetadataImage, refused: Mapping[str, Exception]) -> None:
        """`refused`: the dynamic settings that this node leaves out in the new image, with the reason."""
        if old.configs is new.configs:
            return
        for kind, name in self._new_names(old, new):
            self._tell(
                kind,
                name,
                f"the {kind} setting {name} is accepted without effect (see docs/reference/compatibility.md)",
            )
        for name, reason in refused.items():
            self._tell("refused", name, f"a dynamic setting is ignored: {reason}")

    def _new_names(self, old: MetadataImage, new: MetadataImage) -> Iterator[tuple[str, str]]:
        for resource in changed_configs(old, new):
            settings = new.configs.get(resource)
            if settings is None or resource[0] not in KINDS:
                continue
            kind, keys_of = KINDS[resource[0]]
            if kind == "broker" and resource[1] not in ("", self._node_id):
                continue
            keys: Mapping[str, ConfigKey] = keys_of()
            for name in settings:
                key = keys.get(name) or keys.get(listener_base(name) or "")
                if key is not None and not key.honoured:
                    yield kind, name

    def _tell(self, kind: str, name: str, line: str) -> None:
        if (kind, name) not in self._told and len(self._told) < MAX_TOLD:
            self._told.add((kind, name))
            logger.warning("%s", line)
