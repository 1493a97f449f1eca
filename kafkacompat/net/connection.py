"""One client's connection: frames in, replies out, in the order of the requests.

`turn` does the work and never waits. It is called by the poller when bytes have arrived (`readable`) or a full socket
accepts more (`writable`), and by the server's turn-taker when a pending reply is ready. A reply to a blocking request
is sent by the code that produces it. So a request needs no task, no cancel scope and no lock. One turn is bounded in
requests, bytes and time. A connection with more work goes to the end of the turn-taker's line.

Order and bounds are those of Kafka's network layer:
- A blocking Pending stops dispatch until its reply is ready. Bytes after it are received while the buffer has room,
  which also detects a client that has disconnected. After that the socket is not read, and TCP holds the client back.
- A Pending that does not block lets later requests be dispatched; their replies wait in line. At most
  REPLIES_WAITING_MAX replies wait.
- While REPLY_BYTES_MAX or more are unsent nothing more is dispatched, so a client that does not read is not served
  further.
- A frame that violates the protocol ends the connection after the replies to earlier frames.
- After a client has disconnected its complete frames are still dispatched: the last one is often a produce with
  acks=0.
"""

from __future__ import annotations

import logging
from collections import deque
from time import monotonic
from typing import Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.net.memory_pool import MemoryPool, MemoryUser
from kafkacompat.net.output_queue import ByteSocket, Flushed, OutputQueue, SliceTooShort
from kafkacompat.net.poller import READ, WRITE
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.net.stages import Stage
from kafkacompat.ports import Clock, Workers
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Dispatcher, Pending, Reply
from kafkacompat.wire.errors import WireError

TURN_FRAMES = 64
TURN_S = 0.001
"""After this time no further request of the connection is started or read before others had their turn."""
TURN_RECEIVED_BYTES = 256 * 1024
"""Bytes received from a connection that always has more, before others get their turn."""
TURN_SENT_BYTES = 1024 * 1024
SENT_AT_ONCE_BYTES = 64 * 1024
"""A longer reply waits for its connection's turn, because the code that produces it has other work."""
WARMTH_TRUSTED_MS = 100
"""How long a full socket may delay a slice before the page cache is checked again."""
UNPOOLED_BYTES = 8 * 1024
"""With queued.max.request.bytes: what a connection receives at once before its next request has memory of the pool."""
REPLIES_WAITING_MAX = 128
REPLY_BYTES_MAX = 1024 * 1024

_log = logging.getLogger(__name__)

# Looking up an enum member takes ten times as long as a module's name, and a request has a dozen such lookups.
_OPEN = Stage.OPEN
_DRAINING = Stage.DRAINING
_PEER_GONE = Stage.PEER_GONE
_ENDING = Stage.ENDING
_CLOSED = Stage.CLOSED
_EMPTY = Flushed.EMPTY
_FULL = Flushed.FULL
_COLD = Flushed.COLD
_TURN_OVER = Flushed.TURN_OVER


class Host(Protocol):
    """The parts of the server that a connection uses."""

    clock: Clock
    dispatcher: Dispatcher
    workers: Workers
    memory: MemoryPool | None
    """For requests being received. None: without a bound."""

    def take_turn_soon(self, connection: Connection) -> None:
        """Call `turn` from the loop, after earlier calls."""
        ...

    def watch(self, fd: int, connection: Connection, before: int, now: int) -> None:
        """Call `readable` whenever the socket has something to read, and `writable` whenever it accepts bytes,
        according to `now`.

        `before` and `now` are the poller's READ and WRITE; 0 for neither.
        """
        ...

    def closed(self, connection: Connection) -> None: ...


def _ignored(reply: object) -> None:
    """A reply to a connection that is closed."""


