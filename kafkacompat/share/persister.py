"""The state of share-partitions, wherever their coordinator is: share.service.SharePersister.

It finds the coordinator of each share-partition in the newest image, asks it directly on this node and by a request on
another, and retries what may pass. Follows Kafka's DefaultStatePersister and PersisterStateManager: one request of a kind
for a group is in flight to a node, and what comes meanwhile goes into the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, NO_OFFSET, SHARE_STATE_TOPIC, Uuid
from kafkacompat.net.failures import ChannelError, RequestTimedOut, UnsupportedByPeer
from kafkacompat.ports import passes
from kafkacompat.share.service import (
    ReadState,
    ShareError,
    SharePartitionKey,
    StateBatch,
    StateSummary,
    TopicIdPartition,
    WriteState,
)
from kafkacompat.tasks import pause, pieces
from kafkacompat.wire.errors import ErrorCode, code_of, error_text
from kafkacompat.wire.messages import (
    delete_share_group_state_request,
    initialize_share_group_state_request,
    read_share_group_state_request,
    read_share_group_state_summary_request,
    write_share_group_state_request,
)

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.coordinator.inter_broker_sender import Requests
    from kafkacompat.ports import Random
    from kafkacompat.share.service import ShareCoordinatorService
    from kafkacompat.tasks import Started, Tasks

logger = logging.getLogger(__name__)

BACKOFF_MS, BACKOFF_MAX_MS = 1_000, 30_000
BACKOFF_JITTER = 20
"""In percent. The back-off doubles with each attempt."""
ATTEMPTS_MAX = 5
"""Attempts to find the coordinator, and attempts of the request itself."""
REQUEST_TIMEOUT_MS = 30_000
WAITING_MAX = 10_000
"""Operations of one kind that wait for one share-partition. Further ones are refused."""
SENT_MAX = 2_000
"""Share-partitions in one request."""
QUEUE_US = 20
"""To take the answer for a share-partition, of which somebody has waited, or to ask for it again."""
LOOKED_AT_TOGETHER, LOOK_US = 200, 3
"""Share-partitions whose coordinator may be another one now."""
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors that are retried. The last two are those of a request without an answer."""
NO_SUCCESS = "Exhausted max retries to {what} without success."
FINDING = "Error in find coordinator. "
STOPS = "The node stops."


BATCHES_TOGETHER_MAX = 1_000
"""State batches of writes that are sent as one."""
LIFE = "life"
"""The order of what makes a state and deletes it."""


class Topics(Protocol):
    """api.context.AutoTopicCreator."""

    def request(self, topics: Sequence[str]) -> None: ...


class Operation:
    """One operation on one share-partition. `answer` never fails: errors are part of it."""

    __slots__ = ("answer", "attempts", "lookups", "request", "value")

    def __init__(self, request: StateRequest, value: Any) -> None:
        self.request = request
        self.value = value
        self.answer: Deferred[Any] = Deferred()
        self.attempts = self.lookups = 0


class OperationQueue:
    """The operations of one order (StateRequest.order) on one share-partition. While one is under way the others wait.

    A write that is retried must not come after a later one, which would set the start offset back. Nor must a state be made
    after the group was deleted, or be deleted after it was made anew.
    """

    __slots__ = ("asked", "key", "order", "retry", "waiting")

    def __init__(self, order: str, key: SharePartitionKey) -> None:
        self.order = order
        self.key = key
        self.waiting: list[Operation] = []
        self.asked: list[Operation] = []
        """Those that the request in flight answers together."""
        self.retry: Started | None = None
        """The next attempt, while it waits."""

    @property
    def request(self) -> StateRequest:
        """The kind of what is under way, or comes next."""
        return (self.asked or self.waiting)[0].request

    def take(self) -> Any:
        """Take operations that one partition of a request expresses. Returns its value."""
        request = self.request
        alike = takewhile(lambda operation: operation.request is request, self.waiting)
        value, count = request.together([operation.value for operation in alike])
        self.asked, self.waiting = self.waiting[:count], self.waiting[count:]
        return value


class Destination(NamedTuple):
    """What one request may contain."""

    node_id: int
    kind: str
    group_id: str


