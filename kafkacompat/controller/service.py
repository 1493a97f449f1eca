"""The controller at work on this node: commands in, replies out once their records are committed, images published in order.

Duty: join core and raft driver. Decides nothing: checks are in the command modules, durability in the driver. A reply and its
image leave together, image first, so that whoever reads a reply finds the image already changed. A command that writes nothing
still waits for what it may have read uncommitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.controller.core import MAX_PRODUCER_ID, PRODUCER_ID_BLOCK_SIZE, ControllerCore
from kafkacompat.controller.features import (
    SUPPORTED_FEATURES,
    controller_registration_supported,
    metadata_version,
)
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MetadataRecord, frame_all
from kafkacompat.deferred import Deferred
from kafkacompat.machine.result import Result
from kafkacompat.ports import Random
from kafkacompat.raft.driver import LoadedBatch, RaftDriver
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.context import RequestContext
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest

T = TypeVar("T")
ImageSubscriber = Callable[[MetadataImage, MetadataImage], None]
"""Called with (old, new) for each published image, in the loop's thread."""

TOPIC_DELETION_DISABLED_SINCE = 3
"""DeleteTopics version from which the refusal has an error of its own."""
ELECTION_ERROR_SINCE = 1
"""ElectLeaders version that has an error of the whole request."""
FEATURE_RESULTS_UNTIL = 2
"""UpdateFeatures version whose answers no longer name every feature."""
QUORUM_IDENTITIES_SINCE = 2
"""DescribeQuorum version that has fields for directory ids and addresses."""


