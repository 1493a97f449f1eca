"""The metadata log's state machine on one node: committed records in, images out; on the active controller also
proposals.

It keeps the newest committed image and publishes images in order. It replays this node's proposals at once, so that
the next command sees them, and reverts them if leadership is lost before they are committed. An image is published
before its reply is sent, so the reader of a reply finds the image already changed. Follows KRaft's MetadataLoader,
QuorumController's snapshot registry and KIP-868.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkacompat.api.request_context import NotController
from kafkacompat.controller.controller_metrics import BatchMeter
from kafkacompat.controller.controller_result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.features import KRAFT_VERSION
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MAX_RECORDS_PER_BATCH, MetadataRecord, frame_all
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_EPOCH, NO_LEADER, NO_OFFSET
from kafkacompat.raft.contracts import NotLeader
from kafkacompat.raft.packing import PackedValues
from kafkacompat.tasks import TURN_COST, Tasks, Work, at_once, in_turns, pieces

if TYPE_CHECKING:
    from kafkacompat.controller.metadata_delta import Replayer
    from kafkacompat.raft.contracts import LoadedBatch
    from kafkacompat.raft.quorum_snapshots import SnapshotWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")
ImageSubscriber = Callable[[MetadataImage, MetadataImage], None]
"""Called with (old, new) for each published image, in the loop's thread."""