class DefaultStatePersister:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        coordinator: ShareCoordinatorService,
        channel: Callable[[int], Requests | None],
        topics: Topics,
        tasks: Tasks,
        random: Random,
    ) -> None:
        """`coordinator` is this node's own. `channel` returns the channel to another broker. `topics` creates the state
        topic at its first use."""
        self._node_id = node_id
        self._image = image
        self._coordinator = coordinator
        self._channel = channel
        self._topics = topics
        self._tasks = tasks
        self._random = random
        self._queues: dict[tuple[str, SharePartitionKey], OperationQueue] = {}
        self._destinations: dict[Destination, list[OperationQueue]] = {}
        """Where a request is in flight to, with what goes into the next one."""
        self._awaited: dict[Destination, Deferred[Any]] = {}
        """The answers of other nodes."""
        self._backing_off: dict[OperationQueue, int] = {}
        """Those that wait for their next attempt, with the node that could not serve them (-1 if none is known)."""
        self._closed = False

    # --- share.service.SharePersister

    def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> Deferred[Mapping[TopicIdPartition, ShareError]]:
        values = {each: (state_epoch, offset) for each, offset in start_offsets.items()}
        return self._ask_all(INITIALIZE, group_id, values)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[ReadState]:
        return self._ask(READ, key, leader_epoch)

    def write(self, key: SharePartitionKey, state: WriteState) -> Deferred[ShareError]:
        return self._ask(WRITE, key, state)

    def delete(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Mapping[TopicIdPartition, ShareError]]:
        return self._ask_all(DELETE, group_id, dict.fromkeys(partitions))

    def read_summary(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Mapping[TopicIdPartition, StateSummary]]:
        return self._ask_all(READ_SUMMARY, group_id, dict.fromkeys(partitions, -1))

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Go on at once with what waits for another coordinator than the image now has, or for a node that is lost. Call it
        after the coordinator has applied the image."""
        if old.topics is new.topics and old.brokers is new.brokers:
            return
        for destination, answer in list(self._awaited.items()):
            if _is_lost(destination.node_id, new):
                # One that hangs keeps its connections open.
                del self._awaited[destination]
                answer.fail(RequestTimedOut(f"node {destination.node_id} is lost"))
        if self._backing_off:
            self._tasks.start("asking other share coordinators", self._ask_others())

    async def _ask_others(self) -> None:
        """Every share-partition that is led here may wait."""
        for some in pieces(list(self._backing_off), LOOKED_AT_TOGETHER):
            moved = [queue for queue in some if self._has_moved(queue)]
            for queue in moved:
                if queue.retry is not None:
                    queue.retry.cancel()
            self._start(moved)
            await pause(LOOK_US * len(some) + QUEUE_US * len(moved))
            if self._closed:
                return

    def _has_moved(self, queue: OperationQueue) -> bool:
        """Whether it waits to ask a node again, and another one coordinates it by now."""
        node_id = self._backing_off.get(queue)
        return node_id is not None and self._coordinator_of(queue.key) not in (NO_LEADER, node_id)

    def close(self) -> None:
        """Fail everything that waits, and everything later, with COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        for queue in list(self._queues.values()):
            if queue.retry is not None:
                queue.retry.cancel()
            operations, queue.asked, queue.waiting = queue.asked + queue.waiting, [], []
            self._refuse(operations, ErrorCode.COORDINATOR_NOT_AVAILABLE, STOPS)
        self._queues.clear()
        self._backing_off.clear()

    # --- finding the coordinator

    def _ask(self, request: StateRequest, key: SharePartitionKey, value: Any) -> Deferred[Any]:
        operation = Operation(request, value)
        queue = self._enqueue(key, operation)
        if queue is not None:
            self._start([queue])
        return operation.answer

    def _ask_all(
        self, request: StateRequest, group_id: str, values: Mapping[TopicIdPartition, Any]
    ) -> Deferred[Any]:
        operations = {each: Operation(request, value) for each, value in values.items()}
        begun = [
            self._enqueue(SharePartitionKey(group_id, *each), operation)
            for each, operation in operations.items()
        ]
        self._start([queue for queue in begun if queue is not None])
        return self._tasks.run("asking for states of share-partitions", _answers_of(operations))

    def _enqueue(self, key: SharePartitionKey, operation: Operation) -> OperationQueue | None:
        """The share-partition's queue with the operation in it, if it must be started."""
        order = operation.request.order
        known = self._queues.get((order, key))
        queue = OperationQueue(order, key) if known is None else known
        if self._closed:
            self._refuse([operation], ErrorCode.COORDINATOR_NOT_AVAILABLE, STOPS)
            return None
        if len(queue.waiting) >= WAITING_MAX:
            text = f"{WAITING_MAX} requests wait for the share coordinator."
            self._refuse([operation], ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
            return None
        queue.waiting.append(operation)
        if known is None:
            self._queues[order, key] = queue
            return queue
        if queue.retry is not None and queue.waiting[-2].request is not operation.request:
            queue.retry.cancel()
            queue.retry = None
            return queue  # what is new need not wait for the back-off of something else
        return None

    def _start(self, queues: Sequence[OperationQueue]) -> None:
        by_destination: dict[Destination, list[OperationQueue]] = {}
        for queue in queues:  # all of them first: whoever is answered below may ask for more
            queue.retry = None
            self._backing_off.pop(queue, None)
        for queue in queues:
            node_id = self._coordinator_of(queue.key)
            if node_id == NO_LEADER:
                self._await_coordinator(queue)
                continue
            for operation in queue.waiting:
                operation.lookups = 0
            by_destination.setdefault(
                Destination(node_id, queue.request.name, queue.key.group_id), []
            ).append(queue)
        for destination, together in by_destination.items():
            to_send = self._destinations.get(destination)
            if to_send is not None:
                to_send += together
                continue
            self._destinations[destination] = together
            self._tasks.start("asking a share coordinator", self._send(destination, together))

    def _coordinator_of(self, key: SharePartitionKey) -> int:
        """The node that leads the share-partition's partition of the state topic."""
        image = self._image()
        topic = image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            return NO_LEADER
        try:
            partition = topic.partitions.get(self._coordinator.partition_for(key.coordinator_key))
        except OperationRefused:
            return NO_LEADER
        leader = NO_LEADER if partition is None else partition.leader
        return NO_LEADER if _is_lost(leader, image) else leader

    def _await_coordinator(self, queue: OperationQueue) -> None:
        """Have the topic created if it does not exist, and look again later."""
        if SHARE_STATE_TOPIC not in self._image().topics:
            try:
                self._topics.request([SHARE_STATE_TOPIC])
            except Exception as error:  # the next look asks again, and nobody else would begin with the queue
                if not passes(error):
                    report(f"asking for {SHARE_STATE_TOPIC}", error)
        for operation in queue.waiting:
            operation.lookups += 1
        lost = [operation for operation in queue.waiting if operation.lookups >= ATTEMPTS_MAX]
        queue.waiting = [operation for operation in queue.waiting if operation.lookups < ATTEMPTS_MAX]
        backs_off = bool(queue.waiting)
        if backs_off:
            self._back_off(queue, NO_LEADER, max([operation.lookups for operation in queue.waiting]))
        text = NO_SUCCESS.format(what="find coordinator")
        self._refuse(lost, ErrorCode.COORDINATOR_NOT_AVAILABLE, text, FINDING)
        if not backs_off:
            self._go_on(queue)

    def _back_off(self, queue: OperationQueue, node_id: int, attempts: int) -> None:
        self._backing_off[queue] = node_id
        queue.retry = self._tasks.start(
            "asking a share coordinator again", self._retry(queue, self._backoff_ms(attempts))
        )

    async def _retry(self, queue: OperationQueue, delay_ms: int) -> None:
        await self._tasks.sleep(delay_ms)
        self._start([queue])

    def _go_on(self, queue: OperationQueue) -> None:
        """Nothing of the queue is under way any more: begin with what has come meanwhile."""
        if queue.waiting:
            self._start([queue])
        else:
            del self._queues[queue.order, queue.key]

    def _backoff_ms(self, attempts: int) -> int:
        percent = 100 - BACKOFF_JITTER + self._random.randrange(2 * BACKOFF_JITTER + 1)
        return min((BACKOFF_MS << attempts) * percent // 100, BACKOFF_MAX_MS)

    # --- asking it

    async def _send(self, destination: Destination, to_send: list[OperationQueue]) -> None:
        """One request after another, while share-partitions wait for one."""
        while to_send:
            queues = to_send[:SENT_MAX]
            del to_send[:SENT_MAX]
            try:
                response = await self._request(destination, queues)
                found: dict[tuple[Uuid, int], Any] = {
                    (topic.topic_id, each.partition): each
                    for topic in response.results
                    for each in topic.partitions
                }
            except Exception as error:
                if self._closed:
                    return
                code = _lost(error)
                for queue in queues:
                    self._failed(queue, destination.node_id, code, None)
                    await pause(QUEUE_US)
                    if self._closed:
                        return
            else:
                if self._closed:
                    return
                for queue in queues:
                    self._take(
                        queue, destination.node_id, found.get((queue.key.topic_id, queue.key.partition))
                    )
                    await pause(QUEUE_US)  # whoever has waited goes on in this step
                    if self._closed:
                        return
        del self._destinations[destination]

    def _request(self, destination: Destination, queues: list[OperationQueue]) -> Deferred[Any]:
        request = queues[0].request
        message = request.message(destination.group_id, [(queue.key, queue.take()) for queue in queues])
        if destination.node_id == self._node_id:
            return request.ask(self._coordinator, message)
        channel = self._channel(destination.node_id)
        if channel is None:
            raise ChannelError(f"node {destination.node_id} has no address")
        if _is_lost(destination.node_id, self._image()):
            # These have waited for the answer to an earlier request, which was sent before the node was lost.
            raise ChannelError(f"node {destination.node_id} is lost")
        answer = self._awaited[destination] = Deferred()

        def answered(reply: Deferred[Any]) -> None:
            if not answer.done:  # it was waited for until now
                del self._awaited[destination]
                reply.pass_to(answer)

        channel.request(message, REQUEST_TIMEOUT_MS).on_done(answered)
        return answer

    def _take(self, queue: OperationQueue, node_id: int, result: Any) -> None:
        request = queue.request
        if result is not None and result.error_code:
            self._failed(queue, node_id, code_of(result.error_code), result.error_message)
            return
        try:
            value = None if result is None else request.taken(result)
        except Exception as error:
            report("taking the answer of a share coordinator", error)
            value = None
        if value is None:  # a bug of the coordinator
            text = f"Failed to {request.name} for share partition{request.colon} {queue.key.coordinator_key}"
            value = request.refused(_error(request, ErrorCode.UNKNOWN_SERVER_ERROR, text))
        self._finish(queue, value)

    def _failed(self, queue: OperationQueue, node_id: int, code: ErrorCode, message: str | None) -> None:
        request = queue.request
        if code not in RETRIABLE:
            error = _error(request, code, message or error_text(code))
            self._finish(queue, request.refused(error))
            return
        # A state that is about to be deleted is not made first.
        is_undone = request is INITIALIZE and any(operation.request is DELETE for operation in queue.waiting)
        for operation in queue.asked:
            operation.attempts = ATTEMPTS_MAX if is_undone else operation.attempts + 1
        lost = [operation for operation in queue.asked if operation.attempts >= ATTEMPTS_MAX]
        again = [operation for operation in queue.asked if operation.attempts < ATTEMPTS_MAX]
        queue.asked, queue.waiting = [], again + queue.waiting
        # A node that was paused, or whose answer came late, may have lost the coordinator long ago.
        backs_off = False
        if again and self._coordinator_of(queue.key) in (NO_LEADER, node_id):
            backs_off = True
            self._back_off(queue, node_id, max([operation.attempts for operation in again]))
        self._refuse(lost, code, NO_SUCCESS.format(what=f"complete {request.name} RPC"))
        if not backs_off:
            self._go_on(queue)

    def _finish(self, queue: OperationQueue, value: Any) -> None:
        asked, queue.asked = queue.asked, []
        for operation in asked:
            operation.answer.resolve(value)
        self._go_on(queue)

    def _refuse(
        self, operations: Sequence[Operation], code: ErrorCode, message: str, where: str | None = None
    ) -> None:
        for operation in operations:
            operation.answer.resolve(
                operation.request.refused(_error(operation.request, code, message, where))
            )


def _is_lost(node_id: int, image: MetadataImage) -> bool:
    broker = image.brokers.get(node_id)
    return broker is None or broker.fenced


async def _answers_of(operations: Mapping[TopicIdPartition, Operation]) -> dict[TopicIdPartition, Any]:
    return {each: await operation.answer for each, operation in operations.items()}


def _error(request: StateRequest, code: ErrorCode, message: str, where: str | None = None) -> ShareError:
    return ShareError(code, (f"Error in {request.name} RPC. " if where is None else where) + message)


def _lost(error: Exception) -> ErrorCode:
    """The error of a request without an answer. The request may or may not have been carried out."""
    if isinstance(error, UnsupportedByPeer):
        return ErrorCode.UNSUPPORTED_VERSION
    if isinstance(error, RequestTimedOut):
        return ErrorCode.REQUEST_TIMED_OUT
    if isinstance(error, ChannelError):
        return ErrorCode.NETWORK_EXCEPTION
    report("taking the answer of a share coordinator", error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class StateRequest:
    name: str
    """As in Kafka's texts."""
    colon: str
    """Punctuation that Kafka has in one of the texts of some requests."""
    request: Callable[..., Any]
    topic: Callable[..., Any]
    partition: Callable[[int, Any], Any]
    """A request's partition of an operation's value."""
    taken: Callable[[Any], Any]
    """An operation's result of a response's partition without error."""
    refused: Callable[[ShareError], Any]
    ask: Callable[[ShareCoordinatorService, Any], Deferred[Any]]
    """Send the message to this node's own coordinator."""
    together: Callable[[Sequence[Any]], tuple[Any, int]] = lambda values: (values[0], same_prefix(values))
    """One value for the first of these operations on one share-partition, and how many it stands for."""
    line: str = ""
    """Operations with the same one are carried out in order, whatever their kinds. Without one, those of a kind are."""

    @property
    def order(self) -> str:
        return self.line or self.name

    def message(self, group_id: str, asked: Sequence[tuple[SharePartitionKey, Any]]) -> Any:
        topics: dict[Uuid, list[Any]] = {}
        for key, value in asked:
            topics.setdefault(key.topic_id, []).append(self.partition(key.partition, value))
        return self.request(
            group_id=group_id,
            topics=[
                self.topic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )


def same_prefix(values: Sequence[Any]) -> int:
    """How many of the first operations are the same."""
    return next((n for n, value in enumerate(values) if value != values[0]), len(values))


def one_write(states: Sequence[WriteState]) -> tuple[WriteState, int]:
    """Writes of one leader that wait for each other, as one: the newest start offset with the batches of all. The
    coordinator combines them by their states, so their order is not needed."""
    first = states[0]
    batches, start_offset, count = list(first.batches), first.start_offset, 1
    for state in states[1:]:
        is_same = (state.state_epoch, state.leader_epoch) == (first.state_epoch, first.leader_epoch)
        if not is_same or len(batches) + len(state.batches) > BATCHES_TOGETHER_MAX:
            break
        batches += state.batches
        start_offset = start_offset if state.start_offset == NO_OFFSET else state.start_offset
        count += 1
    if count == 1:
        return first, 1
    complete = states[count - 1].delivery_complete_count
    return WriteState(first.state_epoch, first.leader_epoch, start_offset, complete, batches), count


def _initialized(partition: int, value: tuple[int, int]) -> Any:
    state_epoch, start_offset = value
    return initialize_share_group_state_request.PartitionData(
        partition=partition, state_epoch=state_epoch, start_offset=start_offset
    )


def _written(partition: int, state: WriteState) -> Any:
    return write_share_group_state_request.PartitionData(
        partition=partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=[
            write_share_group_state_request.StateBatch(
                first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count
            )
            for first, last, delivery, count in state.batches
        ],
    )


def _state(result: Any) -> ReadState:
    return ReadState(
        state_epoch=result.state_epoch,
        start_offset=result.start_offset,
        batches=[
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ],
    )


def _summary(result: Any) -> StateSummary:
    return StateSummary(
        state_epoch=result.state_epoch,
        leader_epoch=result.leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=result.delivery_complete_count,
    )


def _done(result: Any) -> ShareError:
    return ShareError()


def _same(error: ShareError) -> ShareError:
    return error


INITIALIZE = StateRequest(
    "initialize state",
    ":",
    initialize_share_group_state_request.InitializeShareGroupStateRequest,
    initialize_share_group_state_request.InitializeStateData,
    _initialized,
    _done,
    _same,
    lambda coordinator, message: coordinator.initialize_state(message),
    line=LIFE,
)
READ = StateRequest(
    "read state",
    "",
    read_share_group_state_request.ReadShareGroupStateRequest,
    read_share_group_state_request.ReadStateData,
    lambda partition, epoch: read_share_group_state_request.PartitionData(
        partition=partition, leader_epoch=epoch
    ),
    _state,
    ReadState,
    lambda coordinator, message: coordinator.read_state(message),
)
WRITE = StateRequest(
    "write state",
    ":",
    write_share_group_state_request.WriteShareGroupStateRequest,
    write_share_group_state_request.WriteStateData,
    _written,
    _done,
    _same,
    lambda coordinator, message: coordinator.write_state(message),
    one_write,
)
DELETE = StateRequest(
    "delete state",
    ":",
    delete_share_group_state_request.DeleteShareGroupStateRequest,
    delete_share_group_state_request.DeleteStateData,
    lambda partition, _: delete_share_group_state_request.PartitionData(partition=partition),
    _done,
    _same,
    lambda coordinator, message: coordinator.delete_state(message),
    line=LIFE,
)
READ_SUMMARY = StateRequest(
    "read state summary",
    "",
    read_share_group_state_summary_request.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary_request.ReadStateSummaryData,
    lambda partition, epoch: read_share_group_state_summary_request.PartitionData(
        partition=partition, leader_epoch=epoch
    ),
    _summary,
    StateSummary,
    lambda coordinator, message: coordinator.read_state_summary(message),
)
