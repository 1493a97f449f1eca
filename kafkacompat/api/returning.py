"""Brokers that register again before clients were told that they are gone. Clients are told of them although they are
fenced.

A killed broker stays unfenced until its session expires. If it restarts before that, its registration fences it for a
short time. A client whose coordinator disappears from the metadata for that time may never ask for the coordinator
again (librdkafka does not). No client is sent to the fenced broker, because it leads no partition. Pure. Bounded by
the number of registered brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage


class ReturningBrokers:
    """Call `on_image` with every image, in order."""

    __slots__ = ("_until_ms",)

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def on_image(self, old: MetadataImage, new: MetadataImage, now_ms: int, session_timeout_ms: int) -> None:
        """`session_timeout_ms` is the time that a broker may take from its registration until it is unfenced."""
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