class LocalController:
    """The active controller of a quorum of one. `start` once, then commands."""

    def __init__(
        self, core: ControllerCore, driver: RaftDriver, random: Random, *, max_bytes_between_snapshots: int
    ) -> None:
        """`max_bytes_between_snapshots`: metadata.log.max.record.bytes.between.snapshots."""
        self._core = core
        self._driver = driver
        self._random = random
        self._max_bytes_between_snapshots = max_bytes_between_snapshots
        self._subscribers: list[ImageSubscriber] = []
        self.image = MetadataImage()
        """The newest committed image."""

    def subscribe(self, subscriber: ImageSubscriber) -> None:
        self._subscribers.append(subscriber)

    # Start.

    def start(
        self,
        bootstrap_values: Sequence[bytes],
        incarnation_id: Uuid,
        controller_listeners: Sequence[tuple[str, str, int, int]],
    ) -> Deferred[MetadataImage]:
        """Load the log, win the election, write what activation needs. Resolves with the first committed image.

        `controller_listeners` are (name, host, port, security protocol). Raises ReplayError, MetadataLogProblem, NotAVoter.
        """
        core, driver = self._core, self._driver
        last = (-1, -1)

        def apply(batch: LoadedBatch) -> None:
            nonlocal last
            if batch.kraft_version is not None:
                core.load_kraft_version(batch.kraft_version)
            if batch.values:
                core.load_values(batch.values)
            last = (batch.last_offset, batch.epoch)

        driver.load(apply)
        self._publish(core.finish_loading(*last))
        driver.lead(lambda: None)
        activation = core.activation_records(core.decode(bootstrap_values))
        if activation:
            self._append(activation)
        if controller_registration_supported(metadata_version(core.image.features)):
            self._append([self._controller_record(incarnation_id, controller_listeners)])
        self._fence_others()
        ready: Deferred[MetadataImage] = Deferred()
        driver.when_committed(lambda: ready.resolve(self.image))
        return ready

    def _fence_others(self) -> None:
        """Brokers left over from a larger cluster cannot heartbeat to this controller: their sessions are over."""
        from kafkacompat.controller.brokers import fence_broker

        settings = self._core.settings
        for broker in list(self._core.image.brokers.values()):
            if broker.id != settings.node_id and not broker.fenced:
                result = fence_broker(self._core.image, settings, broker.id, broker.epoch)
                self._append(result.records)

    def _controller_record(
        self, incarnation_id: Uuid, listeners: Sequence[tuple[str, str, int, int]]
    ) -> MetadataRecord:
        from kafkacompat.wire.messages import register_controller_record as module

        record = module.RegisterControllerRecord(
            controller_id=self._core.settings.node_id,
            incarnation_id=incarnation_id,
            end_points=[
                module.ControllerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in listeners
            ],
            features=[
                module.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        )
        return MetadataRecord(record, 0)

    # Commands.

    def _append(self, records: Sequence[MetadataRecord]) -> None:
        """One atomic batch; its image is published when it is committed."""
        driver, core = self._driver, self._core
        before = core.mark()
        # Replayed first: a record that does not fit must not reach the log.
        image = core.accept(records, driver.next_offset + len(records) - 1, driver.epoch)
        try:
            driver.propose(frame_all(records), lambda: self._publish(image))
        except BaseException:
            core.revert(before)
            raise

    def _submit(self, result: Result[MetadataRecord, T]) -> Deferred[T]:
        deferred: Deferred[T] = Deferred()
        if result.records:
            self._append(result.records)
        self._driver.when_committed(lambda: deferred.resolve(result.response))
        return deferred

    def _publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        for subscriber in self._subscribers:
            subscriber(old, image)
        if (
            self._driver.bytes_since_snapshot >= self._max_bytes_between_snapshots
            and self._driver.is_all_committed
        ):
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Of the newest image, if nothing is on its way and no metadata transaction is open."""
        from kafkacompat.controller.snapshot_records import image_records

        image = self.image
        if image.offset < 0 or self._core.in_transaction or not self._driver.is_all_committed:
            return
        self._driver.write_snapshot(
            frame_all(list(image_records(image))), self._driver.next_offset, self._driver.epoch
        )

    def create_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topics import create_topics

        return self._submit(create_topics(self._core.image, self._core.settings, self._random, request))

    def delete_topics(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topic_deletion import delete_topics, deletion_disabled

        if not self._core.settings.static.bool("delete.topic.enable"):
            old = context.api_version < TOPIC_DELETION_DISABLED_SINCE
            code = ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED
            return Deferred.of(deletion_disabled(request, code))
        return self._submit(delete_topics(self._core.image, request))

    def create_partitions(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.topics import create_partitions

        return self._submit(create_partitions(self._core.image, self._random, request))

    def incremental_alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configs import incremental_alter_configs

        return self._submit(incremental_alter_configs(self._core.image, self._core.settings, request))

    def alter_configs(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.configs import alter_configs

        return self._submit(alter_configs(self._core.image, self._core.settings, request))

    def elect_leaders(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.elections import elect_leaders

        image, settings = self._core.image, self._core.settings
        newer = context.api_version >= ELECTION_ERROR_SINCE
        return self._submit(elect_leaders(image, settings, request, with_request_error=newer))

    def alter_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.reassignments import alter_partition_reassignments

        return self._submit(alter_partition_reassignments(self._core.image, self._core.settings, request))

    def list_partition_reassignments(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.reassignments import list_partition_reassignments

        return self._submit(Result((), list_partition_reassignments(self._core.image, request)))

    def update_features(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.controller.feature_updates import update_features, wanted_kraft_version

        core, driver = self._core, self._driver
        result = update_features(
            core.image,
            core.settings,
            [voter.id for voter in driver.voters],
            request,
            with_results=context.api_version < FEATURE_RESULTS_UNTIL,
        )
        if result.response.error_code == ErrorCode.NONE:
            kraft_version = wanted_kraft_version(core.image, request)
            if kraft_version is not None:
                driver.upgrade_kraft_version(kraft_version)
                core.load_kraft_version(kraft_version)
                image = core.finish_loading(driver.next_offset - 1, driver.epoch)
                driver.when_committed(lambda: self._publish(image))
        return self._submit(result)

    def describe_quorum(self, request: Any, context: RequestContext) -> Deferred[Any]:
        from kafkacompat.raft.describe import describe_quorum

        newer = context.api_version >= QUORUM_IDENTITIES_SINCE
        return Deferred.of(describe_quorum(request, self._driver.report(), with_identities=newer))

    def allocate_producer_ids(self) -> Deferred[tuple[int, int]]:
        from kafkacompat.wire.messages.producer_ids_record import ProducerIdsRecord

        image, node_id = self._core.image, self._core.settings.node_id
        first = image.next_producer_id
        if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
            raise OverflowError("the cluster has given out every producer id")
        broker = image.brokers.get(node_id)
        record = ProducerIdsRecord(
            broker_id=node_id,
            broker_epoch=-1 if broker is None else broker.epoch,
            next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
        )
        return self._submit(Result((MetadataRecord(record, 0),), (first, PRODUCER_ID_BLOCK_SIZE)))

    # The local broker's life.

    def register_broker(self, request: BrokerRegistrationRequest) -> Deferred[int]:
        """The broker epoch. Raises BrokerRefused. A local broker that registers anew has died: no session to wait for."""
        from kafkacompat.controller.brokers import register_broker

        offset = self._driver.next_offset
        return self._submit(
            register_broker(self._core.image, self._core.settings, request, offset, session_is_live=False)
        )

    def unfence_broker(self, broker_id: int, broker_epoch: int) -> Deferred[None]:
        """Raises BrokerRefused."""
        from kafkacompat.controller.brokers import unfence_broker

        return self._submit(unfence_broker(self._core.image, self._core.settings, broker_id, broker_epoch))

    def shut_down_broker(self, broker_id: int, broker_epoch: int) -> Deferred[None]:
        """Controlled shutdown: leadership leaves, then the broker is fenced. Raises BrokerRefused."""
        from kafkacompat.controller.brokers import begin_controlled_shutdown, fence_broker

        self._submit(
            begin_controlled_shutdown(self._core.image, self._core.settings, broker_id, broker_epoch)
        )
        return self._submit(fence_broker(self._core.image, self._core.settings, broker_id, broker_epoch))

    def close(self) -> None:
        """Everything accepted is durable and published when this returns. Blocks on the disk."""
        self._driver.flush_now()
