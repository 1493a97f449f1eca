"""One client's connection: frames in, replies out, in the order of the requests.

The work is done by `turn`, which never waits; whoever has news calls it: the poller when bytes came (`readable`) or a full
socket takes more (`writable`), or the server's turn-taker when a pending reply is there. A reply to a blocking request is sent
by whoever gives it. So a request costs no task, no cancel scope and no lock. What one turn may do is bounded, in requests, bytes
and time; a connection with more to do goes to the end of the turn-taker's line.

Order and bounds, as of Kafka's network layer:
- A blocking Pending stops dispatch until its reply is there; bytes behind it are taken while the buffer has room, which is
  also how a client that went away is noticed; then the socket is left alone and TCP holds the client back.
- A Pending that does not block lets later requests be dispatched; their replies wait in line. At most
  REPLIES_WAITING_MAX replies are in line.
- While REPLY_BYTES_MAX or more are unsent nothing more is dispatched, so a client that does not read stops being served.
- A frame that breaks the protocol ends the connection after the replies to those before it.
- When the client goes away the whole frames it had sent are still dispatched: a produce with acks=0 is often the last.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from time import monotonic
from typing import Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.net.output_queue import Flushed, OutputQueue, SliceTooShort
from kafkacompat.net.poller import READ, WRITE
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.net.stages import Stage
from kafkacompat.ports import Clock, Workers
from kafkacompat.ports.dispatcher import CloseConnection, ConnectionInfo, Dispatcher, Pending, Reply
from kafkacompat.wire.errors import WireError

TURN_FRAMES = 64
TURN_S = 0.001
"""After so long no further request of the connection is begun, or read, before others had their turn."""
TURN_RECEIVED_BYTES = 256 * 1024
"""What a connection whose socket never runs dry takes in before others get their turn."""
TURN_SENT_BYTES = 1024 * 1024
SENT_AT_ONCE_BYTES = 64 * 1024
"""A longer reply waits for its connection's turn: whoever gives it has other work to do."""
WARMTH_TRUSTED_MS = 100
"""How long a full socket may hold back a slice without its being asked for in the page cache again."""
REPLIES_WAITING_MAX = 128
REPLY_BYTES_MAX = 1024 * 1024

_log = logging.getLogger(__name__)

# Looking a member up in its enum takes ten times as long as a name of the module's own, and a request has a dozen looks.
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
    """What a connection needs of its server."""

    clock: Clock
    dispatcher: Dispatcher
    workers: Workers

    def take_turn_soon(self, connection: Connection) -> None:
        """Call `turn` from the loop, after those who asked before."""
        ...

    def watch(self, fd: int, connection: Connection, before: int, now: int) -> None:
        """Call `readable` whenever the socket has something to read, `writable` whenever it takes bytes, as `now` says.

        Both are the poller's READ and WRITE; 0 for neither.
        """
        ...

    def closed(self, connection: Connection) -> None: ...


