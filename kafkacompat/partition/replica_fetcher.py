"""Fetchers (ReplicaFetcherThread): each fetches from one leader, over one channel, its share of the followed partitions.

The shell around following.py: it sends and waits, and asks for the leader's offsets when a fetch was out of range. One
request is in flight at a time. Imported only by a node that follows something. Settings: num.replica.fetchers,
replica.socket.timeout.ms, replica.fetch.backoff.ms.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.faults import report
from kafkacompat.log.producer_snapshots import SnapshotCorrupt
from kafkacompat.meters import RateOfTotal
from kafkacompat.net.failures import ChannelError
from kafkacompat.partition.following import (
    TRUNCATION_US,
    Fetched,
    FollowerFetches,
    PartitionFetchState,
    list_offsets_request,
    parts_below_start,
    take_earliest,
    take_latest,
)
from kafkacompat.partition.list_offsets import EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD, LATEST
from kafkacompat.ports import LogRefused, passes
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.tasks import WakeUp, in_turns, pause
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.wire.messages.fetch_request import FetchRequest
    from kafkacompat.wire.messages.list_offsets_request import ListOffsetsRequest
    from kafkacompat.wire.messages.list_offsets_response import (
        ListOffsetsPartitionResponse,
        ListOffsetsResponse,
    )

logger = logging.getLogger(__name__)

ACTED_US, FAILED_US = 20, 200
"""Of a partition of an answer: a line in the log, or a look at who waits for it; a failure with its traceback."""


class Channel(Protocol):
    """The parts of net.channels.Channel that are used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...

    def close(self) -> None: ...


