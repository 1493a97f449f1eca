"""The dispatcher in front of a node under test: faults happen to requests here, and watchers see each exchange.

`InterceptedDispatcher` is a Dispatcher around the node's own. While there is no fault and no watcher, it costs one look. A
request that meets no fault takes its usual way, and a watcher is told when its reply is there.

What faults and watchers see:
- A request is what a client has sent to this node. A forwarded one is an Envelope at the controller.
- A SASL token without a header (after SaslHandshake version 0) is no request. Nobody sees it.
- A request that is held back is not there yet: if its connection closes meanwhile, it is never carried out.
- A request of a version that the node does not serve has no body that could be read. An error for it closes the
  connection, but for ApiVersions, whose error has the oldest form.
- A Fetch of a session names only what has changed. If a fault is about another topic or partition, the session is lost,
  as after an eviction, and the client's next Fetch names everything. It begins no other session while the fault is there.
"""

from __future__ import annotations

import logging
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from kafkacompat.api.handler import NoResponse
from kafkacompat.deferred import Deferred
from kafkacompat.exchanges.exchange import Exchange, Watcher, begun, observed
from kafkacompat.exchanges.levels import (
    TOPIC,
    TOPIC_ID,
    Levels,
    Names,
    common_names,
    keep,
    levels_of,
    named_in,
    names_nothing,
    put_errors,
)
from kafkacompat.ids import ZERO_UUID
from kafkacompat.partition.fetch_session import FINAL_EPOCH, INVALID_SESSION_ID
from kafkacompat.ports.dispatcher import ANONYMOUS, CloseConnection, ConnectionInfo, Pending
from kafkacompat.records.batch import CRC_POSITION, HEADER_SIZE, MAGIC_POSITION, TRANSACTIONAL_BIT, crc_of
from kafkacompat.server.node_state import NodeState
from kafkacompat.testing.faults import (
    CHANGES,
    ELEMENT_CODES,
    ENDINGS,
    Close,
    Cut,
    Decision,
    Delay,
    Duplicate,
    Error,
    Fault,
    Faults,
    Throttle,
)
from kafkacompat.wire.apis import APIS, ApiKey, request_class, response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_frame,
    response_header_bytes,
)
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
from kafkacompat.wire.messages.produce_request import ProduceRequest

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid
    from kafkacompat.ports import Clock, Timers
    from kafkacompat.ports.dispatcher import Dispatcher, Reply
    from kafkacompat.tasks import Started, Tasks
    from kafkacompat.testing.node import NodeThread
    from kafkacompat.wire.message import Message

_log = logging.getLogger(__name__)
_SIZE = Layout(">i")
_UINT32 = Layout(">I")
_NO_PRODUCER = Layout(">qhi").pack(-1, -1, -1)
_PRODUCER = slice(43, 57)
_ATTRIBUTES = 22
"""The lower byte."""
_DUPLICATES = 1 << 40
"""Ids of the connections that carry duplicates are above those of clients."""


class Topics(Protocol):
    """What a node knows of names."""

    def name_of(self, topic_id: Uuid) -> str | None: ...


class Hooks:
    """Faults and watchers of all dispatchers of a broker, or of a cluster."""

    def __init__(self) -> None:
        self.faults = Faults(self.look)
        self.is_idle = True
        """Nobody wants anything of a request."""
        self.watchers: tuple[Watcher, ...] = ()

    def watch(self, watcher: Watcher) -> None:
        self.watchers = (*self.watchers, watcher)
        self.look()

    def unwatch(self, watcher: Watcher) -> None:
        self.watchers = tuple(each for each in self.watchers if each != watcher)
        self.look()

    def look(self) -> None:
        """Somebody begins or ceases to want something."""
        self.is_idle = not self.watchers and not self.faults.active