class ProposalQuorum(Protocol):
    """The parts of the metadata quorum's driver used here (raft/quorum_driver.py)."""

    @property
    def next_offset(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def bytes_since_snapshot(self) -> int: ...

    @property
    def ms_since_snapshot(self) -> int: ...

    def propose(
        self, values: PackedValues, committed: Callable[[], None], lost: Callable[[], None]
    ) -> int: ...

    def when_committed(self, call: Callable[[], None], lost: Callable[[], None]) -> None: ...

    def resign_for_room(self, size_bytes: int, error: OSError) -> bool: ...

    def begin_snapshot(self, end_offset: int, epoch: int) -> SnapshotWriter | None: ...


class MetadataMachine:
    """raft.contracts.StateMachine. Call `attach` with the driver before it starts."""

    def __init__(
        self,
        core: ControllerCore,
        tasks: Tasks,
        *,
        max_bytes_between_snapshots: int,
        max_ms_between_snapshots: int,
        monotonic_s: Callable[[], float] = monotonic,
    ) -> None:
        """`max_bytes_between_snapshots`: metadata.log.max.record.bytes.between.snapshots. `max_ms_between_snapshots`:
        metadata.log.max.snapshot.interval.ms, 0 for no limit."""
        self.core = core
        """Includes uncommitted proposals while this node is active."""
        self.image = MetadataImage()
        """The newest committed image."""
        self.active_epoch = NO_EPOCH
        """The epoch in which this node is the active controller. NO_EPOCH if it is not."""
        self.leader_id = NO_LEADER
        """The active controller, as far as this node knows."""
        self.snapshots_loaded = 0
        """Snapshots that have replaced everything since the start, with those that the start has read."""
        self.batches = BatchMeter(monotonic_s)
        self.faults = 0
        """Failures that are bugs and that the node survives: of the controller's own decisions, and of snapshots."""
        self.snapshot_faults = 0
        """Those of snapshots."""
        self.when_leader_changes: list[Callable[[], None]] = []
        self.when_active: Callable[[], None] | None = None
        """Called when this node has become the active controller and may append."""
        self.when_deposed: Callable[[], None] | None = None
        self.when_it_serves: list[Callable[[], None]] = []
        """Called when the active controller is this node, and takes requests: its first records are written."""
        self._quorum: ProposalQuorum | None = None
        self._max_bytes_between_snapshots = max_bytes_between_snapshots
        self._max_ms_between_snapshots = max_ms_between_snapshots
        self._subscribers: list[ImageSubscriber] = []
        self._committed: Replayer = core.mark()
        """The replay state without uncommitted proposals."""
        self._kraft_version = 0
        self._waiting: list[tuple[int, Deferred[None]]] = []
        self._last = (NO_OFFSET, NO_EPOCH)
        self._tasks = tasks
        self._is_making_snapshot = False

    def attach(self, quorum: ProposalQuorum) -> None:
        self._quorum = quorum

    @property
    def quorum(self) -> ProposalQuorum:
        assert self._quorum is not None
        return self._quorum

    @property
    def is_active(self) -> bool:
        return self.active_epoch != NO_EPOCH

    def subscribe(self, subscriber: ImageSubscriber) -> None:
        self._subscribers.append(subscriber)

    def when_at(self, offset: int) -> Deferred[None]:
        """Resolve when the newest committed image includes the record at this offset."""
        reached: Deferred[None] = Deferred()
        if self.image.offset >= offset:
            reached.resolve(None)
        else:
            self._waiting.append((offset, reached))
        return reached

    # The quorum's side (raft.contracts.StateMachine).

    def load_snapshot(self, batch: LoadedBatch) -> None:
        # The levels of the format are in a checkpoint at offset 0, which Apache Kafka does not count.
        self.snapshots_loaded += batch.last_offset > 0
        self.core.forget()
        self.batches.forget()
        self._load(batch)

    def apply(self, batch: LoadedBatch) -> None:
        if self.is_active:
            return  # the quorum's own control records; take_kraft_version takes the level among them
        self.batches.begin()
        self._load(batch)
        self.batches.end(len(batch.values))

    def _load(self, batch: LoadedBatch) -> None:
        if batch.kraft_version is not None:
            self._kraft_version = batch.kraft_version
            self.core.load_kraft_version(batch.kraft_version)
        if batch.values:
            self.core.load_values(batch.values)
        self._last = (batch.last_offset, batch.epoch)

    def apply_part(self, values: Sequence[bytes]) -> None:
        self.batches.begin()
        self.core.load_values(values)
        self.batches.end_part(len(values))

    def caught_up(self) -> None:
        self.batches.forget()
        if self.is_active:
            return
        image = self.core.finish_loading(*self._last)
        self._committed = self.core.mark()
        self._publish(image)

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        self.leader_id = leader_id
        if self.is_active:
            self.active_epoch = NO_EPOCH
            # Uncommitted proposals may still arrive in the next leader's log.
            self.core.revert(self._committed)
            if self.when_deposed is not None:
                self.when_deposed()
        for call in self.when_leader_changes:
            call()

    def became_active(self, epoch: int) -> None:
        self.active_epoch = epoch
        if self.when_active is not None:
            self.when_active()

    # The active controller's side.

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Append one atomic batch. Its image is published when it is committed.

        Raises NotController if this node is not active, or resigns because its log accepts no records. Raises OSError
        if no other node could lead. In both cases the records have no effect.
        """
        at_once(self._append_in_steps(records))

    def _append_in_steps(self, records: Sequence[MetadataRecord], *, may_resign: bool = True) -> Work[None]:
        if not self.is_active:
            raise NotController
        epoch, quorum, core = self.active_epoch, self.quorum, self.core
        # Replay before appending: an invalid record must not reach the log.
        replayer, packed = core.mark(), PackedValues()
        self.batches.begin()
        for number, piece in enumerate(pieces(records, RECORDS_A_STEP)):
            if number:
                yield TURN_COST
                if self.active_epoch != epoch:
                    raise NotController
            replayer.apply_records(piece)
            packed.add(frame_all(piece))
        if core.image.features.get(KRAFT_VERSION, 0) > replayer.image.features.get(KRAFT_VERSION, 0):
            replayer.set_kraft_version(self._kraft_version)  # raised between two steps
        image = replayer.publish(quorum.next_offset + len(records) - 1, quorum.epoch)
        self.batches.end(len(records))
        before, after = core.mark(), replayer.copy()
        core.revert(replayer)
        try:
            quorum.propose(packed, lambda: self._commit(image, after), _nothing)
        except OSError as error:
            core.revert(before)
            if may_resign and quorum.resign_for_room(packed.size_bytes, error):
                raise NotController from error
            raise
        except NotLeader as error:
            core.revert(before)
            raise NotController from error
        except BaseException:
            core.revert(before)
            raise

    def append_all(
        self, records: Sequence[MetadataRecord], *, is_atomic: bool, may_resign: bool = True
    ) -> Work[None]:
        """Like `append`, in steps. Nothing else may be appended between them (controller/event_queue.py).

        If not atomic, very many records are written as several batches. Each record must then be valid without the
        next ones.
        """
        size = len(records) if is_atomic else MAX_RECORDS_PER_BATCH
        for batch in pieces(records, max(size, 1)):
            yield from self._append_in_steps(batch, may_resign=may_resign)

    def append_own(self, records: Sequence[MetadataRecord], *, may_resign: bool = True) -> Work[bool]:
        """Append the controller's own decisions, which have no reply. Returns False if they were not written: this
        node or the next active controller must decide them again later.

        `may_resign`: whether the leadership ends if the log takes no records."""
        try:
            yield from self.append_all(records, is_atomic=False, may_resign=may_resign)
        except NotController:
            return False
        except OSError as error:
            logger.warning("the controller cannot write what it decided: %s", error)
            return False
        except Exception as error:
            self.faults += 1
            report("writing what the controller decided by itself", error)
            return False
        return True

    def submit(self, result: ControllerResult[MetadataRecord, T]) -> Deferred[T]:
        """The response, once the records and everything the command may have read are committed.

        Fails with NotController if leadership is lost first: the outcome is unknown.
        """
        return at_once(self.submit_in_steps(result))

    def submit_in_steps(
        self, result: ControllerResult[MetadataRecord, T], *, is_atomic: bool = True
    ) -> Work[Deferred[T]]:
        if not self.is_active:
            raise NotController
        if result.records:
            yield from self.append_all(result.records, is_atomic=is_atomic)
        return self.after_commit(result.response)

    def after_commit(self, response: T) -> Deferred[T]:
        deferred: Deferred[T] = Deferred()
        self.quorum.when_committed(lambda: deferred.resolve(response), lambda: deferred.fail(NotController()))
        return deferred

    def take_kraft_version(self, level: int) -> None:
        """The active quorum has committed this level itself. It applies to everything published from now on."""
        self._kraft_version = level
        self.core.load_kraft_version(level)
        self.core.finish_loading(self.core.image.offset, self.core.image.epoch)
        self._commit(self._committed.image, self._committed)

    def _commit(self, image: MetadataImage, after: Replayer) -> None:
        if image.features.get(KRAFT_VERSION, 0) < self._kraft_version:
            after.set_kraft_version(self._kraft_version)
            image = after.publish(image.offset, image.epoch)
        self._committed = after
        self._publish(image)

    def _publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        for subscriber in self._subscribers:
            subscriber(old, image)
        if self._waiting:
            due = [each for each in self._waiting if each[0] <= image.offset]
            self._waiting = [each for each in self._waiting if each[0] > image.offset]
            for _, reached in due:
                reached.resolve(None)
        if self._is_snapshot_due():
            self.write_snapshot()

    def _is_snapshot_due(self) -> bool:
        """Also after a time with few records: a start reads all of the log behind the newest snapshot."""
        quorum = self.quorum
        if quorum.bytes_since_snapshot >= self._max_bytes_between_snapshots:
            return True
        return 0 < self._max_ms_between_snapshots <= quorum.ms_since_snapshot

    def write_snapshot(self) -> None:
        """Write a snapshot of the newest committed image, unless a metadata transaction is open or a snapshot is in
        progress."""
        image = self.image
        if image.offset < 0 or self._committed.in_transaction or self._is_making_snapshot:
            return
        writer = self.quorum.begin_snapshot(image.offset + 1, image.epoch)
        if writer is not None:
            self._tasks.start("making a snapshot of the metadata", self._make_snapshot(image, writer))

    async def _make_snapshot(self, image: MetadataImage, writer: SnapshotWriter) -> None:
        self._is_making_snapshot = True
        try:
            await in_turns(_snapshot_values(image, writer))
        except Exception as error:
            self.faults += 1
            self.snapshot_faults += 1
            writer.give_up()
            report("making a snapshot of the metadata", error)
        else:
            writer.finish()
        finally:
            self._is_making_snapshot = False


def _snapshot_values(image: MetadataImage, writer: SnapshotWriter) -> Work[None]:
    """The image is immutable, so it does not change meanwhile."""
    from kafkacompat.controller.snapshot_records import image_records

    records = image_records(image)
    writer.add(frame_all(list(islice(records, RECORDS_A_STEP))))
    while piece := list(islice(records, RECORDS_A_STEP)):
        yield TURN_COST
        writer.add(frame_all(piece))


def _nothing() -> None:
    """After a lost leadership the machine reverts as a whole, and each waiting command fails separately."""
