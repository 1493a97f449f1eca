"""Brokers' sessions: who was heard when, how far each has read the metadata log, who is leaving.

Pure soft state of the active controller, lost with it and made anew by `reset` (Kafka's BrokerHeartbeatManager and
BrokerHeartbeatTracker; broker.session.timeout.ms). A session belongs to a broker in one epoch, and a fenced broker that heartbeats
has one too. Knows no record and no election; time comes in as monotonic ms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafkacompat.controller.image import MetadataImage
from kafkacompat.ids import NO_OFFSET

MAX_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SavedSession:
    """One broker's session as it was, for `put_back`."""

    broker_epoch: int | None
    """None without one."""
    progress: _BrokerHeartbeatState | None
    is_gone: bool


@dataclass(slots=True)
class _BrokerHeartbeatState:
    registration_offset: int
    metadata_offset: int = NO_OFFSET
    controlled_shutdown_offset: int = NO_OFFSET


class BrokerHeartbeatManager:
    """Sessions of the registered brokers; bounded by their number."""

    __slots__ = ("_contacts", "_gone", "_progress", "_timeout_ms")

    def __init__(self, session_timeout_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._contacts: dict[int, tuple[int, int]] = {}
        """Broker id -> (epoch, last contact in ms), the one heard longest ago first."""
        self._gone: set[int] = set()
        """Brokers whose processes are known to be gone, until they are heard or their sessions are over."""
        self._progress: dict[int, _BrokerHeartbeatState] = {}

    def reset(self, image: MetadataImage, now_ms: int) -> None:
        """On activation: every unfenced broker counts as just heard, the others as never."""
        self._contacts.clear()
        self._gone.clear()
        self._progress.clear()
        for broker in image.brokers.values():
            self._progress[broker.id] = _BrokerHeartbeatState(registration_offset=broker.epoch)
            if not broker.fenced:
                self._contacts[broker.id] = (broker.epoch, now_ms)

    # What brokers do.

    def register(self, broker_id: int, broker_epoch: int, registration_offset: int) -> None:
        """A registration is accepted; `registration_offset` is where its record goes in the log.

        The session of a former epoch is gone. The new one begins with the first heartbeat.
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
        """A heartbeat: contact, and where the broker stands after it. A fenced broker is not in controlled shutdown."""
        self._gone.discard(broker_id)
        self._contacts.pop(broker_id, None)
        self._contacts[broker_id] = (broker_epoch, now_ms)
        progress = self._progress.get(broker_id)
        if progress is None:
            progress = self._progress[broker_id] = _BrokerHeartbeatState(registration_offset=broker_epoch)
        progress.metadata_offset = metadata_offset
        if fenced:
            progress.controlled_shutdown_offset = NO_OFFSET

    def maybe_update_controlled_shutdown_offset(self, broker_id: int, offset: int) -> None:
        """Only the first offset of a controlled shutdown counts."""
        progress = self._progress[broker_id]
        if progress.controlled_shutdown_offset < 0:
            progress.controlled_shutdown_offset = offset

    def end(self, broker_id: int) -> None:
        """The broker has said that it stops: no session to wait for, nothing to expire."""
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
        """What a command made of the session has not been written: as before, and just heard."""
        self.remove(broker_id)
        if saved.progress is not None:
            self._progress[broker_id] = saved.progress
        if saved.broker_epoch is not None:
            self._contacts[broker_id] = (saved.broker_epoch, now_ms)
        if saved.is_gone:
            self._gone.add(broker_id)

    # Expiry.

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether the broker was heard in that epoch within the timeout, and is not known to be gone."""
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
        """When `expired` next has something to say, if nobody is heard until then; None without sessions."""
        for _, contact_ms in self._contacts.values():
            return contact_ms + self._timeout_ms + 1
        return None

    def expired(self, now_ms: int) -> list[int]:
        """Brokers whose sessions are over, the one heard longest ago first; those fenced already, too.

        Each is told again until it is heard or its session is ended (`end`), which is when its fencing is written. They are to be
        fenced one at a time, as Kafka does: what fencing one changes must be seen before the next is fenced.
        """
        found: list[int] = []
        for broker_id, (_, contact_ms) in self._contacts.items():
            if not self._is_over(contact_ms, now_ms):
                break
            found.append(broker_id)
        return found

    # Known to be gone.

    def take_for_gone(self, broker_id: int) -> bool:
        """The broker's process is known to be gone (its connection closed, then a new one refused). False without a session.

        It is not live any more, and still has until its session would have expired: so long clients are told of it. A
        heartbeat that comes after all says that the guess was wrong, which costs an election.
        """
        if broker_id not in self._contacts:
            return False
        self._gone.add(broker_id)
        return True

    def is_gone(self, broker_id: int) -> bool:
        return broker_id in self._gone

    def seen(self, image: MetadataImage, but: int | None = None) -> MetadataImage:
        """The image with every broker fenced that is known to be gone, except `but`: by it leaders, in-sync sets and new
        replicas are decided."""
        gone = [each for each in sorted(self._gone) if each != but and each in image.brokers]
        if not gone:
            return image
        brokers = dict(image.brokers)
        for broker_id in gone:
            brokers[broker_id] = replace(brokers[broker_id], fenced=True)
        return replace(image, brokers=brokers)

    # How far they are.

    def registration_offset(self, broker_id: int) -> int:
        """What a broker must have read to be unfenced; -1 for an unknown broker."""
        progress = self._progress.get(broker_id)
        return NO_OFFSET if progress is None else progress.registration_offset

    def controlled_shutdown_offset(self, broker_id: int) -> int:
        """What the others must have read before the broker may stop; -1 when it is not in controlled shutdown."""
        progress = self._progress.get(broker_id)
        return NO_OFFSET if progress is None else progress.controlled_shutdown_offset

    def metadata_offset(self, broker_id: int) -> int:
        """What the broker had read at its last heartbeat; -1 when it has not been heard."""
        progress = self._progress.get(broker_id)
        return NO_OFFSET if progress is None else progress.metadata_offset

    def lowest_active_offset(self, image: MetadataImage) -> int:
        """The least metadata offset among brokers that are unfenced and not shutting down; 2**63-1 when there are none."""
        return min(
            (
                self.metadata_offset(broker.id)
                for broker in image.brokers.values()
                if not broker.fenced and self.controlled_shutdown_offset(broker.id) < 0
            ),
            default=MAX_OFFSET,
        )