class ReceivedCall:
    """Implements Call of faults.py for a frame."""

    def __init__(
        self, header: RequestHeader, frame: memoryview, connection: ConnectionInfo, node: int, topics: Topics
    ) -> None:
        self.header = header
        self.api = APIS[header.api_key].name
        self.version = header.api_version
        self.client_id = header.client_id
        self.principal = f"{connection.principal.type}:{connection.principal.name}"
        self.node = node
        self.listener = connection.listener_name
        self.frame = frame
        self._topics = topics
        self._request: Any = None
        self._is_decoded = False

    @property
    def request(self) -> Any:
        if not self._is_decoded:
            self._is_decoded = True
            self._request = self.decoded(self.frame)
        return self._request

    def decoded(self, frame: Any) -> Any:
        """A new message. None if the bytes are none of a known version."""
        try:
            return decode(request_class(self.header.api_key), self.version, frame, self.header.body_offset)
        except (ValueError, KeyError, WireError):
            return None

    @property
    def levels(self) -> Levels:
        return levels_of(self.header.api_key, self.version)

    def names(self) -> list[Names]:
        if self.request is None:
            return [{}]
        common = common_names(self.request)
        return [self.full(each, common) for each in named_in(self.request, self.levels.request)] or [common]

    def full(self, names: Names, common: Names) -> Names:
        """With the name behind an id, and with what holds for the whole request."""
        if TOPIC_ID in names and TOPIC not in names:
            name = self._topics.name_of(names[TOPIC_ID])
            if name is not None:
                names = {**names, TOPIC: name}
        return {**common, **names}

    @property
    def is_open(self) -> bool:
        return self.request is not None and names_nothing(self.request, self.levels.request)


