"""Brokers' sessions: each broker's last heartbeat, its position in the metadata log, and its controlled shutdown.

Pure soft state of the active controller, lost with it and rebuilt by `reset` (Kafka's BrokerHeartbeatManager and
BrokerHeartbeatTracker; broker.session.timeout.ms). A session belongs to a broker in one epoch. A fenced broker that
sends heartbeats has a session too. Records and elections are unknown here. Times are monotonic, in ms.
"""

from __future__ import annotations

from dataclasses import replace

from kafkacompat.controller.image import MetadataImage
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_OFFSET

MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A copy of one broker's session, for `put_back`."""

    broker_epoch: int | None
    """None without a session."""
    progress: _BrokerHeartbeatState | None
    is_gone: bool


@dataclass(slots=True)
class _BrokerHeartbeatState:
    registration_offset: int
    metadata_offset: int = NO_OFFSET
    controlled_shutdown_offset: int = NO_OFFSET


class BrokerHeartbeatManager:
    """Sessions of the registered brokers. Bounded by their number."""

    __slots__ = ("_contacts", "_gone", "_progress", "_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._contacts: dict[int, tuple[int, int]] = {}
        """Broker id -> (epoch, last contact in ms), in the order of the last contact."""
        self._gone: set[int] = set()
        """Brokers whose processes are known to be dead, until they send a heartbeat or their sessions end."""
        self._progress: dict[int, _BrokerHeartbeatState] = {}

    def reset(self, image: MetadataImage, now_ms: int) -> None:
        """On activation: every unfenced broker counts as just heard, the others as never heard."""
        self._contacts.clear()
        self._gone.clear()
        self._progress.clear()
        for broker in image.brokers.values():
            self._progress[broker.id] = _BrokerHeartbeatState(registration_offset=broker.epoch)
            if not broker.fenced:
                self._contacts[broker.id] = (broker.epoch, now_ms)

    # Events from brokers.

    def register(self, broker_id: int, broker_epoch: int, registration_offset: int) -> None:
        """A registration is accepted. `registration_offset` is the offset of its record in the log.

        The session of an earlier epoch ends. The new one begins with the first heartbeat.
        """
        contact = self._contacts.get(broker_id)
        if contact is not None and contact[0] != broker_epoch:
            self.end(broker_id)
        self._gone.discard(broker_id)
        progress = self._progress.get(broker_id)
        if progress is None:
            self._progress[broker_id] = _BrokerHeartbeatState(registration_offset)
        else:
            progress.registration_offset = registration_offset
            progress.metadata_offset = NO_OFFSET

    def touch(
        self, broker_id: int, broker_epoch: int, metadata_offset: int, fenced: bool, now_ms: int
    ) -> None:
        """Take a heartbeat: contact time, and the broker's state after it. A fenced broker is not in controlled
        shutdown."""
        self._gone.discard(broker_id)
        self._contacts.pop(broker_id, None)
        self._contacts[broker_id] = (broker_epoch, now_ms)
        progress = self._progress.get(broker_id)
        if progress is None:
            progress = self._progress[broker_id] = _BrokerHeartbeatState(registration_offset=broker_epoch)
        progress.metadata_offset = metadata_offset
        if fenced:
            progress.controlled_shutdown_offset = NO_OFFSET

    def since_contact_ms(self, broker_id: int, now_ms: int) -> int:
        """The time since the broker's last heartbeat. The length of a session if it is longer, or there was none."""
        contact = self._contacts.get(broker_id)
        return self._timeout_ms if contact is None else min(now_ms - contact[1], self._timeout_ms)

    def maybe_update_controlled_shutdown_offset(self, broker_id: int, offset: int) -> None:
        """Only the first offset of a controlled shutdown counts."""
        progress = self._progress[broker_id]
        if progress.controlled_shutdown_offset < 0:
            progress.controlled_shutdown_offset = offset

    def end(self, broker_id: int) -> None:
        """The broker has announced its stop: its session ends, and nothing can expire."""
        self._contacts.pop(broker_id, None)
        self._gone.discard(broker_id)
        progress = self._progress.get(broker_id)
        if progress is not None:
            progress.controlled_shutdown_offset = NO_OFFSET

    def remove(self, broker_id: int) -> None:
        """The broker is unregistered."""
        self.end(broker_id)
        self._progress.pop(broker_id, None)

    def save(self, broker_id: int) -> SavedSession:
        contact, progress = self._contacts.get(broker_id), self._progress.get(broker_id)
        return SavedSession(
            None if contact is None else contact[0],
            None if progress is None else replace(progress),
            broker_id in self._gone,
        )

    def put_back(self, broker_id: int, saved: SavedSession, now_ms: int) -> None:
        """A command's records were not written: restore the session, with a contact now."""
        self.remove(broker_id)
        if saved.progress is not None:
            self._progress[broker_id] = saved.progress
        if saved.broker_epoch is not None:
            self._contacts[broker_id] = (saved.broker_epoch, now_ms)
        if saved.is_gone:
            self._gone.add(broker_id)

    # Expiry.

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether the broker was heard in that epoch within the timeout, and is not known to be dead."""
        contact = self._contacts.get(broker_id)
        return (
            contact is not None
            and contact[0] == broker_epoch
            and broker_id not in self._gone
            and not self._is_over(contact[1], now_ms)
        )

    def _is_over(self, contact_ms: int, now_ms: int) -> bool:
        return contact_ms + self._timeout_ms < now_ms

    def next_expiry_ms(self) -> int | None:
        """When the next session expires if no broker is heard until then. None without sessions."""
        for _, contact_ms in self._contacts.values():
            return contact_ms + self._timeout_ms + 1
        return None

    def expired(self, now_ms: int) -> list[int]:
        """Brokers whose sessions have expired, in the order of their last contact, including fenced ones.

        Each is returned again until it is heard or its session is ended (`end`), when its fencing is written. Fence
        them one at a time, as in Kafka: the changes of one fencing must be visible to the next.
        """
        found: list[int] = []
        for broker_id, (_, contact_ms) in self._contacts.items():
            if not self._is_over(contact_ms, now_ms):
                break
            found.append(broker_id)
        return found

    # Known to be gone.

    def take_for_gone(self, broker_id: int) -> bool:
        """The broker's process is known to be dead (its connection closed, then a new one refused). Returns False
        without a session.

        The broker no longer counts as live, but stays unfenced until its session would have expired, so that clients
        still see it. A later heartbeat shows that the guess was wrong, which costs an election.
        """
        if broker_id not in self._contacts:
            return False
        self._gone.add(broker_id)
        return True

    def is_gone(self, broker_id: int) -> bool:
        return broker_id in self._gone

    def seen(self, image: MetadataImage, but: int | None = None) -> MetadataImage:
        """The image with every broker fenced that is known to be dead, except `but`. It is used to decide leaders,
        ISRs and new replicas."""
        gone = [each for each in sorted(self._gone) if each != but and each in image.brokers]
        if not gone:
            return image
        brokers = dict(image.brokers)
        for broker_id in gone:
            brokers[broker_id] = replace(brokers[broker_id], fenced=True)
        return replace(image, brokers=brokers)

    # How far they are.

    def registration_offset(self, broker_id: int) -> int:
        """The offset that a broker must have read to be unfenced. -1 for an unknown broker."""
        progress = self._progress.get(broker_id)
        return NO_OFFSET if progress is None else progress.registration_offset

    def controlled_shutdown_offset(self, broker_id: int) -> int:
        """The offset that the other brokers must have read before this one may stop. -1 if it is not in controlled
        shutdown."""
        progress = self._progress.get(broker_id)
        return NO_OFFSET if progress is None else progress.controlled_shutdown_offset

    def metadata_offset(self, broker_id: int) -> int:
        """The offset that the broker had read at its last heartbeat. -1 before the first one."""
        progress = self._progress.get(broker_id)
        return NO_OFFSET if progress is None else progress.metadata_offset

    def lowest_active_offset(self, image: MetadataImage) -> int:
        """The lowest metadata offset of brokers that are unfenced and not shutting down. 2**63-1 if there are none."""
        return min(
            (
                self.metadata_offset(broker.id)
                for broker in image.brokers.values()
                if not broker.fenced and self.controlled_shutdown_offset(broker.id) < 0
            ),
            default=MAX_OFFSET,
        )
