"""Carries out broker_life: sends its requests when they are due, and resolves the Deferreds that wait for a state.

This module has the timers, the requests over the controller channel and the log lines; broker_life decides. `server`
calls `start` when this node follows the metadata, `ready_to_unfence` when the first image has been applied, and
`shut_down` before the logs close. It then writes `broker_epoch` into every `.kafka_cleanshutdown`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafkacompat.api.request_context import NotController
from kafkacompat.controller.features import directories_supported, metadata_version
from kafkacompat.controller.image import BrokerRegistration, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid, uuid_to_text
from kafkacompat.net.channels import ChannelError
from kafkacompat.node.broker_life import BrokerLife, LifeSettings
from kafkacompat.node.controller_channel import ControllerChannel
from kafkacompat.node.lifecycle import BrokerIdentity, BrokerState
from kafkacompat.ports import Clock, TimerHandle, Timers
from kafkacompat.wire.errors import ErrorCode

logger = logging.getLogger(__name__)


class RegistrationFailed(Exception):
    """The controller did not register the broker within initial.broker.registration.timeout.ms."""


class DirectoryFailureUntold(Exception):
    """The controller could not be told of a failed log directory within log.dir.failure.timeout.ms."""


class BrokerHeartbeats:
    """The registration and the sessions of one process. `fail` is called when the broker must stop."""

    def __init__(
        self,
        identity: BrokerIdentity,
        settings: LifeSettings,
        channel: ControllerChannel,
        clock: Clock,
        timers: Timers,
        metadata_offset: Callable[[], int],
        fail: Callable[[Exception], None],
    ) -> None:
        """`metadata_offset` returns the last offset of the metadata log that this broker has applied."""
        self._identity = identity
        self._settings = settings
        self._life = BrokerLife(identity, settings)
        self._channel = channel
        self._clock = clock
        self._timers = timers
        self._metadata_offset = metadata_offset
        self._fail = fail
        self._timer: TimerHandle | None = None
        self._said = ErrorCode.NONE
        self.registered: Deferred[int] = Deferred()
        """The broker epoch. Fails with RegistrationFailed."""
        self.caught_up: Deferred[None] = Deferred()
        """Resolved when this broker has applied everything up to its own registration."""
        self.unfenced: Deferred[None] = Deferred()
        """Resolved when this broker may lead partitions. Never resolved if the broker is shut down before."""
        self.stopped: Deferred[None] = Deferred()
        """Resolved when leadership has moved away and the broker is fenced, or when no controller was there to do so."""

    @property
    def state(self) -> BrokerState:
        return self._life.state

    @property
    def broker_epoch(self) -> int:
        """-1 until registered."""
        return self._life.broker_epoch

    @property
    def session_is_over(self) -> bool:
        """Whether no controller has answered for broker.session.timeout.ms."""
        return self._life.session_is_over(self._clock.monotonic_ms())

    def start(self) -> Deferred[int]:
        """Return `registered`."""
        now_ms = self._clock.monotonic_ms()
        self._life.start(now_ms)
        self._timers.call_after(self._settings.registration_timeout_ms, self._check_registered)
        self._step()
        return self.registered

    def ready_to_unfence(self) -> Deferred[None]:
        """Return `unfenced`."""
        self._life.ready_to_unfence(self._clock.monotonic_ms())
        self._step()
        return self.unfenced

    def shut_down(self) -> Deferred[None]:
        """Return `stopped`. It is resolved at once for a broker that does not run."""
        self._life.begin_shutdown(self._clock.monotonic_ms())
        self._step()
        return self.stopped

    def give_up(self) -> None:
        """Resolve `stopped` now if a shutdown waits for the controller."""
        self._life.give_up()
        self._step()

    def directory_failed(self, directory_id: Uuid) -> None:
        now_ms = self._clock.monotonic_ms()
        self._life.directory_failed(directory_id, now_ms)
        self._timers.call_after(self._settings.directory_failure_timeout_ms, self._check_directories)
        self._step()

    def cordon(self, directory_ids: tuple[Uuid, ...]) -> None:
        """These directories get no new replicas (cordoned.log.dirs)."""
        self._life.cordon(directory_ids, self._clock.monotonic_ms())
        self._step()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Register again, or send a heartbeat, if the image requires it.

        The registration is repeated in two cases: it has no directories although the cluster's metadata.version now
        supports them, or a delayed request of this broker's previous process has replaced it.

        While another broker shuts down, the controller waits until all brokers have applied the change. So the next
        heartbeat is sent at once.
        """
        if old.brokers is new.brokers and old.features is new.features:
            return
        if any(
            broker.in_controlled_shutdown and broker_id != self._identity.node_id
            for broker_id, broker in new.brokers.items()
            if broker is not old.brokers.get(broker_id)
        ):
            self._life.tell_offset(self._clock.monotonic_ms())
            self._step()
        own = new.brokers.get(self._identity.node_id)
        if own is not None and self._life.is_registered and self._is_outdated(own, new):
            self._life.register_again(self._clock.monotonic_ms())
            self._step()

    def _is_outdated(self, own: BrokerRegistration, image: MetadataImage) -> bool:
        if own.epoch > self.broker_epoch:
            return own.incarnation_id != self._identity.incarnation_id
        return (
            own.epoch == self.broker_epoch
            and not own.directories
            and directories_supported(metadata_version(image.features))
        )

    def _step(self) -> None:
        """Set the timer for the next request, resolve what is due, and send the request that is due now."""
        life = self._life
        now_ms = self._clock.monotonic_ms()
        request = life.next_request(now_ms, self._metadata_offset())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if life.due_ms is not None:
            self._timer = self._timers.call_after(max(0, life.due_ms - now_ms), self._timer_fired)
        self._tell()
        if request is not None:
            # Half a session: after a later answer the broker would already be fenced.
            answer = self._channel.request(request, self._settings.session_timeout_ms // 2)
            answer.on_done(lambda done: self._answered(done, type(request).__name__))

    def _timer_fired(self) -> None:
        self._timer = None
        self._step()

    def _answered(self, done: Deferred[Any], name: str) -> None:
        life, now_ms = self._life, self._clock.monotonic_ms()
        try:
            response = done.result()
        except Exception as error:
            # Whatever the error is: a broker that stops asking stays fenced for good.
            logger.warning(
                "%s got no answer: %s",
                name,
                error,
                # OSError: the disk of this node's own controller has no room for the record.
                exc_info=None if isinstance(error, (ChannelError, NotController, OSError)) else error,
            )
            life.failed(now_ms)
        else:
            life.answered(response, now_ms)
            if life.last_error is not self._said:
                self._said = life.last_error
                if self._said:
                    logger.error("the controller answers %s with %s", name, self._said.name)
        self._step()

    def _tell(self) -> None:
        life = self._life
        if life.broker_epoch >= 0 and not self.registered.done:
            logger.info("registered with broker epoch %d", life.broker_epoch)
            self.registered.resolve(life.broker_epoch)
        later = (BrokerState.RECOVERY, BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        if life.state in later and not self.caught_up.done:
            self.caught_up.resolve(None)
        if life.state is BrokerState.RUNNING and not self.unfenced.done:
            self.unfenced.resolve(None)
        if life.state is BrokerState.SHUTTING_DOWN and not self.stopped.done:
            self.stopped.resolve(None)

    def _check_registered(self) -> None:
        if self._life.registration_overdue(self._clock.monotonic_ms()) and not self.registered.done:
            error = self._life.last_error
            reason = f"it answers {error.name}" if error else "it does not answer"
            self._life.begin_shutdown(self._clock.monotonic_ms())
            self.registered.fail(
                RegistrationFailed(
                    f"the active controller did not register this broker within "
                    f"{self._settings.registration_timeout_ms} ms (initial.broker.registration.timeout.ms): {reason}"
                )
            )
            self._step()

    def _check_directories(self) -> None:
        directory_id = self._life.directory_overdue(self._clock.monotonic_ms())
        if directory_id is not None and self.state is not BrokerState.SHUTTING_DOWN:
            self._fail(
                DirectoryFailureUntold(
                    f"the controller could not be told within {self._settings.directory_failure_timeout_ms} ms "
                    f"(log.dir.failure.timeout.ms) that directory {uuid_to_text(directory_id)} failed"
                )
            )