class InterceptedDispatcher:
    """Implements the Dispatcher of net/ around a node's own."""

    def __init__(
        self,
        inner: Dispatcher,
        own: Dispatcher,
        hooks: Hooks,
        tasks: Tasks,
        clock: Clock,
        timers: Timers,
        node: int,
        topics: Topics,
    ) -> None:
        """`inner`: where requests go. `own`: the node's dispatcher behind it, an ApiDispatcher, or a SaslDispatcher around one.
        `node`: its id."""
        self._inner = inner
        self._hooks = hooks
        self.tasks = tasks
        self._clock = clock
        self._timers = timers
        self._node = node
        self._topics = topics
        served: Any = getattr(own, "served", own)
        self._served = served
        """Where all clients are authenticated."""
        self.table = served.table
        self._held: dict[int, Started] = {}
        """By connection: a request that has not reached the node yet. The connection waits for it."""
        self._with_tokens: set[int] = set()
        """Connections whose frames are SASL tokens until the client is authenticated."""
        self._duplicates = _DUPLICATES

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        if connection.listener_is_sasl and connection.principal == ANONYMOUS:
            if connection.connection_id in self._with_tokens:
                return self._inner.dispatch(connection, frame)
            if bytes(frame[:4]) == b"\0\x11\0\0":  # SaslHandshake version 0
                self._with_tokens.add(connection.connection_id)
        hooks = self._hooks
        if hooks.is_idle:
            return self._inner.dispatch(connection, frame)
        try:
            header = parse_request_header(frame)
        except WireError:
            header = None
        if header is None or header.api_key not in APIS:
            return self._inner.dispatch(connection, frame)
        call = ReceivedCall(header, frame, connection, self._node, self._topics)
        exchange = None
        if hooks.watchers:
            exchange = begun(header, frame, connection, self._node, self._clock.now_ms())
        if hooks.faults.active:
            decision = hooks.faults.decide(call)
            if decision:
                return self._faulted(connection, call, decision, exchange)
        if exchange is None:
            return self._inner.dispatch(connection, frame)
        return self._watched(connection, frame, exchange)

    def connection_closed(self, connection: ConnectionInfo) -> None:
        self._with_tokens.discard(connection.connection_id)
        held = self._held.pop(connection.connection_id, None)
        if held is not None:
            held.cancel()
        self._inner.connection_closed(connection)

    def _watched(
        self, connection: ConnectionInfo, frame: memoryview, exchange: Exchange
    ) -> Reply | Pending | None:
        return observed(exchange, lambda: self._inner.dispatch(connection, frame), self._tell)

    def _tell(self, exchange: Exchange) -> None:
        for watcher in self._hooks.watchers:
            try:
                watcher(exchange)
            except Exception:  # no request may fail because somebody looks at it
                _log.exception("a watcher of requests raised")

    def _faulted(
        self, connection: ConnectionInfo, call: ReceivedCall, decision: Decision, exchange: Exchange | None
    ) -> Reply | Pending | None:
        call.frame = memoryview(bytearray(call.frame))
        faulted = _Faulted(self, connection, call, decision)
        steps = faulted.carried_out()
        task = self.tasks.run(
            "a request with a fault", steps if exchange is None else self._told(steps, faulted, exchange)
        )
        if task.done:
            return task.result()
        if faulted.is_held:
            self._held[connection.connection_id] = task
        return Pending(task, faulted.blocks)

    async def _told(self, steps: Any, faulted: _Faulted, exchange: Exchange) -> Reply | None:
        try:
            reply: Reply | None = await steps
        except (CloseConnection, WireError) as end:
            exchange.faults = tuple(faulted.hit)
            exchange.ended(end)
            self._tell(exchange)
            raise
        exchange.faults = tuple(faulted.hit)
        exchange.reply = reply
        self._tell(exchange)
        return reply

    def sleep(self, ms: int) -> Deferred[None]:
        """By the clock that a test may stop."""
        slept: Deferred[None] = Deferred()
        timer = self._timers.call_after(ms, lambda: slept.resolve(None))
        slept.when_abandoned = timer.cancel
        return slept

    def let_go(self, connection_id: int) -> None:
        """A held request goes to the node now."""
        self._held.pop(connection_id, None)

    def pass_on(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        return self._inner.dispatch(connection, frame)

    def counts(self, fault: Fault, call: ReceivedCall) -> bool:
        return self._hooks.faults.counts(fault, call)

    def append_again(self, connection: ConnectionInfo, request: ProduceRequest, version: int) -> None:
        """Carry out a request for which nobody waits. It has a connection of its own: the client's has its requests in order."""
        self._duplicates += 1
        own = ConnectionInfo(
            self._duplicates,
            connection.listener_name,
            connection.client_host,
            connection.client_port,
            connection.listener_is_sasl,
            connection.client_software,
            connection.principal,
        )
        frame = request_frame(request, version, 0, None)[4:]
        answer = self._served.dispatch(own, memoryview(frame))
        if isinstance(answer, Pending):
            answer.reply.on_done(lambda _: self._served.connection_closed(own))
        else:
            self._served.connection_closed(own)


class _Faulted:
    """One request that meets faults."""

    def __init__(
        self,
        dispatcher: InterceptedDispatcher,
        connection: ConnectionInfo,
        call: ReceivedCall,
        decision: Decision,
    ) -> None:
        self._dispatcher = dispatcher
        self._connection = connection
        self._call = call
        self._decision = decision
        self.blocks = True
        """Whether the connection's next request waits for this one."""
        self.is_held = False
        """It has not reached the node."""
        self.hit = [str(each.rule) for each in decision.hits]

    async def carried_out(self) -> Reply | None:
        """The reply. Raises CloseConnection, or what the node raises."""
        effects = [each.rule.effect for each in self._decision.hits]
        delays = [each for each in effects if isinstance(each, Delay)]
        await self._sleep(sum(each.ms for each in delays if not each.reply), holds=True)
        reply = await self._answered()
        for fault in self._decision.late:
            reply = self._looked_at(fault, reply)
        throttle_ms = sum(each.ms for each in effects if isinstance(each, Throttle))
        if throttle_ms:
            reply = self._throttled(reply, throttle_ms)
        await self._sleep(sum(each.ms for each in delays if each.reply), holds=False)
        cut = next((each for each in effects if isinstance(each, Cut)), None)
        if cut is not None:
            raise CloseConnection(self._reason(), _beginning(reply, cut.at))
        if any(isinstance(each, Close) for each in effects):
            raise CloseConnection(self._reason())
        return reply

    async def _sleep(self, ms: int, holds: bool) -> None:
        if ms:
            self.is_held = holds
            await self._dispatcher.sleep(ms)
            if holds:
                self.is_held = False
                self._dispatcher.let_go(self._connection.connection_id)

    def _reason(self) -> str:
        return "a fault: " + ", ".join(self.hit)

    async def _answered(self) -> Reply | None:
        """What the node answers, or a fault in its place."""
        effects = [each.rule.effect for each in self._decision.hits]
        if self._decision.loses_session and not any(isinstance(each, ENDINGS) for each in effects):
            return self._refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        copies = None
        for fault in self._decision.hits:
            effect = fault.rule.effect
            if isinstance(effect, Close) and not effect.applied:
                raise CloseConnection(self._reason())
            if isinstance(effect, Error):
                return await self._failed(fault, effect)
            if isinstance(effect, Duplicate):
                copies = self._copies(fault)
        reply = await self._passed(self._without_session())
        if copies is not None:
            self._dispatcher.append_again(self._connection, copies, self._call.version)
        return reply

    def _without_session(self) -> memoryview:
        """The request as it is, or as one that begins no session."""
        call = self._call
        if not self._decision.begins_no_session:
            return call.frame
        request = call.decoded(call.frame)
        request.session_epoch = FINAL_EPOCH
        return self._frame_of(request)

    async def _passed(self, frame: memoryview) -> Reply | None:
        answer = self._dispatcher.pass_on(self._connection, frame)
        if isinstance(answer, Pending):
            self.blocks = answer.blocks
            return await answer.reply
        return answer

    # Errors.

    async def _failed(self, fault: Fault, effect: Error) -> Reply | None:
        call, request, code = self._call, self._call.request, effect.code
        selector = fault.rule.selector
        if request is None:
            return self._refused(code)
        levels = call.levels
        kinds = {each.kind for each in (*levels.request, *levels.response)}
        if levels.error_level({}) is None or (
            not selector.kinds.keys() & kinds and not self._belongs_to_elements(code)
        ):
            if effect.applied:
                await self._passed(call.frame)
            return self._refused(code)
        common = common_names(request)

        def is_meant(names: Names) -> bool:
            return selector.covers(call.full(names, common))

        failed = [names for names in named_in(request, levels.request) if is_meant(names)]
        if (call.api in CHANGES or call.api == "Fetch") and not effect.applied:
            rest = call.decoded(call.frame)
            if call.api == "Fetch":  # the error comes at once, and a session would not have what has failed
                rest.max_wait_ms = rest.min_bytes = 0
                rest.session_id, rest.session_epoch = INVALID_SESSION_ID, FINAL_EPOCH
            if not keep(rest, levels.request, lambda names: not is_meant(names)):
                if getattr(request, "acks", None) == 0:
                    raise CloseConnection(self._reason())
                response = response_class(call.header.api_key)()
                put_errors(response, call.header.api_key, levels, failed, code, selector.kinds)
                return self._encoded(response)
            reply = await self._passed(self._frame_of(rest))
        else:
            reply = await self._passed(call.frame)
        if reply is None:  # a client that wants no reply learns of errors in this way
            raise CloseConnection(self._reason())
        response = self._decoded(reply)
        if not failed:
            failed = [
                names for names in named_in(response, levels.answered(selector.kinds)) if is_meant(names)
            ]
        put_errors(response, call.header.api_key, levels, failed, code, selector.kinds)
        return self._encoded(response)

    def _belongs_to_elements(self, code: ErrorCode) -> bool:
        """Whether an error that is meant for the whole request stands at its elements."""
        response = self._error_response(code)
        if isinstance(response, NoResponse):
            return False
        has_place = bool(getattr(response, "error_code", 0))
        is_at_elements = any(True for _ in named_in(response, self._call.levels.response))
        return code in ELEMENT_CODES if has_place else not is_at_elements

    def _error_response(self, code: ErrorCode) -> Message | NoResponse:
        call = self._call
        handler = self._dispatcher.table.load(call.header.api_key)
        made: Message | NoResponse = handler.error_response(call.request, code, call.version)
        return made

    def _refused(self, code: ErrorCode) -> Reply | None:
        """The response of the whole request with an error, as the node itself would refuse it."""
        call = self._call
        if call.request is None or not self._dispatcher.table.serves(call.header.api_key, call.version):
            if call.header.api_key != ApiKey.API_VERSIONS:
                raise CloseConnection(self._reason())
            return self._encoded(ApiVersionsResponse(error_code=code), version=0)
        response = self._error_response(code)
        if isinstance(response, NoResponse):
            raise CloseConnection(self._reason())
        return self._encoded(response)

    # Changed replies.

    def _looked_at(self, fault: Fault, reply: Reply | None) -> Reply | None:
        """The reply with what a fault does to it that had to see it first."""
        if reply is None:
            return None
        call, effect = self._call, fault.rule.effect
        response = self._decoded(reply)
        levels = call.levels
        common = common_names(call.request)
        selector = fault.rule.selector
        covers = selector.covers
        if isinstance(effect, Error):
            failed = [each for each in named_in(response, levels.response) if covers(call.full(each, common))]
            if not failed or not self._dispatcher.counts(fault, call):
                return reply
            put_errors(response, call.header.api_key, levels, failed, effect.code, selector.kinds)
        else:
            damaged = [
                partition
                for topic in response.responses
                for partition in topic.partitions
                if partition.records is not None
                and len(partition.records) >= HEADER_SIZE
                and covers(call.full(_partition_names(topic, partition), common))
            ]
            if not damaged or not self._dispatcher.counts(fault, call):
                return reply
            for partition in damaged:
                partition.records = _with_wrong_crc(partition.records)
        self.hit.append(str(fault.rule))
        return self._encoded(response)

    def _throttled(self, reply: Reply | None, throttle_ms: int) -> Reply | None:
        if self._connection.on_throttled is not None:
            self._connection.on_throttled(throttle_ms)
        if reply is None or self._call.request is None:
            return reply
        response = self._decoded(reply)
        if not hasattr(response, "throttle_time_ms"):
            return reply
        response.throttle_time_ms = throttle_ms
        return self._encoded(response)

    def _copies(self, fault: Fault) -> ProduceRequest | None:
        """A request with the batches that are appended once more. None if there are none."""
        call = self._call
        request = call.decoded(bytes(call.frame))
        common = common_names(request)
        levels = call.levels.request
        if not keep(request, levels, lambda names: fault.rule.selector.covers(call.full(names, common))):
            return None
        for topic in request.topic_data:
            copied = []
            for partition in topic.partition_data:
                batch = bytearray(partition.records or b"")
                if not _is_batch(batch) or batch[_ATTRIBUTES] & TRANSACTIONAL_BIT:
                    continue
                batch[_PRODUCER] = _NO_PRODUCER
                _UINT32.pack_into(batch, CRC_POSITION, crc_of(batch))
                partition.records = batch
                copied.append(partition)
            topic.partition_data = copied
        request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
        if not request.topic_data:
            return None
        request.transactional_id, request.acks = None, 1
        copies: ProduceRequest = request
        return copies

    # Bytes.

    def _frame_of(self, request: Message) -> memoryview:
        header = bytes(self._call.frame[: self._call.header.body_offset])
        return memoryview(bytearray(header + encode(request, self._call.version)))

    def _decoded(self, reply: Reply) -> Any:
        call = self._call
        data = bytes_of(reply)[_SIZE.size :]
        _, position = parse_response_header(data, call.header.api_key, call.version)
        return decode(response_class(call.header.api_key), call.version, data, position)

    def _encoded(self, response: Message, version: int | None = None) -> Reply:
        key, correlation_id = self._call.header.api_key, self._call.header.correlation_id
        version = self._call.version if version is None else version
        data = response_header_bytes(key, version, correlation_id) + encode(response, version)
        return [_SIZE.pack(len(data)) + data]


def bytes_of(reply: Reply) -> bytes:
    """The whole reply. Slices of files are read."""
    return b"".join(bytes(part) if _is_buffer(part) else part.read() for part in reply)  # type: ignore[union-attr]


def _is_buffer(part: Any) -> TypeGuard[bytes | bytearray | memoryview]:
    return isinstance(part, (bytes, bytearray, memoryview))


def _beginning(reply: Reply | None, at: int | None) -> Reply | None:
    """Never all of it."""
    if reply is None:
        return None
    data = bytes_of(reply)
    return [data[: min(len(data) // 2 if at is None else at, len(data) - 1)]]


def _partition_names(topic: Any, partition: Any) -> Names:
    names: Names = {"partition": partition.partition_index}
    if getattr(topic, "topic", ""):
        names[TOPIC] = topic.topic
    if topic.topic_id != ZERO_UUID:
        names[TOPIC_ID] = topic.topic_id
    return names


def _is_batch(batch: bytearray) -> bool:
    return len(batch) >= HEADER_SIZE and batch[MAGIC_POSITION] == 2


def _with_wrong_crc(records: Any) -> bytearray:
    """The CRC of the first batch is another one. Its place differs in the two old formats."""
    damaged = bytearray(records)
    damaged[CRC_POSITION if damaged[MAGIC_POSITION] == 2 else 12] ^= 0xFF
    return damaged


def intercepted(inner: Dispatcher, own: Dispatcher, hooks: Hooks, node: NodeThread) -> Dispatcher:
    """Put hooks in front of a dispatcher of this node, which is about to serve. `own`: its dispatcher behind `inner`."""
    services = node.services
    return InterceptedDispatcher(
        inner,
        own,
        hooks,
        services.tasks,
        services.clock,
        services.timers,
        services.config.node_id,
        NodeState(node.server, node.config.node_id),
    )
