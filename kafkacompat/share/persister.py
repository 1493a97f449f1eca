"""The state of share-partitions, wherever their coordinator is: api.share_services.SharePersister.

It finds the coordinator of each share-partition in the newest image, asks it directly on this node and by a request on
another, and retries what may pass. Follows Kafka's DefaultStatePersister and PersisterStateManager: one request of a kind
for a group is in flight to a node, and what comes meanwhile goes into the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.api.share_services import (
    ReadState,
    ShareError,
    SharePartitionKey,
    StateSummary,
    TopicIdPartition,
    WriteState,
)
from kafkacompat.coordinator.core import Refused
from kafkacompat.deferred import Deferred, gather
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, SHARE_STATE_TOPIC, Uuid
from kafkacompat.net.failures import ChannelError, RequestTimedOut, UnsupportedByPeer
from kafkacompat.share.persister_lines import Call, Lane, Line
from kafkacompat.share.state_messages import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    StateRequest,
)
from kafkacompat.wire.error_texts import error_text
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.share_services import ShareCoordinatorService
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.coordinator.inter_broker_sender import Requests
    from kafkacompat.ports import Random, Timers
    from kafkacompat.tasks import Tasks

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
PASSING = frozenset(
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


class Topics(Protocol):
    """api.context.AutoTopicCreator."""

    def request(self, topics: Sequence[str]) -> None: ...


class ShareStatePersister:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        coordinator: ShareCoordinatorService,
        channel: Callable[[int], Requests | None],
        topics: Topics,
        timers: Timers,
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
        self._timers = timers
        self._tasks = tasks
        self._random = random
        self._lines: dict[tuple[str, SharePartitionKey], Line] = {}
        self._queues: dict[Lane, list[Line]] = {}
        """Of the next request, while one of the lane is in flight."""
        self._resting: dict[Line, int] = {}
        """Those that wait for their next attempt, with the node that could not serve them (-1 if none is known)."""
        self._closed = False

    # --- api.share_services.SharePersister

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
        """Go on at once with what waits for another coordinator than the image now has. Call it after the coordinator
        has applied the image."""
        if self._resting and (old.topics is not new.topics or old.brokers is not new.brokers):
            moved = [
                line
                for line, node_id in self._resting.items()
                if self._coordinator_of(line.key) not in (NO_LEADER, node_id)
            ]
            for line in moved:
                if line.handle is not None:
                    line.handle.cancel()
            self._start(moved)

    def close(self) -> None:
        """Fail everything that waits, and everything later, with COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        for line in list(self._lines.values()):
            if line.handle is not None:
                line.handle.cancel()
            calls, line.asked, line.waiting = line.asked + line.waiting, [], []
            self._refuse(calls, ErrorCode.COORDINATOR_NOT_AVAILABLE, STOPS)
        self._lines.clear()
        self._resting.clear()

    # --- finding the coordinator

    def _ask(self, request: StateRequest, key: SharePartitionKey, value: Any) -> Deferred[Any]:
        call = Call(request, value)
        line = self._join(key, call)
        if line is not None:
            self._start([line])
        return call.answer

    def _ask_all(
        self, request: StateRequest, group_id: str, values: Mapping[TopicIdPartition, Any]
    ) -> Deferred[Any]:
        calls = {each: Call(request, value) for each, value in values.items()}
        joined = [self._join(SharePartitionKey(group_id, *each), call) for each, call in calls.items()]
        self._start([line for line in joined if line is not None])
        return gather([call.answer for call in calls.values()]).then(
            lambda found: dict(zip(calls, found, strict=True))
        )

    def _join(self, key: SharePartitionKey, call: Call) -> Line | None:
        """The share-partition's line with the call in it, if it must be started."""
        order = call.request.order
        known = self._lines.get((order, key))
        line = Line(order, key) if known is None else known
        if self._closed:
            self._refuse([call], ErrorCode.COORDINATOR_NOT_AVAILABLE, STOPS)
            return None
        if len(line.waiting) >= WAITING_MAX:
            text = f"{WAITING_MAX} requests wait for the share coordinator."
            self._refuse([call], ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
            return None
        line.waiting.append(call)
        if known is None:
            self._lines[order, key] = line
            return line
        if line.handle is not None and line.waiting[-2].request is not call.request:
            line.handle.cancel()
            line.handle = None
            return line  # what is new need not wait for the back-off of something else
        return None

    def _start(self, lines: Sequence[Line]) -> None:
        lanes: dict[Lane, list[Line]] = {}
        for line in lines:  # all of them first: whoever is answered below may ask for more
            line.handle = None
            self._resting.pop(line, None)
        for line in lines:
            node_id = self._coordinator_of(line.key)
            if node_id == NO_LEADER:
                self._search(line)
                continue
            for call in line.waiting:
                call.searches = 0
            lanes.setdefault(Lane(node_id, line.request.name, line.key.group_id), []).append(line)
        for lane, together in lanes.items():
            queue = self._queues.get(lane)
            if queue is not None:
                queue += together
                continue
            self._queues[lane] = together
            self._tasks.start("asking a share coordinator", self._send(lane, together))

    def _coordinator_of(self, key: SharePartitionKey) -> int:
        """The node that leads the share-partition's partition of the state topic."""
        image = self._image()
        topic = image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            return NO_LEADER
        try:
            partition = topic.partitions.get(self._coordinator.partition_for(key.coordinator_key))
        except Refused:
            return NO_LEADER
        leader = NO_LEADER if partition is None else partition.leader
        broker = image.brokers.get(leader)
        return NO_LEADER if broker is None or broker.fenced else leader

    def _search(self, line: Line) -> None:
        """Have the topic created if it does not exist, and look again later."""
        if SHARE_STATE_TOPIC not in self._image().topics:
            self._topics.request([SHARE_STATE_TOPIC])
        for call in line.waiting:
            call.searches += 1
        lost = [call for call in line.waiting if call.searches >= ATTEMPTS_MAX]
        line.waiting = [call for call in line.waiting if call.searches < ATTEMPTS_MAX]
        rests = bool(line.waiting)
        if rests:
            self._rest(line, NO_LEADER, max([call.searches for call in line.waiting]))
        text = NO_SUCCESS.format(what="find coordinator")
        self._refuse(lost, ErrorCode.COORDINATOR_NOT_AVAILABLE, text, FINDING)
        if not rests:
            self._go_on(line)

    def _rest(self, line: Line, node_id: int, attempts: int) -> None:
        self._resting[line] = node_id
        line.handle = self._timers.call_after(self._backoff_ms(attempts), lambda: self._start([line]))

    def _go_on(self, line: Line) -> None:
        """Nothing of the line is under way any more: begin with what has come meanwhile."""
        if line.waiting:
            self._start([line])
        else:
            del self._lines[line.order, line.key]

    def _backoff_ms(self, attempts: int) -> int:
        percent = 100 - BACKOFF_JITTER + self._random.randrange(2 * BACKOFF_JITTER + 1)
        return min((BACKOFF_MS << attempts) * percent // 100, BACKOFF_MAX_MS)

    # --- asking it

    async def _send(self, lane: Lane, queue: list[Line]) -> None:
        """One request after another, while share-partitions wait for one."""
        while queue:
            lines = queue[:SENT_MAX]
            del queue[:SENT_MAX]
            try:
                response = await self._request(lane, lines)
                found: dict[tuple[Uuid, int], Any] = {
                    (topic.topic_id, each.partition): each
                    for topic in response.results
                    for each in topic.partitions
                }
            except Exception as error:
                if self._closed:
                    return
                code = _lost(error)
                for line in lines:
                    self._failed(line, lane.node_id, code, None)
            else:
                if self._closed:
                    return
                for line in lines:
                    self._take(line, lane.node_id, found.get((line.key.topic_id, line.key.partition)))
        del self._queues[lane]

    def _request(self, lane: Lane, lines: list[Line]) -> Deferred[Any]:
        request = lines[0].request
        message = request.message(lane.group_id, [(line.key, line.take()) for line in lines])
        if lane.node_id == self._node_id:
            return request.ask(self._coordinator, message)
        channel = self._channel(lane.node_id)
        if channel is None:
            raise ChannelError(f"node {lane.node_id} has no address")
        return channel.request(message, REQUEST_TIMEOUT_MS)

    def _take(self, line: Line, node_id: int, result: Any) -> None:
        request = line.request
        if result is None:  # a bug of the coordinator
            text = f"Failed to {request.name} for share partition{request.colon} {line.key.coordinator_key}"
            self._finish(line, request.refused(_error(request, ErrorCode.UNKNOWN_SERVER_ERROR, text)))
        elif result.error_code:
            self._failed(line, node_id, _code(result.error_code), result.error_message)
        else:
            self._finish(line, request.taken(result))

    def _failed(self, line: Line, node_id: int, code: ErrorCode, message: str | None) -> None:
        request = line.request
        if code not in PASSING:
            error = _error(request, code, message or error_text(code))
            self._finish(line, request.refused(error))
            return
        # A state that is about to be deleted is not made first.
        is_undone = request is INITIALIZE and any(call.request is DELETE for call in line.waiting)
        for call in line.asked:
            call.attempts = ATTEMPTS_MAX if is_undone else call.attempts + 1
        lost = [call for call in line.asked if call.attempts >= ATTEMPTS_MAX]
        again = [call for call in line.asked if call.attempts < ATTEMPTS_MAX]
        line.asked, line.waiting = [], again + line.waiting
        # A node that was paused, or whose answer came late, may have lost the coordinator long ago.
        rests = False
        if again and self._coordinator_of(line.key) in (NO_LEADER, node_id):
            rests = True
            self._rest(line, node_id, max([call.attempts for call in again]))
        self._refuse(lost, code, NO_SUCCESS.format(what=f"complete {request.name} RPC"))
        if not rests:
            self._go_on(line)

    def _finish(self, line: Line, value: Any) -> None:
        asked, line.asked = line.asked, []
        for call in asked:
            call.answer.resolve(value)
        self._go_on(line)

    def _refuse(self, calls: Sequence[Call], code: ErrorCode, message: str, where: str | None = None) -> None:
        for call in calls:
            call.answer.resolve(call.request.refused(_error(call.request, code, message, where)))


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


def _code(number: int) -> ErrorCode:
    """The code from another node, which may know more errors than this one."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
