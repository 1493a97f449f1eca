"""A cache of the encoded topics of Metadata responses. A topic is reused as long as the image is unchanged.

An entry depends on the topic's image, the brokers' image, the listener, the version, and whether operations were
requested. Images are compared by identity, because they are never changed in place. Only the loop's thread uses the
cache. Its size in bytes is bounded. A full cache is emptied and fills again with the topics that are requested now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, TopicImage
    from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic

ENCODED_TOPICS_BYTES_MAX = 8 * 1024 * 1024
"""Enough for about 240,000 partitions with three replicas each, in one version."""
ENTRY_BYTES = 200
"""Memory of one entry besides its encoded bytes."""

Variant = tuple[str, int, bool]
"""Listener name, version, and whether the authorized operations are included."""


class EncodedTopics:
    """A hit costs two look-ups. An entry is never stale: `get` compares the images from which it was made."""

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
        """Return the encoded topic. None if it is not cached, or was made from other images."""
        if brokers is not self._brokers:
            self._clear()
            self._brokers = brokers
        kept = self._variants.get(variant)
        if kept is None:
            return None
        entry = kept.get(topic.name)
        return None if entry is None or entry[0] is not topic else entry[1]

    def put(self, topic: TopicImage, variant: Variant, encoded: Any) -> None:
        """Cache the encoding of this topic. It must be made from the brokers of the last `get`. `len(encoded)` is its size."""
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