class Connection:
    __slots__ = (
        "_buffer",
        "_fd",
        "_full",
        "_held_bytes",
        "_host",
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
    )

    def __init__(
        self,
        sock: socket.socket,
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
        self._buffer = ReceiveBuffer(max_frame_bytes, max_other_bytes)
        self._output = OutputQueue(sock)
        self._replies: deque[Reply | Deferred[Reply | None]] = deque()
        """In request order: pending replies and those that wait behind them."""
        self._held_bytes = 0
        self._parked: Deferred[Reply | None] | None = None
        """The reply of a blocking request, while it is not there."""
        self._full = False
        """The socket takes nothing; the poller calls `writable` when it does again."""
        self._warming = False
        """A worker reads what is to be sent next."""
        self._fd = -1
        self._watched = 0
        """What the poller waits for: READ, WRITE or both."""
        self._stage = _OPEN
        self._on_reply = self._reply_done

    @property
    def closed(self) -> bool:
        return self._stage is _CLOSED

    @property
    def requests_in_flight(self) -> int:
        """Replies that are waited for or wait behind one; those being sent are not counted."""
        return len(self._replies)

    @property
    def unsent_bytes(self) -> int:
        return self._output.queued_bytes + self._held_bytes

    def start(self) -> None:
        """Begin to read. OSError when the system has no room for one more socket in the set."""
        self._fd = self._socket.fileno()
        self._host.watch(self._fd, self, 0, READ)
        self._watched = READ

    def readable(self) -> None:
        """Take in what is there, up to a bound, and handle it. Never waits, never raises."""
        receive_into = self._socket.recv_into
        taken = 0
        until_s = monotonic() + TURN_S
        try:
            while taken < TURN_RECEIVED_BYTES and self._watched & READ:
                room = self._buffer.room(self._must_hold())
                if room is None:
                    break
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
        """Send what a full socket had held back, up to a bound. Never waits, never raises."""
        if self._full:
            self._full = False
            if self._host.clock.monotonic_ms() - self.last_active_ms >= WARMTH_TRUSTED_MS:
                self._output.forget_warmth()
            self.turn()

    def drain(self) -> None:
        """Take in nothing more; close when everything received is answered."""
        if self._stage is _OPEN:
            self._stage = _DRAINING
            self.turn()

    def shrink(self) -> None:
        """Give back the memory of a connection that has been quiet for a while."""
        if not self._replies:
            self._buffer.shrink()

    def close(self) -> None:
        """Close now. Replies not sent are lost."""
        if self._stage is _CLOSED:
            return
        self._stage = _CLOSED
        self._full = False
        self._watch(0)
        self._socket.close()
        self._output.clear()
        self._replies.clear()
        self._host.closed(self)
        try:
            self._host.dispatcher.connection_closed(self.info)
        except Exception:  # must not end whichever task closes a connection
            _log.exception("after closing %s: an error of the broker's own", self.info)

    def turn(self, until_s: float | None = None) -> None:
        """Do what can be done now: release replies that are there, dispatch frames, send. Never waits, never raises.

        `until_s`: when the turn of which this is a part is over.
        """
        if self._stage is _CLOSED:
            return
        try:
            self.last_active_ms = self._host.clock.monotonic_ms()
            if self._replies:
                self._release_replies()
            more = self._dispatch_frames(monotonic() + TURN_S if until_s is None else until_s)
            if self._output.queued_bytes and not self._full and not self._warming:
                more = self._flush() or more
                # Sending may have made room below the bound that had stopped dispatch.
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
        """Dispatch whole frames, one at least; True when the turn ended before they did."""
        buffer, info, dispatch = self._buffer, self.info, self._host.dispatcher.dispatch
        for _ in range(TURN_FRAMES):
            if not self._may_dispatch():
                return False
            try:
                frame = buffer.next_frame()
                if frame is None:
                    return False
                answer = dispatch(info, frame)
                if isinstance(answer, Pending):
                    pending = answer
                    if pending.reply.done:
                        answer = pending.reply.result()
                    else:
                        self._await_reply(pending)
                        answer = None
            except (WireError, CloseConnection) as error:
                self._log_end(error)
                self._stage = _ENDING
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
                    self._log_end(error)
                    self._stage = _ENDING
                    replies.clear()
                    self._held_bytes = 0
                    return
            else:
                reply = first
                self._held_bytes -= sum(map(len, reply))
            if reply is not None:
                self._output.add(reply)
            replies.popleft()  # last, so that a turn meets again what goes wrong in `_send_parked`

    def _flush(self) -> bool:
        """Send; True when the turn's budget ended it. Arranges for whatever else stops it."""
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
        """Send the reply that all behind it waits for, within the turn of whoever gives it; True when nothing is left to do.

        That one's own reply comes later and wakes a client, which may take this very core. Here nothing else is done: the core
        that gives the reply is in the middle of a request. Whatever goes wrong the next turn meets again.
        """
        if self._full or self._warming:
            return False
        output = self._output
        try:
            self._release_replies()
            if output.queued_bytes > SENT_AT_ONCE_BYTES or output.flush(TURN_SENT_BYTES) is not _EMPTY:
                return False
        except Exception:
            return False
        if self._buffer or self._stage is not _OPEN or self._watched != READ:
            return False
        self.last_active_ms = self._host.clock.monotonic_ms()
        return True

    def _may_dispatch(self) -> bool:
        return (
            self._parked is None
            and self._stage is not _ENDING
            and len(self._replies) < REPLIES_WAITING_MAX
            and self._output.queued_bytes + self._held_bytes < REPLY_BYTES_MAX
        )

    def _may_read(self) -> bool:
        return self._stage is _OPEN and (self._buffer.has_space() or not self._must_hold())

    def _must_hold(self) -> bool:
        return self._parked is not None or self._buffer.has_frame()

    def _is_over(self) -> bool:
        """Whether nothing is left to do in a stage that ends."""
        if self._stage is _PEER_GONE:
            return not self._buffer.has_frame()
        if self._replies or self._output.queued_bytes:
            return False
        return self._stage is _ENDING or not self._buffer.has_frame()

    def _watch(self, wanted: int) -> None:
        """Be called when the socket is ready for `wanted`; a client is held back by TCP while READ is not wanted."""
        before, self._watched = self._watched, wanted
        if wanted == before:
            return
        try:
            self._host.watch(self._fd, self, before, wanted)
        except OSError as error:  # no memory to put it back into the set
            self._watched = 0
            _log.error("closing %s: %s", self.info, error)
            self.close()

    def _log_end(self, error: Exception) -> None:
        _log.info("closing %s: %s", self.info, error)
