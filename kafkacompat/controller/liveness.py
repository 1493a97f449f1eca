"""Brokers' sessions on the active controller: which brokers send heartbeats, and which are fenced because they do not.

The shell around broker_heartbeat_manager.py: it sets timers and asks commands for records. A broker is fenced when its
session expires.

A dead broker is noticed sooner: the connection of its heartbeats was closed, and a new one to its listener is refused,
at once or within a few attempts. Then no process is there. Other brokers lead from then on, but the broker stays
unfenced until its session expires, because some clients never return to a coordinator that vanished from the metadata.
A close alone proves nothing. Neither does an address that does not answer, or one that this controller has never
reached (reach.py). Setting: broker.session.timeout.ms.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkacompat.controller.cluster_control_manager import (
    handle_broker_fenced,
    handle_broker_in_controlled_shutdown,
)
from kafkacompat.controller.event_queue import TRY_AGAIN_MS
from kafkacompat.controller.reach import Probed, Reach
from kafkacompat.tasks import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
    from kafkacompat.controller.event_queue import OwnDecisions
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.controller.settings import ControllerSettings
    from kafkacompat.ports import Clock, TimerHandle, Timers

logger = logging.getLogger(__name__)

PROBE_AGAIN_MS = (20, 50, 100, 200, 400, 800)
"""Waits between connection attempts to a broker whose connection was closed. A killed process loses its sockets one by
one, and the listener may be the last. The sum is far below a session timeout."""


class Liveness:
    """Call `start` with every leadership, `stop` at its end."""

    def __init__(
        self,
        machine: MetadataMachine,
        settings: ControllerSettings,
        sessions: BrokerHeartbeatManager,
        clock: Clock,
        timers: Timers,
        reach: Reach,
        own_decisions: OwnDecisions,
    ) -> None:
        self.sessions = sessions
        self._machine = machine
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._reach = reach
        self._own_decisions = own_decisions
        self._expiry: TimerHandle | None = None
        self._expiry_ms = 0
        self._not_before_ms = 0
        """When a fencing that could not be written is tried again."""
        self._heard_on: dict[int, int] = {}
        """Connection -> broker of its last heartbeat. Bounded by the listener's connections."""
        self._open: set[int] = set()
        """Connections over which requests of brokers came. Bounded by the listener's connections."""
        self._hosts: dict[int, str] = {}
        """The host of each broker's last request since this controller became active. Bounded by the registered broker
        ids."""

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def start(self) -> None:
        """Give every registered broker a new session, and check those whose process may have died with the former
        controller."""
        image = self._machine.core.image
        self.stop()
        self.sessions.reset(image, self.now_ms())
        self._not_before_ms = 0
        self.schedule()
        for broker in image.brokers.values():
            if not broker.fenced:
                self._begin_check(broker.id, ())

    def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._heard_on.clear()
        self._hosts.clear()

    def image(self, but: int | None = None) -> MetadataImage:
        """The image for commands: everything accepted, with dead brokers fenced, except `but`."""
        return self.sessions.seen(self._machine.core.image, but)

    def is_live(self, broker: BrokerRegistration, endpoints: set[tuple[str, int]], host: str) -> bool:
        """Whether a registered broker may still run when another process registers its id with `endpoints`.

        An address belongs to one process. A process that listens at the registered address has replaced the earlier
        one, unless that still sends heartbeats. But an advertised address may be wrong or belong to a load balancer,
        so a request from another host counts as another process.
        """
        if not self.sessions.has_valid_session(broker.id, broker.epoch, self.now_ms()):
            return False
        former = {(each.host, each.port) for each in broker.endpoints.values()}
        is_elsewhere = self._hosts.get(broker.id, host) != host
        return broker.id in self._heard_on.values() or former != endpoints or is_elsewhere

    def asked(self, connection_id: int) -> None:
        """A request of a broker came over this connection. It may have to wait for its turn."""
        self._open.add(connection_id)

    def heard(self, broker_id: int, connection_id: int, host: str) -> None:
        """A heartbeat or registration of this broker, which came over this connection from that host, has had its turn."""
        self._hosts[broker_id] = host
        self.schedule()
        if connection_id in self._open:
            self._heard_on[connection_id] = broker_id
        else:
            # It was closed while the request waited, which nobody will tell again.
            self._begin_check(broker_id, PROBE_AGAIN_MS)

    def connection_closed(self, connection_id: int) -> None:
        self._open.discard(connection_id)
        broker_id = self._heard_on.pop(connection_id, None)
        if broker_id is not None:
            self._begin_check(broker_id, PROBE_AGAIN_MS)

    def schedule(self) -> None:
        """Set the timer for the next expiry."""
        due_ms = self.sessions.next_expiry_ms()
        if due_ms is not None:
            due_ms = max(due_ms, self._not_before_ms)
        if self._expiry is not None:
            if due_ms is not None and due_ms >= self._expiry_ms:
                return  # the timer then checks and is set again
            self._expiry.cancel()
            self._expiry = None
        if due_ms is not None:
            self._expiry_ms = due_ms
            self._expiry = self._timers.call_at(due_ms, self._expire)

    def _expire(self) -> None:
        """Fence expired brokers in its turn, so that earlier heartbeats count."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._own_decisions.tasks.start("fencing brokers", self._own_decisions.take(self._fence_expired))

    def _fence_expired(self) -> Work[None]:
        epoch = self._machine.active_epoch
        for broker_id in self.sessions.expired(self.now_ms()):
            is_written = yield from self._fence(broker_id)
            if self._machine.active_epoch != epoch:
                return
            if not is_written:
                self._not_before_ms = self.now_ms() + TRY_AGAIN_MS
                break
            self.sessions.end(broker_id)
        self.schedule()

    def _begin_check(self, broker_id: int, waits_ms: Sequence[int]) -> None:
        self._own_decisions.tasks.start("probing a silent broker", self._check(broker_id, waits_ms))

    async def _check(self, broker_id: int, waits_ms: Sequence[int]) -> None:
        """Let other brokers lead if the broker's address refuses a connection. Repeated after these waits, until the broker is
        heard again."""
        for wait_ms in (*waits_ms, None):
            broker = self._machine.core.image.brokers.get(broker_id)
            address = None if broker is None else self._reach.reached(broker)
            if broker is None or address is None or not self._is_silent(broker_id, broker.epoch):
                return
            probed = await self._reach.probe(*address)
            if not self._is_silent(broker_id, broker.epoch):
                return
            if probed is Probed.REFUSED:
                self._take_for_gone(broker_id)
                return
            if wait_ms is not None:
                await self._own_decisions.tasks.sleep(wait_ms)

    def _is_silent(self, broker_id: int, epoch: int) -> bool:
        """Whether a broker that counts as live has no connection to this controller."""
        broker = self._machine.core.image.brokers.get(broker_id)
        return (
            self._machine.is_active
            and broker is not None
            and broker.epoch == epoch
            and not broker.fenced
            and not self.sessions.is_gone(broker_id)
            and broker_id not in self._heard_on.values()
        )

    def _take_for_gone(self, broker_id: int) -> None:
        logger.info(
            "broker %d is gone: its connection was closed and a new one refused; it is fenced when its session is over",
            broker_id,
        )
        self.sessions.take_for_gone(broker_id)
        self._own_decisions.tasks.start(f"leaving broker {broker_id}", self._leave(broker_id))

    async def _leave(self, broker_id: int) -> None:
        """Let other brokers lead the partitions of a dead broker. Retried later if that cannot be written."""
        epoch = self._machine.active_epoch
        while not await self._own_decisions.take(lambda: self._left(broker_id)):
            if self._machine.active_epoch != epoch or not await self._own_decisions.may_try_again(epoch):
                return

    def _left(self, broker_id: int) -> Work[bool]:
        """False if it could not be written and must be retried."""
        image = self.image(but=broker_id)
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced or not self.sessions.is_gone(broker_id):
            return True
        left = yield from self._own_decisions.carry_out(
            f"leaving broker {broker_id}",
            handle_broker_in_controlled_shutdown(image, self._settings, broker_id, broker.epoch),
        )
        return left is not None

    def _fence(self, broker_id: int) -> Work[bool]:
        """Fence one broker. Returns False if it could not be written and must be retried."""
        image = self.image(but=broker_id)
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return True
        fenced = yield from self._own_decisions.carry_out(
            f"fencing broker {broker_id}",
            handle_broker_fenced(image, self._settings, broker_id, broker.epoch),
        )
        if fenced is None:
            return False
        logger.info("broker %d is fenced: its session has expired", broker_id)
        return True