class ReplicaFetcher:
    def __init__(
        self,
        services: PartitionServices,
        hosted: HostedPartitions,
        leader_id: int,
        address: tuple[str, int],
        channel: Channel,
        fetches: FollowerFetches,
        idle: Callable[[ReplicaFetcher], None],
    ) -> None:
        """`idle` is called when it follows nothing any more and may be closed."""
        self.leader_id = leader_id
        self.address = address
        self.fetches = fetches
        self._ident = f"[ReplicaFetcher replicaId={services.node_id}, leaderId={leader_id}]"
        self._node_id = services.node_id
        self._clock = services.clock
        self._tasks = services.tasks
        self._hosted = hosted
        self._channel = channel
        self._idle = idle
        self._settings = services.settings
        self._timeout_ms = services.settings.get_int("replica.socket.timeout.ms")
        self._backoff_ms = services.settings.get_int("replica.fetch.backoff.ms")
        self._requests = 0
        """Fetches that were sent."""
        self._rate = RateOfTotal(self._clock.monotonic_ms())
        self._is_unreachable = False
        self._is_closed = False
        self._wake_up = WakeUp(services.tasks)
        self._task = services.tasks.start(f"fetching from node {leader_id}", self._run())

    def add(self, core: Partition) -> None:
        """Fetch the partition with the next request, after all partitions of the same image were added."""
        self.fetches.add(core)
        self._wake_up.call()

    def remove(self, core: Partition) -> None:
        self.fetches.remove(core)
        if not self.fetches.partitions:
            self._tasks.start("closing an idle fetcher", self._close_if_idle())

    def cores(self) -> list[Partition]:
        return [followed.core for followed in self.fetches.partitions.values()]

    def fetch_rate(self) -> float:
        """Fetches a second, in the last 30 s or more."""
        return self._rate.read(self._clock.monotonic_ms(), self._requests)

    def close(self) -> None:
        self._is_closed = True
        self._task.cancel()
        self._channel.close()

    async def _close_if_idle(self) -> None:
        await self._tasks.sleep(0)  # the same image may add another partition
        if not self.fetches.partitions and not self._is_closed:
            self._idle(self)

    async def _run(self) -> None:
        while not self._is_closed:
            try:
                await self._do_work()
            except Exception as error:
                # Whatever the error is: a fetcher that ends would never follow the leader again.
                report(f"fetching from node {self.leader_id}", error)
                self.fetches.lost(self._clock.monotonic_ms())
                await self._wake_up.wait(self._backoff_ms)

    async def _do_work(self) -> None:
        """Fetch once and apply the response, or wait until there is something to fetch."""
        request = self.fetches.build(self._clock.monotonic_ms())
        if request is None:
            due_ms = self.fetches.next_due_ms()
            await self._wake_up.wait(None if due_ms is None else due_ms - self._clock.monotonic_ms())
            await self._tasks.sleep(0)  # the same image may add more partitions
            return
        try:
            response = await self._send(request)
        except Exception as error:
            self._report_unexpected(error)
            if not self._is_unreachable:
                self._is_unreachable = True
                logger.warning(
                    "%s Error in response for fetch request to %s:%d: %s", self._ident, *self.address, error
                )
            self.fetches.lost(self._clock.monotonic_ms())
            return
        if self._is_unreachable:
            self._is_unreachable = False
            logger.info("%s %s:%d answers again", self._ident, *self.address)
        outcome = Fetched.nothing()
        await in_turns(self.fetches.take_in_turns(response, self._clock.monotonic_ms(), outcome))
        await self._act_on(outcome)
        if outcome.out_of_range:
            unsettled = await self._fetch_offsets(outcome.out_of_range, LATEST)
            if unsettled:
                await self._fetch_earliest(unsettled)
        for followed, log_start_offset in outcome.tiered:
            await self._begin_after_tier(followed, log_start_offset)

    def _send(self, request: FetchRequest) -> Deferred[Any]:
        self._requests += 1
        return self._channel.request(request, self._timeout_ms)

    def _report_unexpected(self, error: Exception) -> None:
        """A request to the leader may fail on its way. Any other failure is a bug."""
        if not isinstance(error, (ChannelError, OSError)):
            report(f"a request to node {self.leader_id}", error)

    async def _act_on(self, outcome: Fetched) -> None:
        """An answer may have something of every partition that the leader has lost."""
        for core, failure in outcome.broken:
            self._hosted.storage_failed(core, failure)
        for core in outcome.advanced:
            self._hosted.advanced(core)
            await pause(ACTED_US)
        for note in outcome.notes:
            logger.info("%s %s", self._ident, note)
            await pause(ACTED_US)
        for followed, problem in outcome.failed:
            self._mark_failed(followed, problem)
            await pause(FAILED_US)
        for followed in outcome.truncated:
            self._resume_when_true(followed)
            await pause(ACTED_US)

    def _mark_failed(self, followed: PartitionFetchState, problem: Exception) -> None:
        logger.error(
            "%s Unexpected error occurred while processing data for partition %s at offset %d. "
            "Partition %s marked as failed until its leader changes",
            self._ident,
            followed.name,
            followed.core.log.log_end_offset,
            followed.name,
            exc_info=problem,
        )

    def _resume_when_true(self, followed: PartitionFetchState) -> None:
        self._tasks.start(f"truncating {followed.name}", self._resume(followed))

    async def _resume(self, followed: PartitionFetchState) -> None:
        """Continue with a truncated log when its checkpoints are correct. From then on its fetches count as
        replicated, so a start must not use the old checkpoint offset."""
        await self._hosted.when_true(followed.core)
        self.fetches.resolved(followed)
        self._wake_up.call()

    # What the leader has in the remote storage only.

    async def _begin_after_tier(self, followed: PartitionFetchState, log_start_offset: int) -> None:
        """Ask the leader for the first offset to fetch, and with which epoch the remote part before it ends. Then begin there,
        with the state at the end of the last remote segment (TierStateMachine)."""
        later_ms = self._clock.monotonic_ms() + self._backoff_ms
        try:
            first = await self._first_offset_after_tier(followed)
            epoch, offset, error = first.leader_epoch, first.offset - 1, first.error_code
            epoch_end_offset = -1
            if error == ErrorCode.NONE and epoch > 0:
                before = await self._channel.request(
                    _epoch_request(self._node_id, followed, epoch - 1), self._timeout_ms
                )
                earlier = before.topics[0].partitions[0]
                error = earlier.error_code
                if earlier.end_offset > offset:
                    # Of several epochs without records the last one with a record counts.
                    epoch, epoch_end_offset = earlier.leader_epoch, earlier.end_offset
            if error == ErrorCode.NONE and epoch_end_offset < 0:
                # A copy of another leader may go on behind the end that this epoch has there.
                asked = await self._channel.request(
                    _epoch_request(self._node_id, followed, epoch), self._timeout_ms
                )
                own = asked.topics[0].partitions[0]
                error = own.error_code
                epoch_end_offset = own.end_offset if own.leader_epoch == epoch else first.offset
        except Exception as problem:
            self._report_unexpected(problem)
            logger.warning(
                "%s Error getting the local log start of %s: %s", self._ident, followed.name, problem
            )
            self.fetches.resolved(followed, later_ms)
            return
        if error != ErrorCode.NONE or offset < 0:
            self._refused(followed, error, later_ms)
            return
        # The remote storage may be slow, which concerns no other partition.
        self._tasks.start(
            f"reading the remote state of {followed.name}",
            self._build_aux_state(followed, epoch, offset, epoch_end_offset, log_start_offset),
        )

    async def _first_offset_after_tier(self, followed: PartitionFetchState) -> ListOffsetsPartitionResponse:
        """Where the leader's local part begins. With follower.fetch.last.tiered.offset.enable an empty follower begins after
        all that is in the remote storage (KIP-1023). An offset of -1: the leader does not know yet where that is."""
        log = followed.core.log
        if log.log_end_offset == log.log_start_offset and self._settings.get_boolean(
            "follower.fetch.last.tiered.offset.enable"
        ):
            after = await self._offset_of(followed, EARLIEST_PENDING_UPLOAD)
            # A leader of an earlier release does not know this question.
            if after.error_code != ErrorCode.UNSUPPORTED_VERSION:
                return after
        return await self._offset_of(followed, EARLIEST_LOCAL)

    async def _offset_of(self, followed: PartitionFetchState, timestamp: int) -> ListOffsetsPartitionResponse:
        response: ListOffsetsResponse = await self._channel.request(
            self._offsets_request([followed], timestamp), self._timeout_ms
        )
        return response.topics[0].partitions[0]

    async def _build_aux_state(
        self,
        followed: PartitionFetchState,
        epoch: int,
        offset: int,
        epoch_end_offset: int,
        log_start_offset: int,
    ) -> None:
        core, tiering = followed.core, self._hosted.tiering
        state = None
        if tiering is not None:
            try:
                state = await tiering.follower_state(core, epoch, offset, epoch_end_offset)
            except Exception as problem:
                report(f"reading the remote state of {followed.name}", problem)
        if self.fetches.current(followed) is not followed:
            return
        later_ms = self._clock.monotonic_ms() + self._backoff_ms
        if state is None:
            logger.warning(
                "%s Couldn't build the state from remote store for partition %s up to offset %d of epoch %d",
                self._ident,
                followed.name,
                offset,
                epoch,
            )
            self.fetches.resolved(followed, later_ms)
            self._wake_up.call()
            return
        try:
            while not core.log.start_after_remote_segment(
                state.offset, log_start_offset, state.epochs, state.producer_snapshot
            ):
                await pause()
                if self.fetches.current(followed) is not followed:
                    return
        except OSError as failure:
            self._hosted.storage_failed(core, failure)
        except SnapshotCorrupt as damage:
            logger.warning(
                "%s %s: the remote producer snapshot is damaged: %s", self._ident, followed.name, damage
            )
        except Exception as problem:
            # Whatever it is: nobody else would have the partition followed again.
            if not (isinstance(problem, (LogRefused, BatchCorrupt)) or passes(problem)):
                report(f"beginning {followed.name} after its remote segments", problem)
            logger.warning(
                "%s Partition %s cannot begin after its remote segments yet: %s",
                self._ident,
                followed.name,
                problem,
            )
        else:
            logger.info(
                "%s Partition %s begins at offset %d, after its remote segments",
                self._ident,
                followed.name,
                state.offset,
            )
            self._resume_when_true(followed)
            return
        self.fetches.resolved(followed, later_ms)
        self._wake_up.call()

    # Offsets out of the leader's range.

    async def _fetch_earliest(self, asked: list[PartitionFetchState]) -> None:
        """Of a tiered partition the log start counts: what follows tells that it is not local any more."""
        tiered = [followed for followed in asked if followed.core.log.is_tiered]
        local = [followed for followed in asked if not followed.core.log.is_tiered]
        for some, timestamp in ((local, EARLIEST_LOCAL), (tiered, EARLIEST)):
            if some:
                await self._fetch_offsets(some, timestamp)

    async def _fetch_offsets(
        self, asked: list[PartitionFetchState], timestamp: int
    ) -> list[PartitionFetchState]:
        """Apply the leader's offsets of this timestamp. Returns the partitions for which its log start is needed too."""
        waiting: dict[tuple[str, int], PartitionFetchState] = {followed.name: followed for followed in asked}
        unsettled: list[PartitionFetchState] = []
        try:
            response: ListOffsetsResponse = await self._channel.request(
                self._offsets_request(asked, timestamp), self._timeout_ms
            )
            answers = [
                ((topic.name, answer.partition_index), answer)
                for topic in response.topics
                for answer in topic.partitions
            ]
        except Exception as error:
            self._report_unexpected(error)
            logger.warning("%s Error getting offsets: %s", self._ident, error)
            answers = []
        later_ms = self._clock.monotonic_ms() + self._backoff_ms
        for name, answer in answers:
            followed = waiting.pop(name, None)
            if followed is None or self.fetches.current(followed) is not followed:
                continue
            producers = None
            if timestamp == LATEST and answer.error_code == ErrorCode.NONE:
                producers = await in_turns(followed.core.log.producers_as_of(answer.offset))
                if self.fetches.current(followed) is not followed:
                    continue
            if answer.error_code != ErrorCode.NONE:
                self._refused(followed, answer.error_code, later_ms)
            elif self._settle(followed, timestamp, answer.offset, producers, later_ms):
                self._resume_when_true(followed)
            elif followed.resolving:
                unsettled.append(followed)
            # A new disk is out of range with all of its partitions.
            await pause(TRUNCATION_US)
        for followed in waiting.values():
            self.fetches.resolved(followed, later_ms)
        return unsettled

    def _offsets_request(self, asked: list[PartitionFetchState], timestamp: int) -> ListOffsetsRequest:
        epochs = ((followed.name, followed.current_leader_epoch) for followed in asked)
        return list_offsets_request(self._node_id, epochs, timestamp)

    def _refused(self, followed: PartitionFetchState, error_code: int, later_ms: int) -> None:
        logger.info(
            "%s Could not fetch offset for %s due to error: %d", self._ident, followed.name, error_code
        )
        if error_code == ErrorCode.FENCED_LEADER_EPOCH:
            followed.failed = True
        self.fetches.resolved(followed, later_ms)

    def _settle(
        self, followed: PartitionFetchState, timestamp: int, offset: int, producers: Any, later_ms: int
    ) -> bool:
        """Apply the leader's offset. Returns False if the leader's log start is needed too, or the log failed."""
        core = followed.core
        end = core.log.log_end_offset
        try:
            if timestamp == LATEST:
                followed.begins_anew = followed.begins_anew or parts_below_start(core.log, offset)
                if followed.begins_anew or not take_latest(core, offset, producers):
                    return False
            else:
                begins_anew, followed.begins_anew = followed.begins_anew, False
                take_earliest(core, offset, anew=begins_anew)
        except (OSError, LogRefused, MemoryError) as problem:
            if isinstance(problem, OSError):
                self._hosted.storage_failed(core, problem)
            else:
                logger.warning("%s %s: %r", self._ident, followed.name, problem)
            if core.log.log_end_offset != end:
                return True  # truncated before the rest failed
            self.fetches.resolved(followed, later_ms)
            return False
        except Exception as problem:
            followed.failed = True
            self.fetches.resolved(followed, later_ms)
            self._mark_failed(followed, problem)
            return False
        if core.log.log_end_offset != end:
            logger.warning(
                "%s Current offset %d for partition %s is out of range, which typically implies a leader change. "
                "Reset fetch offset to %d",
                self._ident,
                end,
                followed.name,
                core.log.log_end_offset,
            )
        return True


def _epoch_request(node_id: int, followed: PartitionFetchState, epoch: int) -> OffsetForLeaderEpochRequest:
    """Asks for the last epoch up to this one that has records, and its end."""
    name = followed.name
    partition = OffsetForLeaderPartition(
        partition=name.partition,
        current_leader_epoch=followed.current_leader_epoch,
        leader_epoch=epoch,
    )
    topic = OffsetForLeaderTopic(topic=name.topic, partitions=[partition])
    return OffsetForLeaderEpochRequest(replica_id=node_id, topics=[topic])
