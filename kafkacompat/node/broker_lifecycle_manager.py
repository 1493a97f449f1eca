"""Carries out a BrokerLifecycle: sends its requests when they are due, and resolves the Deferreds that wait for a state.

This module has the times, the requests over the controller channel and the log lines; broker_lifecycle decides. `server`
calls `start` when this node follows the metadata, `ready_to_unfence` when the first image has been applied, and
`shut_down` before the logs close. It then writes `broker_epoch` into every `.kafka_cleanshutdown`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkacompat.controller.features import (
    cordoned_directories_supported,
    directories_supported,
    metadata_version,
)
from kafkacompat.controller.image import BrokerRegistration, MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import ZERO_UUID, Uuid, uuid_to_text
from kafkacompat.node.broker_lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    LifecycleSettings,
)
from kafkacompat.node.node_to_controller_channel_manager import UNANSWERED, NodeToControllerChannelManager
from kafkacompat.ports import Clock, passes
from kafkacompat.tasks import Tasks, WakeUp
from kafkacompat.wire.errors import ErrorCode

logger = logging.getLogger(__name__)


class RegistrationFailed(Exception):
    """The controller did not register the broker within initial.broker.registration.timeout.ms."""


class DirectoryFailureUntold(Exception):
    """The controller could not be told of a failed log directory within log.dir.failure.timeout.ms."""


class BrokerLifecycleManager:
    """The registration and the sessions of one process. `fail` is called when the broker must stop."""

    def __init__(
        self,
        node_id: int,
        settings: LifecycleSettings,
        clock: Clock,
        tasks: Tasks,
        fail: Callable[[Exception], None],
    ) -> None:
        self._node_id = node_id
        self._incarnation_id = ZERO_UUID
        self._settings = settings
        self._life = BrokerLifecycle(settings)
        self._clock = clock
        self._tasks = tasks
        self._fail = fail
        self._wake_up = WakeUp(tasks)
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

    def start(
        self,
        identity: BrokerIdentity,
        channel: NodeToControllerChannelManager,
        image: Callable[[], MetadataImage],
    ) -> Deferred[int]:
        """Register. `image` returns the newest metadata that this broker has applied. Return `registered`."""
        now_ms = self._clock.monotonic_ms()
        self._incarnation_id = identity.incarnation_id
        self._life.start(identity, now_ms)
        self._tasks.start("heartbeats", self._send_requests(channel, image))
        self._tasks.start("waiting for the registration", self._check_registered())
        return self.registered

    def ready_to_unfence(self) -> Deferred[None]:
        """Return `unfenced`."""
        self._life.ready_to_unfence(self._clock.monotonic_ms())
        self._changed()
        return self.unfenced

    def shut_down(self) -> Deferred[None]:
        """Return `stopped`. It is resolved at once for a broker that does not run."""
        self._life.begin_shutdown(self._clock.monotonic_ms())
        self._changed()
        return self.stopped

    def give_up(self) -> None:
        """Resolve `stopped` now if a shutdown waits for the controller."""
        self._life.give_up()
        self._changed()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Tell the controller. A broker that does not run yet registers without its failed directories."""
        if self.state is BrokerState.NOT_RUNNING:
            return
        now_ms = self._clock.monotonic_ms()
        self._life.directory_failed(directory_id, now_ms)
        self._tasks.start("telling of a failed directory", self._check_directories())
        self._changed()

    def cordon(self, directory_ids: tuple[Uuid, ...]) -> None:
        """These directories get no new replicas (cordoned.log.dirs)."""
        self._life.cordon(directory_ids, self._clock.monotonic_ms())
        self._changed()

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
            broker.in_controlled_shutdown and broker_id != self._node_id
            for broker_id, broker in new.brokers.items()
            if broker is not old.brokers.get(broker_id)
        ):
            self._life.tell_offset(self._clock.monotonic_ms())
            self._changed()
        own = new.brokers.get(self._node_id)
        if own is not None and self._life.is_registered and self._is_outdated(own, new):
            self._life.register_again(self._clock.monotonic_ms())
            self._changed()

    def _is_outdated(self, own: BrokerRegistration, image: MetadataImage) -> bool:
        if own.epoch > self.broker_epoch:
            return own.incarnation_id != self._incarnation_id
        return (
            own.epoch == self.broker_epoch
            and not own.directories
            and directories_supported(metadata_version(image.features))
        )

    async def _send_requests(
        self, channel: NodeToControllerChannelManager, image: Callable[[], MetadataImage]
    ) -> None:
        """One request after another, each when it is due. Whatever fails: a broker that stops asking stays fenced for good."""
        life = self._life
        while life.state is not BrokerState.SHUTTING_DOWN:
            request = None
            try:
                known = image()
                tells_cordoned = cordoned_directories_supported(metadata_version(known.features))
                request = life.next_request(self._clock.monotonic_ms(), known.offset, tells_cordoned)
            except Exception as error:
                self._broken_off("making a request to the controller", error)
            if request is None:
                self._tell()  # a shutdown may have waited long enough
                due_ms = life.due_ms
                await self._wake_up.wait(None if due_ms is None else due_ms - self._clock.monotonic_ms())
                continue
            name = type(request).__name__
            try:
                # Half a session: after a later answer the broker would already be fenced.
                response = await channel.request(request, self._settings.session_timeout_ms // 2)
            except Exception as error:
                if not isinstance(error, UNANSWERED):
                    report(name, error)
                logger.warning("%s got no answer: %s", name, error)
                life.failed(self._clock.monotonic_ms())
            else:
                try:
                    life.answered(response, self._clock.monotonic_ms())
                except Exception as error:
                    self._broken_off(f"taking the answer to {name}", error)
                if life.last_error is not self._said:
                    self._said = life.last_error
                    if self._said:
                        logger.error("the controller answers %s with %s", name, self._said.name)
            self._tell()

    def _broken_off(self, what: str, error: Exception) -> None:
        if passes(error):
            logger.error("%s failed and is tried again: %r", what, error)
        else:
            report(what, error)
        self._life.broken_off(self._clock.monotonic_ms())

    def _changed(self) -> None:
        """Something else may be due now."""
        self._tell()
        self._wake_up.call()

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

    async def _check_registered(self) -> None:
        await self._tasks.sleep(self._settings.registration_timeout_ms)
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
            self._changed()

    async def _check_directories(self) -> None:
        await self._tasks.sleep(self._settings.directory_failure_timeout_ms)
        directory_id = self._life.directory_overdue(self._clock.monotonic_ms())
        if directory_id is not None and self.state is not BrokerState.SHUTTING_DOWN:
            self._fail(
                DirectoryFailureUntold(
                    f"the controller could not be told within {self._settings.directory_failure_timeout_ms} ms "
                    f"(log.dir.failure.timeout.ms) that directory {uuid_to_text(directory_id)} failed"
                )
            )
