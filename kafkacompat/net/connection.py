"""One client's connection: frames in, replies out (replies.py), in the order of the requests.

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

import enum
import logging
from time import monotonic
from typing import Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.net.memory_pool import MemoryPool, MemoryUser
from kafkacompat.net.output_queue import ByteSocket, Flushed, OutputQueue, SliceTooShort
from kafkacompat.net.poller import READ, WRITE
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.net.replies import Replies
from kafkacompat.net.send_buffer import enlarged
from kafkacompat.net.settings import NetworkSettings
from kafkacompat.ports import Clock, Workers
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Dispatcher, Pending, Reply
from kafkacompat.wire.errors import WireError


class Stage(enum.Enum):
    OPEN = "reads and dispatches"
    DRAINING = "reads no more; whole frames received are still served"
    PEER_GONE = "the client closed; whole frames received are still dispatched"
    ENDING = "dispatches no more; replies to earlier requests are still sent"
    CLOSED = "the socket is closed"


TURN_FRAMES = range(64)
TURN_S = 0.001
"""After this time no further request of the connection is started or read before others had their turn."""
TURN_RECEIVED_BYTES = 256 * 1024
"""Bytes received from a connection that always has more, before others get their turn."""
WARMTH_TRUSTED_MS = 100
"""How long a full socket may delay a slice before the page cache is checked again."""
UNPOOLED_BYTES = 8 * 1024
"""With queued.max.request.bytes: what a connection receives at once before its next request has memory of the pool."""

_log = logging.getLogger(__name__)

# Looking up an enum member takes ten times as long as a module's name, and a request has a dozen such lookups.
_OPEN = Stage.OPEN
_DRAINING = Stage.DRAINING
_PEER_GONE = Stage.PEER_GONE
_ENDING = Stage.ENDING
_CLOSED = Stage.CLOSED
_COLD = Flushed.COLD
_FULL = Flushed.FULL
_TURN_OVER = Flushed.TURN_OVER


class Host(Protocol):
    """The parts of the server that a connection uses."""

    clock: Clock
    dispatcher: Dispatcher
    workers: Workers
    memory: MemoryPool | None
    """For requests being received. None: without a bound."""

    @property
    def settings(self) -> NetworkSettings: ...

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
        "_host",
        "_memory",
        "_muted",
        "_on_reply",
        "_replies",
        "_rests",
        "_socket",
        "_stage",
        "_was_full",
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
        output: OutputQueue | None = None,
    ) -> None:
        """`max_frame_bytes` and `max_other_bytes` are as in ReceiveBuffer. `output` is for a socket that encrypts."""
        self.info = info
        self.last_active_ms = host.clock.monotonic_ms()
        self.in_line = False
        """Set and cleared by the turn-taker."""
        self._socket = sock
        self._host = host
        self._memory = None if host.memory is None else MemoryUser(host.memory, self._turn_soon)
        self._buffer = ReceiveBuffer(max_frame_bytes, max_other_bytes)
        self._replies = Replies(output or OutputQueue(sock), info)
        self._muted = False
        """The throttle time of a quota is not over: no request is dispatched."""
        self.muted_until_ms = 0
        self._fd = -1
        self._was_full = False
        """The socket was full once: see send_buffer."""
        self._watched = 0
        """The events the poller waits for: READ, WRITE or both."""
        self._stage = _OPEN
        self._rests = False
        """Nothing is owed or unsent, nothing is received but the begin of a request, and nothing holds it back."""
        self._on_reply = self._reply_done

    @property
    def closed(self) -> bool:
        return self._stage is _CLOSED

    @property
    def requests_in_flight(self) -> int:
        """Replies that are pending or wait behind one. Those being sent are not counted."""
        return len(self._replies.waiting)

    @property
    def unsent_bytes(self) -> int:
        return self._replies.unsent_bytes

    def start(self) -> None:
        """Begin to read. Raises OSError if the system cannot add a socket to the set."""
        self._fd = self._socket.fileno()
        self._host.watch(self._fd, self, 0, READ)
        self._watched = READ

    def readable(self) -> None:
        """Receive bytes, up to a bound, and handle them. Never waits, never raises."""
        if self._rests and self._answer_alone():
            return
        memory = self._memory
        if memory is not None and not self._may_read():  # others may have taken the memory
            self._watch(self._watched & ~READ)
            return
        receive_into, buffer, replies = self._socket.recv_into, self._buffer, self._replies
        now_s = self.info.read_s = monotonic()
        until_s = now_s + TURN_S
        taken = 0
        try:
            while self._watched & READ:
                room = buffer.room(replies.parked is not None or self._muted)
                if room is None:
                    break
                if memory is not None and not memory.held_bytes:
                    room = room[:UNPOOLED_BYTES]
                received = receive_into(room)
                taken += received
                buffer.end += received
                if not received:
                    self._stage = _PEER_GONE
                self.turn(until_s)
                if received < len(room) or taken >= TURN_RECEIVED_BYTES or monotonic() >= until_s:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._log_end(error)
            self.close()
        except MemoryError:  # for a larger buffer
            self._close_for_own_error()
        replies.counts.received_bytes += taken

    def _answer_alone(self) -> bool:
        """Receive while it rests. If one whole request is there then, as mostly, it is answered with fewer looks than a turn
        takes. False: more may be there."""
        buffer, info, replies, host = self._buffer, self.info, self._replies, self._host
        now_s = info.read_s = monotonic()
        waiting = 0
        try:
            if buffer.is_begun:
                waiting = buffer.end
                frame = buffer.receive_rest(self._socket.recv_into)
            else:
                frame = buffer.receive_frame(self._socket.recv_into)
        except BlockingIOError:
            return True
        except OSError as error:
            self._log_end(error)
            self.close()
            return True
        except MemoryError:
            self._close_for_own_error()
            return True
        counts = replies.counts
        received = buffer.end - waiting
        counts.received_bytes += received
        if frame is None and buffer.is_begun:  # a large request often comes in two pieces
            self.last_active_ms = host.clock.monotonic_ms()
            return True
        self._rests = False
        if frame is None:
            is_all = buffer.has_space()
            if not received:
                self._stage = _PEER_GONE
            self.turn(now_s + TURN_S)
            return is_all
        counts.requests += 1
        self.last_active_ms = host.clock.monotonic_ms()
        try:
            answer = host.dispatcher.dispatch(info, frame)
            if isinstance(answer, Pending):
                answer = self._ready_or_pending(answer)
        except (WireError, CloseConnection) as error:
            self._end(error)
        except Exception:
            self._close_for_own_error()
        else:
            try:
                if answer is not None and not replies.send_alone(answer):
                    replies.add(answer)
            except OSError as error:
                self._close_unsent(error)
            except Exception:  # no memory to join its parts
                self._close_for_own_error()
        if self._stage is _OPEN and not replies.output.queued_bytes and not self._muted:
            if not replies.waiting:
                self._rests = True
                return True
            if buffer.has_space():  # the next request may come before the reply
                return True
        self.turn(now_s + TURN_S)
        return True

    def writable(self) -> None:
        """Send what a full socket has delayed, up to a bound. Never waits, never raises."""
        if self._replies.is_full:
            self._replies.is_full = False
            if self._host.clock.monotonic_ms() - self.last_active_ms >= WARMTH_TRUSTED_MS:
                self._replies.output.forget_warmth()
            self.turn()

    def limit_frames(self, max_bytes: int, max_other_bytes: int | None = None) -> None:
        """Set the bounds of later frames, as in ReceiveBuffer."""
        self._buffer.limit(max_bytes, max_other_bytes)

    def mute(self, until_ms: int) -> None:
        """Dispatch no further request until this time, and `unmute` is called. Responses are sent meanwhile."""
        self._muted = True
        self._rests = False
        self.muted_until_ms = max(self.muted_until_ms, until_ms)

    def unmute(self) -> None:
        if self._muted:
            self._muted = False
            self._host.take_turn_soon(self)

    def drain(self) -> None:
        """Receive nothing more, and close when everything received is answered."""
        if self._stage is _OPEN:
            self._stage = _DRAINING
            self._muted = self._rests = False
            self.turn()

    def shrink(self) -> None:
        """Free the memory of a connection that was quiet for a while."""
        if not self._replies.waiting:
            self._buffer.shrink()

    def close(self) -> None:
        """Close now. Unsent replies are lost."""
        if self._stage is _CLOSED:
            return
        self._stage = _CLOSED
        self._rests = False
        if self._memory is not None:
            self._memory.close()
        self._replies.is_full = False
        self._watch(0)
        self._socket.close()
        self._replies.clear()
        self._buffer.forget()  # a throttle may know the connection for a while
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
        replies, buffer = self._replies, self._buffer
        self._rests = buffer.is_begun = False
        try:
            self.last_active_ms = self._host.clock.monotonic_ms()
            if replies.waiting:
                self._release_replies()
            more = buffer.start != buffer.end and self._dispatch_frames(
                monotonic() + TURN_S if until_s is None else until_s
            )
            if replies.output.queued_bytes and not replies.is_full and not replies.is_warming:
                more = self._send() or more
                # Sending may have gone below the bound that had stopped dispatch.
                more = more or (buffer.has_frame() and self._may_dispatch())
        except Exception:
            self._close_for_own_error()
            return
        if (
            buffer.start == buffer.end
            and self._watched == READ
            and not replies.waiting
            and not replies.output.queued_bytes
            and self._stage is _OPEN
            and not self._muted
            and self._memory is None
        ):
            self._rests = True  # as mostly
            return
        if self._stage is not _OPEN and self._has_ended():
            return
        if more:
            self._host.take_turn_soon(self)
        wanted = (READ if self._may_read() else 0) | (WRITE if replies.is_full else 0)
        if wanted != self._watched:
            self._watch(wanted)

    def _dispatch_frames(self, until_s: float) -> bool:
        """Dispatch complete frames, at least one. Returns True if the turn ended before the frames did."""
        buffer, replies, memory = self._buffer, self._replies, self._memory
        output = replies.output
        for _ in TURN_FRAMES:
            if (
                replies.waiting or output.queued_bytes or self._muted or self._stage is _ENDING
            ) and not self._may_dispatch():
                return False
            try:
                frame = buffer.next_frame()
                if frame is None:
                    return False
                if memory is not None:
                    memory.release()
                replies.counts.requests += 1
                answer = self._host.dispatcher.dispatch(self.info, frame)
                if isinstance(answer, Pending):
                    answer = self._ready_or_pending(answer)
            except (WireError, CloseConnection) as error:
                self._end(error)
                return False
            if buffer.start == buffer.end:
                self._send_or_add(answer)
                return False
            if answer is not None:
                replies.add(answer)
            if monotonic() >= until_s:
                break
        return buffer.has_frame() and self._may_dispatch()

    def _ready_or_pending(self, pending: Pending) -> Reply | None:
        """The reply if it is there. If not, it is put in line."""
        if pending.reply.done:
            return pending.reply.result()
        self._replies.add_pending(pending)
        pending.reply.on_done(self._on_reply)
        return None

    def _send_or_add(self, reply: Reply | None) -> None:
        try:
            if reply is not None and not self._replies.send_alone(reply):
                self._replies.add(reply)
        except OSError as error:
            self._close_unsent(error)

    def _release_replies(self) -> None:
        try:
            self._replies.release()
        except (WireError, CloseConnection) as error:
            error.__traceback__ = None  # it leads to this connection, and to itself
            self._replies.drop_waiting()
            self._end(error)

    def _send(self) -> bool:
        """Returns True if the turn's budget has ended it. Arranges a continuation for any other stop."""
        try:
            result = self._replies.send()
        except (OSError, SliceTooShort) as error:
            self._close_unsent(error)
            return False
        if result is _COLD:
            self._replies.warm_next(self._host.workers).on_done(self._warmed)
        elif result is _FULL and not self._was_full and self._host.settings.socket_send_buffer_grows:
            self._was_full = True
            if enlarged(self._socket):
                self._replies.is_full = False
                return True
        return result is _TURN_OVER

    def _close_for_own_error(self) -> None:
        """While the exception is handled."""
        _log.exception("closing %s: an error of the broker's own", self.info)
        self.close()

    def _close_unsent(self, error: OSError | SliceTooShort) -> None:
        if isinstance(error, ConnectionError):
            self._log_end(error)
        else:
            _log.error("closing %s: a reply cannot be sent: %s", self.info, error)
        self.close()

    def _warmed(self, done: Deferred[None]) -> None:
        self._replies.is_warming = False
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
        if self._stage is _CLOSED:
            return
        if reply is self._replies.parked and self._replies.send_parked() and self._is_idle():
            self.last_active_ms = self._host.clock.monotonic_ms()
            self._rests = not self._replies.waiting and not self._muted and self._memory is None
        else:
            self._host.take_turn_soon(self)

    def _is_idle(self) -> bool:
        """Whether nothing is left to do until the client sends the next request."""
        return not self._buffer and self._stage is _OPEN and self._watched == READ

    def _may_dispatch(self) -> bool:
        return not self._muted and self._stage is not _ENDING and self._replies.has_room()

    def _may_read(self) -> bool:
        may = self._stage is _OPEN and (self._buffer.has_space() or not self._must_hold())
        return may if self._memory is None else may and self._may_take_memory(self._memory)

    def _may_take_memory(self, memory: MemoryUser) -> bool:
        """As in Kafka, the next request is received when all earlier ones are answered. So a request that holds memory
        waits for nothing but its own bytes, and the memory returns."""
        if memory.held_bytes:
            return True
        if self._replies.waiting or self._must_hold() or not self._may_dispatch():
            return False
        return memory.take(self._buffer.announced_bytes())

    def _turn_soon(self) -> None:
        self._host.take_turn_soon(self)

    def _must_hold(self) -> bool:
        return self._replies.parked is not None or self._muted or self._buffer.has_frame()

    def _has_ended(self) -> bool:
        """Whether the connection is closed, which is done here if nothing is left to do."""
        if not self.closed and self._is_over():
            self.close()
        return self.closed

    def _is_over(self) -> bool:
        """Whether nothing is left to do in an ending stage."""
        if self._stage is _PEER_GONE:
            return not self._buffer.has_frame()
        if self._replies.waiting or self._replies.output.queued_bytes:
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
            self._replies.add(error.last_reply)

    def _log_end(self, error: Exception) -> None:
        _log.info("closing %s: %s", self.info, error)
