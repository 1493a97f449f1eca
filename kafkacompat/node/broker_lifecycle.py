"""A broker's life in the cluster as a state machine: register, catch up, be unfenced, shut down (KIP-631, KIP-858,
KIP-966).

Pure: events and the time go in, the next request and its time come out. One request is in flight at a time. The waits
are those of Apache Kafka, except for two:
- A registration is retried at least every REGISTRATION_RETRY_MAX_MS. It is mostly refused because of the session of
  the broker's previous process, which is about to expire.
- During a controlled shutdown the waits grow from SHUTDOWN_POLL_MS.

If the controller does not know this broker's epoch (STALE_BROKER_EPOCH), the broker only repeats its request. As in
Kafka, a broker that was unregistered while it ran returns only through a restart. Unlike Kafka's, a broker whose
registration was replaced by another incarnation registers again. The reason: a delayed request of its own dead
predecessor may arrive after its registration. If the other incarnation is alive, the controller refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_EPOCH, Uuid
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from kafkacompat.wire.messages.broker_registration_request import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from kafkacompat.wire.messages.broker_registration_response import BrokerRegistrationResponse

RETRY_MS = 100
"""The wait after a failure. It doubles with each further failure, up to the length of the session."""
REGISTRATION_RETRY_MAX_MS = 1_000
CATCH_UP_POLL_MS = 10
SHUTDOWN_POLL_MS = 50
SHUTDOWN_TIMEOUT_MS = 5 * 60_000
"""A controlled shutdown that takes longer than this is abandoned."""

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Request = BrokerRegistrationRequest | BrokerHeartbeatRequest
Response = BrokerRegistrationResponse | BrokerHeartbeatResponse


class BrokerState(Enum):
    """Kafka's broker states. The value is that of Kafka's BrokerState metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity with which a broker registers. `listeners` are its advertised listeners, with the bound ports."""

    node_id: int
    cluster_id: str
    incarnation_id: Uuid
    """Random, new for every process."""
    listeners: tuple[EndPoint, ...]
    directory_ids: tuple[Uuid, ...]
    rack: str | None
    previous_broker_epoch: int
    """The epoch of the last clean shutdown if all log directories agree on it, otherwise -1."""


def endpoint_records(endpoints: Sequence[EndPoint]) -> list[tuple[str, str, int, int]]:
    """Return (name, host, port, security protocol id) of each endpoint."""
    return [
        (each.listener_name, each.host, each.port, SECURITY_PROTOCOL_IDS[each.security_protocol])
        for each in endpoints
    ]


@dataclass(frozen=True, slots=True)
class LifecycleSettings:
    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 60_000
    """initial.broker.registration.timeout.ms"""
    directory_failure_timeout_ms: int = 30_000
    """log.dir.failure.timeout.ms: the time within which the controller must learn of a failed directory."""

    @classmethod
    def from_config(cls, config: ServerConfig) -> LifecycleSettings:
        return cls(
            heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.get_int("broker.session.timeout.ms"),
            registration_timeout_ms=config.get_int("initial.broker.registration.timeout.ms"),
            directory_failure_timeout_ms=config.get_int("log.dir.failure.timeout.ms"),
        )


class BrokerLifecycle:
    """Call `start` first. Then call `next_request` whenever `due_ms` has come, and `answered` or `failed` for each request."""

    __slots__ = (
        "_directory_deadlines",
        "_failures",
        "_heard_ms",
        "_identity",
        "_immediately",
        "_in_flight",
        "_offline",
        "_registered",
        "_registration_deadline_ms",
        "_settings",
        "_shutdown_began_ms",
        "_shutdown_poll_ms",
        "_wants_unfenced",
        "broker_epoch",
        "cordoned",
        "due_ms",
        "last_error",
        "state",
    )

    def __init__(self, settings: LifecycleSettings) -> None:
        self._settings = settings
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = NO_EPOCH
        """-1 until registered. It stays the same unless another incarnation registers in between."""
        self.due_ms: int | None = None
        """The time of the next `next_request`. None while a request is in flight or nothing is due."""
        self.last_error = ErrorCode.NONE
        """The error code of the newest answer."""
        self.cordoned: tuple[Uuid, ...] = ()
        """Directories that get no new replicas. They are reported once the broker has caught up."""
        self._registered = False
        self._in_flight: Request | None = None
        self._immediately = False
        self._failures = 0
        self._wants_unfenced = False
        self._offline: set[Uuid] = set()
        self._directory_deadlines: dict[Uuid, int] = {}
        self._registration_deadline_ms = 0
        self._shutdown_began_ms = 0
        self._shutdown_poll_ms = SHUTDOWN_POLL_MS
        self._heard_ms = 0

    # Events.

    def start(self, identity: BrokerIdentity, now_ms: int) -> None:
        if self.state is not BrokerState.NOT_RUNNING:
            raise RuntimeError(f"the broker is {self.state.name}")
        self._identity = identity
        self.state = BrokerState.STARTING
        self._heard_ms = now_ms
        self._registration_deadline_ms = now_ms + self._settings.registration_timeout_ms
        self._hurry(now_ms)

    def ready_to_unfence(self, now_ms: int) -> None:
        """The first image has been applied, so this broker can lead partitions."""
        self._wants_unfenced = True
        self._hurry(now_ms)

    def register_again(self, now_ms: int) -> None:
        """The registration is outdated, or another incarnation has replaced it. The controller decides whether the
        epoch changes."""
        self._registered = False
        self._hurry(now_ms)

    def directory_failed(self, directory_id: Uuid, now_ms: int) -> None:
        if directory_id not in self._offline:
            self._offline.add(directory_id)
            self._directory_deadlines[directory_id] = now_ms + self._settings.directory_failure_timeout_ms
            self._hurry(now_ms)

    def cordon(self, directory_ids: tuple[Uuid, ...], now_ms: int) -> None:
        if directory_ids != self.cordoned:
            self.cordoned = directory_ids
            self._hurry(now_ms)

    def begin_shutdown(self, now_ms: int) -> None:
        """Start a controlled shutdown if the broker is running: leadership moves first. Otherwise end at once."""
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._shutdown_began_ms = self._heard_ms = now_ms
            self._hurry(now_ms)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._end()

    def tell_offset(self, now_ms: int) -> None:
        """Make the next heartbeat due now, because the controller waits for the metadata offset in it."""
        if self._registered:
            self._hurry(now_ms)

    def give_up(self) -> None:
        """Stop waiting for the controller during a shutdown."""
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._end()

    def next_request(self, now_ms: int, metadata_offset: int, tells_cordoned: bool = True) -> Request | None:
        """Return the request to send now, or None. `metadata_offset` is the last offset that was applied here.
        `tells_cordoned`: the cluster's metadata.version knows of cordoned directories. A controller of a release without them
        takes no heartbeat that names any."""
        if self.due_ms is None or now_ms < self.due_ms or self._in_flight is not None:
            return None
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and self._waited_long_enough(now_ms):
            self._end()
            return None
        request = (
            self._heartbeat(metadata_offset, tells_cordoned) if self._registered else self._registration()
        )
        self.due_ms, self._in_flight = None, request
        return request

    def failed(self, now_ms: int) -> None:
        """The request in flight got no answer."""
        if self._take_in_flight() is not None:
            self._try_again(now_ms)

    def broken_off(self, now_ms: int) -> None:
        """A request could not be made, or its answer not be taken, for example for want of memory. The next one comes all the
        same."""
        self._in_flight = None
        self._try_again(now_ms)

    def answered(self, response: Response, now_ms: int) -> None:
        request = self._take_in_flight()
        if request is None:
            return
        self.last_error = code_of(response.error_code)
        self._heard_ms = now_ms
        if response.error_code:
            self._try_again(now_ms)
        elif isinstance(request, BrokerRegistrationRequest):
            assert isinstance(response, BrokerRegistrationResponse)
            self._failures = 0
            self.broker_epoch = response.broker_epoch
            self._registered = True
            self._schedule(now_ms, 0)
        else:
            assert isinstance(response, BrokerHeartbeatResponse)
            self._failures = 0
            for directory_id in request.offline_log_dirs:
                self._directory_deadlines.pop(directory_id, None)
            self._schedule(now_ms, self._after_heartbeat(response))

    # Deadlines.

    @property
    def is_registered(self) -> bool:
        return self._registered

    def session_is_over(self, now_ms: int) -> bool:
        """Whether a controller that is there has fenced this broker by now: it has answered nothing for so long."""
        return now_ms - self._heard_ms >= self._settings.session_timeout_ms

    def registration_overdue(self, now_ms: int) -> bool:
        """Whether the first registration has been refused or unanswered for too long."""
        return self.broker_epoch == NO_EPOCH and now_ms >= self._registration_deadline_ms

    def directory_overdue(self, now_ms: int) -> Uuid | None:
        """Return a failed directory of which the controller was not told in time. Its partitions would stay without a leader."""
        return next((each for each, due_ms in self._directory_deadlines.items() if now_ms >= due_ms), None)

    # Requests.

    def _registration(self) -> BrokerRegistrationRequest:
        identity = self._identity
        return BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in endpoint_records(identity.listeners)
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=identity.rack,
            log_dirs=sorted(identity.directory_ids),
            previous_broker_epoch=identity.previous_broker_epoch,
        )

    def _heartbeat(self, metadata_offset: int, tells_cordoned: bool) -> BrokerHeartbeatRequest:
        caught_up = self.state is not BrokerState.STARTING
        return BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=metadata_offset,
            want_fence=not self._wants_unfenced,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=sorted(self._offline),
            cordoned_log_dirs=sorted(self.cordoned) if caught_up and tells_cordoned else None,
        )

    def _after_heartbeat(self, response: BrokerHeartbeatResponse) -> int | None:
        """Change the state. Return the wait before the next heartbeat in ms, or None if there is none."""
        interval_ms = self._settings.heartbeat_interval_ms
        if self.state is BrokerState.STARTING:
            if response.is_caught_up:
                self.state = BrokerState.RECOVERY
            return CATCH_UP_POLL_MS
        if self.state is BrokerState.RECOVERY:
            if not response.is_fenced:
                self.state = BrokerState.RUNNING
            return interval_ms
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self._end()
                return None
            wait_ms = min(self._shutdown_poll_ms, interval_ms)
            self._shutdown_poll_ms *= 2
            return wait_ms
        return interval_ms

    # Times.

    def _hurry(self, now_ms: int) -> None:
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return
        if self._in_flight is None:
            self.due_ms = now_ms
        else:
            self._immediately = True

    def _schedule(self, now_ms: int, wait_ms: int | None) -> None:
        if wait_ms is None or self.state is BrokerState.SHUTTING_DOWN:
            self.due_ms = None
            return
        self.due_ms = now_ms if self._immediately else now_ms + wait_ms
        self._immediately = False

    def _try_again(self, now_ms: int) -> None:
        longest_ms = self._settings.session_timeout_ms if self._registered else REGISTRATION_RETRY_MAX_MS
        wait_ms = min(RETRY_MS << min(self._failures, 16), longest_ms)
        self._failures += 1
        self._immediately = False  # do not repeat a failed request at once
        self._schedule(now_ms, wait_ms)

    def _waited_long_enough(self, now_ms: int) -> bool:
        """Once its session is over the broker is fenced, or there is no controller that could fence it."""
        return self.session_is_over(now_ms) or now_ms - self._shutdown_began_ms >= SHUTDOWN_TIMEOUT_MS

    def _take_in_flight(self) -> Request | None:
        request, self._in_flight = self._in_flight, None
        return None if self.state is BrokerState.SHUTTING_DOWN else request

    def _end(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        self.due_ms = None