class Connection:
    __slots__ = (
        "_buffer",
        "_fd",
        "_full",
        "_held_bytes",
        "_host",
        "_memory",
        "_muted",
        "_on_reply",
        "_output",
        "_parked",
        "_replies",
        "_socket",
        "_stage",
        "_warming",
        "_watched",
        "in_line",
        "info",
        "last_active_ms",
        "muted_until_ms",
    )

    def __init__(
        self,
        sock: ByteSocket,
        info: ConnectionInfo,
        host: Host,
        max_frame_bytes: int,
        max_other_bytes: int | None = None,
    ) -> None:
        self.info = info
        self.last_active_ms = host.clock.monotonic_ms()
        self.in_line = False
        """Set and cleared by the turn-taker."""
        self._socket = sock
        self._host = host
        self._memory = None if host.memory is None else MemoryUser(host.memory, self._turn_soon)
        self._buffer = ReceiveBuffer(max_frame_bytes, max_other_bytes)
        self._output = OutputQueue(sock)
        self._replies: deque[Reply | Deferred[Reply | None]] = deque()
        """In request order: pending replies, and replies that wait behind them."""
        self._held_bytes = 0
        self._parked: Deferred[Reply | None] | None = None
        """The reply of a blocking request while it is pending."""
        self._muted = False
        """The throttle time of a quota is not over: no request is dispatched."""
        self.muted_until_ms = 0
        self._full = False
        """The socket accepts nothing. The poller calls `writable` when it does again."""
        self._warming = False
        """A worker is loading the next bytes to send into the page cache."""
        self._fd = -1
        self._watched = 0
        """The events the poller waits for: READ, WRITE or both."""
        self._stage = _OPEN
        self._on_reply = self._reply_done

    @property
    def closed(self) -> bool:
        return self._stage is _CLOSED

    @property
    def requests_in_flight(self) -> int:
        """Replies that are pending or wait behind one. Those being sent are not counted. A muted connection counts as one."""
        return len(self._replies) + self._muted

    @property
    def unsent_bytes(self) -> int:
        return self._output.queued_bytes + self._held_bytes

    def start(self) -> None:
        """Begin to read. Raises OSError if the system cannot add a socket to the set."""
        self._fd = self._socket.fileno()
        self._host.watch(self._fd, self, 0, READ)
        self._watched = READ

    def readable(self) -> None:
        """Receive bytes, up to a bound, and handle them. Never waits, never raises."""
        receive_into = self._socket.recv_into
        taken = 0
        memory = self._memory
        if memory is not None and not self._may_read():  # others may have taken the memory
            self._watch(self._watched & ~READ)
            return
        now_s = self.info.read_s = monotonic()
        until_s = now_s + TURN_S
        try:
            while taken < TURN_RECEIVED_BYTES and self._watched & READ:
                room = self._buffer.room(self._must_hold())
                if room is None:
                    break
                if memory is not None and not memory.held_bytes:
                    room = room[:UNPOOLED_BYTES]
                received = receive_into(room)
                taken += received
                if received:
                    self._buffer.received(received)
                else:
                    self._stage = _PEER_GONE
                self.turn(until_s)
                if received < len(room) or monotonic() >= until_s:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._log_end(error)
            self.close()

    def writable(self) -> None:
        """Send what a full socket has delayed, up to a bound. Never waits, never raises."""
        if self._full:
            self._full = False
            if self._host.clock.monotonic_ms() - self.last_active_ms >= WARMTH_TRUSTED_MS:
                self._output.forget_warmth()
            self.turn()

    def limit_frames(self, max_bytes: int, max_other_bytes: int | None = None) -> None:
        """Set the bounds of later frames, as in ReceiveBuffer."""
        self._buffer.limit(max_bytes, max_other_bytes)

    def mute(self, until_ms: int) -> None:
        """Dispatch no further request until this time, and `unmute` is called. Responses are sent meanwhile."""
        self._muted = True
        self.muted_until_ms = max(self.muted_until_ms, until_ms)

    def unmute(self) -> None:
        if self._muted:
            self._muted = False
            self._host.take_turn_soon(self)

    def drain(self) -> None:
        """Receive nothing more, and close when everything received is answered."""
        if self._stage is _OPEN:
            self._stage = _DRAINING
            self._muted = False
            self.turn()

    def shrink(self) -> None:
        """Free the memory of a connection that was quiet for a while."""
        if not self._replies:
            self._buffer.shrink()

    def close(self) -> None:
        """Close now. Unsent replies are lost."""
        if self._stage is _CLOSED:
            return
        self._stage = _CLOSED
        if self._memory is not None:
            self._memory.close()
        self._full = False
        self._watch(0)
        self._socket.close()
        self._output.clear()
        self._replies.clear()
        self._host.closed(self)
        try:
            self._host.dispatcher.connection_closed(self.info)
        except Exception:  # must not end the task that closes a connection
            _log.exception("after closing %s: an error of the broker's own", self.info)
        # What refers to the connection from within would keep its memory until the garbage collector comes.
        self._on_reply = _ignored
        self.info.on_throttled = self.info.on_authentication = self.info.throttling = None

    def turn(self, until_s: float | None = None) -> None:
        """Do what can be done now: release ready replies, dispatch frames, send. Never waits, never raises.

        `until_s`: the end of the larger turn that includes this one.
        """
        if self._stage is _CLOSED:
            return
        try:
            self.last_active_ms = self._host.clock.monotonic_ms()
            if self._replies:
                self._release_replies()
            more = self._dispatch_frames(monotonic() + TURN_S if until_s is None else until_s)
            if self._output.queued_bytes and not self._full and not self._warming:
                timings = self.info.timings
                if timings is not None:
                    timings.sending()
                more = self._flush() or more
                if timings is not None and not self._output.queued_bytes:
                    timings.sent(len(self._replies))
                # Sending may have gone below the bound that had stopped dispatch.
                more = more or (self._buffer.has_frame() and self._may_dispatch())
        except Exception:
            _log.exception("closing %s: an error of the broker's own", self.info)
            self.close()
            return
        if self.closed:
            return
        if self._stage is not _OPEN and self._is_over():
            self.close()
        elif more:
            self._host.take_turn_soon(self)
        if not self.closed:
            wanted = (READ if self._may_read() else 0) | (WRITE if self._full else 0)
            if wanted != self._watched:
                self._watch(wanted)

    def _dispatch_frames(self, until_s: float) -> bool:
        """Dispatch complete frames, at least one. Returns True if the turn ended before the frames did."""
        buffer, info, dispatch = self._buffer, self.info, self._host.dispatcher.dispatch
        for _ in range(TURN_FRAMES):
            if not self._may_dispatch():
                return False
            try:
                frame = buffer.next_frame()
                if frame is None:
                    return False
                if self._memory is not None:
                    self._memory.release()
                answer = dispatch(info, frame)
                if isinstance(answer, Pending):
                    pending = answer
                    if pending.reply.done:
                        answer = pending.reply.result()
                    else:
                        self._await_reply(pending)
                        answer = None
            except (WireError, CloseConnection) as error:
                self._end(error)
                return False
            if answer is not None:
                self._add_reply(answer)
            if monotonic() >= until_s:
                break
        return self._may_dispatch() and buffer.has_frame()

    def _await_reply(self, pending: Pending) -> None:
        self._replies.append(pending.reply)
        if pending.blocks:
            self._parked = pending.reply
        pending.reply.on_done(self._on_reply)

    def _add_reply(self, reply: Reply) -> None:
        if self._replies:
            self._replies.append(reply)
            self._held_bytes += sum(map(len, reply))
        else:
            self._output.add(reply)

    def _release_replies(self) -> None:
        """Move replies whose turn it is to the output."""
        replies = self._replies
        if self._parked is not None and self._parked.done:
            self._parked = None
        while replies:
            first = replies[0]
            if isinstance(first, Deferred):
                if not first.done:
                    return
                try:
                    reply = first.result()
                except (WireError, CloseConnection) as error:
                    replies.clear()
                    self._held_bytes = 0
                    self._end(error)
                    return
            else:
                reply = first
                self._held_bytes -= sum(map(len, reply))
            if reply is not None:
                self._output.add(reply)
            replies.popleft()  # last, so that the next turn meets an error in `_send_parked` again

    def _flush(self) -> bool:
        """Send. Returns True if the turn's budget has ended it. Arranges a continuation for any other stop."""
        try:
            result = self._output.flush(TURN_SENT_BYTES)
        except (OSError, SliceTooShort) as error:
            if isinstance(error, ConnectionError):
                self._log_end(error)
            else:
                _log.error("closing %s: a reply cannot be sent: %s", self.info, error)
            self.close()
            return False
        if result is _FULL:
            self._full = True
        elif result is _COLD:
            self._warming = True
            self._output.warm_next(self._host.workers).on_done(self._warmed)
        return result is _TURN_OVER

    def _warmed(self, done: Deferred[None]) -> None:
        self._warming = False
        if self.closed:
            return
        try:
            done.result()
        except Exception:
            _log.exception("closing %s: what is sent next cannot be read", self.info)
            self.close()
            return
        self._host.take_turn_soon(self)

    def _reply_done(self, reply: Deferred[Reply | None]) -> None:
        if self._stage is _CLOSED or (reply is self._parked and self._send_parked()):
            return
        self._host.take_turn_soon(self)

    def _send_parked(self) -> bool:
        """Send the reply that later ones wait for, within the turn of the code that produces it. Returns True if
        nothing is left to do.

        That code's own reply comes later and wakes a client, which may run on the same core. Nothing else is done
        here, because the code is in the middle of a request. The next turn meets any error again.
        """
        if self._full or self._warming:
            return False
        output = self._output
        timings = self.info.timings
        try:
            self._release_replies()
            if timings is not None:
                timings.sending()
            if output.queued_bytes > SENT_AT_ONCE_BYTES or output.flush(TURN_SENT_BYTES) is not _EMPTY:
                return False
            if timings is not None:
                timings.sent(len(self._replies))
        except Exception:
            return False
        if self._buffer or self._stage is not _OPEN or self._watched != READ:
            return False
        self.last_active_ms = self._host.clock.monotonic_ms()
        return True

    def _may_dispatch(self) -> bool:
        return (
            self._parked is None
            and not self._muted
            and self._stage is not _ENDING
            and len(self._replies) < REPLIES_WAITING_MAX
            and self._output.queued_bytes + self._held_bytes < REPLY_BYTES_MAX
        )

    def _may_read(self) -> bool:
        may = self._stage is _OPEN and (self._buffer.has_space() or not self._must_hold())
        return may if self._memory is None else may and self._may_take_memory(self._memory)

    def _may_take_memory(self, memory: MemoryUser) -> bool:
        """As in Kafka, the next request is received when all earlier ones are answered. So a request that holds memory
        waits for nothing but its own bytes, and the memory returns."""
        if memory.held_bytes:
            return True
        if self._replies or self._must_hold() or not self._may_dispatch():
            return False
        return memory.take(self._buffer.announced_bytes())

    def _turn_soon(self) -> None:
        self._host.take_turn_soon(self)

    def _must_hold(self) -> bool:
        return self._parked is not None or self._muted or self._buffer.has_frame()

    def _is_over(self) -> bool:
        """Whether nothing is left to do in an ending stage."""
        if self._stage is _PEER_GONE:
            return not self._buffer.has_frame()
        if self._replies or self._output.queued_bytes:
            return False
        return self._stage is _ENDING or not self._buffer.has_frame()

    def _watch(self, wanted: int) -> None:
        """Wait until the socket is ready for `wanted`. Without READ, TCP holds the client back."""
        before, self._watched = self._watched, wanted
        if wanted == before:
            return
        try:
            self._host.watch(self._fd, self, before, wanted)
        except OSError as error:  # no memory to put it back into the set
            self._watched = 0
            _log.error("closing %s: %s", self.info, error)
            self.close()

    def _end(self, error: WireError | CloseConnection) -> None:
        """Close after the ready replies, and after the error's own reply."""
        self._log_end(error)
        self._stage = _ENDING
        if isinstance(error, CloseConnection) and error.last_reply is not None:
            self._add_reply(error.last_reply)

    def _log_end(self, error: Exception) -> None:
        _log.info("closing %s: %s", self.info, error)
