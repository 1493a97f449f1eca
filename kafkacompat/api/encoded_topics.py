"""Topics as Metadata replies name them, kept in the bytes of a version for as long as the image says the same.

They are kept by what they depend on: the topic's image and the brokers' (by identity, for images are never changed in place), the
listener, the version, and whether operations were asked for. Only the loop's thread comes here. It is bounded in bytes; when it is
full it is emptied, and fills again with what is asked for now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, TopicImage
    from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic

ENCODED_TOPICS_BYTES_MAX = 8 * 1024 * 1024
"""About 240,000 partitions of three replicas each, in one version."""
ENTRY_BYTES = 200
"""What keeping one topic costs besides its bytes."""

Variant = tuple[str, int, bool]
"""Listener name, version, whether authorized operations are told."""


class EncodedTopics:
    """A hit costs two look-ups; nothing is ever out of date, because what it was made from is compared."""

    __slots__ = ("_brokers", "_bytes", "_bytes_max", "_variants")

    def __init__(self, bytes_max: int = ENCODED_TOPICS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._brokers: Mapping[int, BrokerRegistration] | None = None
        self._variants: dict[Variant, dict[str, tuple[TopicImage, MetadataResponseTopic, int]]] = {}

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def get(
        self, brokers: Mapping[int, BrokerRegistration], topic: TopicImage, variant: Variant
    ) -> MetadataResponseTopic | None:
        """None when it is not kept, or was made from other images."""
        if brokers is not self._brokers:
            self._clear()
            self._brokers = brokers
        kept = self._variants.get(variant)
        if kept is None:
            return None
        entry = kept.get(topic.name)
        return None if entry is None or entry[0] is not topic else entry[1]

    def put(self, topic: TopicImage, variant: Variant, encoded: Any) -> None:
        """Keep what was made from this topic and from the brokers of the last `get`; `len(encoded)` is its size."""
        size = len(encoded) + ENTRY_BYTES
        if size > self._bytes_max:
            return
        kept = self._variants.setdefault(variant, {})
        before = kept.pop(topic.name, None)
        if before is not None:
            self._bytes -= before[2]
        if self._bytes + size > self._bytes_max:
            self._clear()
            kept = self._variants.setdefault(variant, {})
        kept[topic.name] = topic, encoded, size
        self._bytes += size

    def _clear(self) -> None:
        self._variants = {}
        self._bytes = 0
