"""Brokers that register anew before clients were told that they are gone: named on, though they are fenced until they serve.

A broker that is killed stays unfenced until its session is over. When it starts again before, its registration fences it for the
moment until it is unfenced, and a client whose coordinator vanishes from the metadata for a moment may never ask for it again
(librdkafka does not). No client is sent to it meanwhile, for it leads nothing. Pure. Bounded by the registered brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage


class ReturningBrokers:
    """`on_image` with every image, in order."""

    __slots__ = ("_until_ms",)

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def on_image(self, old: MetadataImage, new: MetadataImage, now_ms: int, session_timeout_ms: int) -> None:
        """`session_timeout_ms`: how long a broker may take to be unfenced after its registration."""
        if old.brokers is new.brokers:
            return
        until_ms, self._until_ms = self._until_ms, {}
        for broker in new.brokers.values():
            before = old.brokers.get(broker.id)
            if not broker.fenced or before is None:
                continue
            if before.epoch != broker.epoch and not before.fenced:
                self._until_ms[broker.id] = now_ms + session_timeout_ms
            elif broker.id in until_ms:
                self._until_ms[broker.id] = until_ms[broker.id]

    def includes(self, broker: BrokerRegistration, now_ms: int) -> bool:
        return now_ms < self._until_ms.get(broker.id, now_ms)
