"""The replies of one connection, in the order of its requests, from the handler to the socket.

- A reply that is ready goes to the output, unless an earlier one is pending: then it waits in line. One that nothing comes
  before is sent at once, and only what the socket does not take goes to the output.
- The reply of a blocking request is `parked` while it is pending. The connection dispatches nothing meanwhile.
- Sending stops when the socket is full, when a file must be read from the disk first, or when the turn's bound is
  reached.
"""

from __future__ import annotations

from collections import deque

from kafkacompat.deferred import Deferred
from kafkacompat.net.listener_meter import ListenerMeter
from kafkacompat.net.output_queue import Flushed, OutputQueue
from kafkacompat.ports import FileSlice, Workers
from kafkacompat.ports.dispatcher import ConnectionInfo, ListenerCounts, Pending, Reply, ReplyPart

TURN_SENT_BYTES = 1024 * 1024 + 16 * 1024
"""1 MiB of records, which clients ask for by default, and the bytes around them (see PART_BYTES)."""
SENT_AT_ONCE_BYTES = 64 * 1024
"""A longer reply waits for its connection's turn, because the code that produces it has other work."""
REPLIES_WAITING_MAX = 128
REPLY_BYTES_MAX = 1024 * 1024

# Looking up an enum member takes ten times as long as a module's name.
_EMPTY = Flushed.EMPTY
_FULL = Flushed.FULL


class Replies:
    __slots__ = ("_info", "counts", "held_bytes", "is_full", "is_warming", "output", "parked", "waiting")

    def __init__(self, output: OutputQueue, info: ConnectionInfo) -> None:
        self.output = output
        self._info = info
        self.counts: ListenerCounts = info.meter or ListenerMeter(0)
        """What the listener counts."""
        self.waiting: deque[Reply | Deferred[Reply | None]] = deque()
        """In request order: pending replies, and replies that wait behind them."""
        self.held_bytes = 0
        """Of the replies that wait behind pending ones."""
        self.parked: Deferred[Reply | None] | None = None
        """The reply of a blocking request while it is pending."""
        self.is_full = False
        """The socket accepts nothing. The poller tells when it does again."""
        self.is_warming = False
        """A worker is loading the next bytes to send into the page cache."""

    @property
    def unsent_bytes(self) -> int:
        return self.output.queued_bytes + self.held_bytes

    def has_room(self) -> bool:
        """Whether another request may be dispatched."""
        return (
            self.parked is None
            and len(self.waiting) < REPLIES_WAITING_MAX
            and self.output.queued_bytes + self.held_bytes < REPLY_BYTES_MAX
        )

    def add(self, reply: Reply) -> None:
        if self.waiting:
            self.waiting.append(reply)
            self.held_bytes += sum(map(len, reply))
        else:
            self._put_out(reply)

    def send_alone(self, reply: Reply) -> bool:
        """Send a reply that nothing comes before. False, without any effect, if its parts are not one piece (see
        OutputQueue.joined), or if times are taken. Raises OSError."""
        output = self.output
        if self.waiting or output.queued_bytes or self._info.timings is not None:
            return False
        part: ReplyPart | None = reply[0]
        if len(reply) > 1 or type(part) is FileSlice:
            part = output.joined(reply)
            if part is None:
                return False
        size, counts = len(part), self.counts  # type: ignore[arg-type]  # every reply has a part
        counts.responses += 1
        if size > counts.largest_response:
            counts.largest_response = size
        counts.sent_bytes += output.send_alone(part)  # type: ignore[arg-type]  # of the type above
        return True

    def _put_out(self, reply: Reply) -> None:
        size, counts = self.output.add(reply), self.counts
        counts.responses += 1
        if size > counts.largest_response:
            counts.largest_response = size

    def add_pending(self, pending: Pending) -> None:
        self.waiting.append(pending.reply)
        if pending.blocks:
            self.parked = pending.reply

    def release(self) -> None:
        """Move replies whose turn it is to the output. Raises the exception of a reply that has failed, each time until
        the line is dropped."""
        waiting = self.waiting
        if self.parked is not None and self.parked.done:
            self.parked = None
        while waiting:
            first = waiting[0]
            if isinstance(first, Deferred):
                if not first.done:
                    return
                reply = first.result()
            else:
                reply = first
                self.held_bytes -= sum(map(len, reply))
            if reply is not None:
                self._put_out(reply)
            waiting.popleft()

    def drop_waiting(self) -> None:
        self.waiting.clear()
        self.held_bytes = 0

    def clear(self) -> None:
        self.output.clear()
        self.drop_waiting()

    def send(self) -> Flushed:
        """Send up to a bound. After COLD call `warm_next`. Raises OSError, SliceTooShort."""
        timings = self._info.timings
        if timings is not None:
            timings.sending()
        result = self._flush()
        if timings is not None and not self.output.queued_bytes:
            timings.sent(len(self.waiting))
        if result is _FULL:
            self.is_full = True
        return result

    def _flush(self) -> Flushed:
        output = self.output
        before = output.queued_bytes
        try:
            return output.flush(TURN_SENT_BYTES)
        finally:
            self.counts.sent_bytes += before - output.queued_bytes

    def warm_next(self, workers: Workers) -> Deferred[None]:
        """Have a worker load the next bytes to send. Nothing is sent until `is_warming` is cleared."""
        self.is_warming = True
        return self.output.warm_next(workers)

    def send_parked(self) -> bool:
        """Send the reply that later ones wait for, within the turn of the code that produces it. Returns True if all
        replies are sent.

        That code's own reply comes later and wakes a client, which may run on the same core. Nothing else is done
        here, because the code is in the middle of a request. The connection's next turn meets any error again.
        """
        if self.is_full or self.is_warming:
            return False
        output, timings = self.output, self._info.timings
        try:
            if self._send_parked_alone():
                return not output.queued_bytes
            self.release()
            if timings is not None:
                timings.sending()
            if output.queued_bytes > SENT_AT_ONCE_BYTES or self._flush() is not _EMPTY:
                return False
            if timings is not None:
                timings.sent(len(self.waiting))
        except Exception as error:
            error.__traceback__ = None  # it leads to this connection, and to itself
            return False
        return True

    def _send_parked_alone(self) -> bool:
        """As `send_alone`, for the parked reply if no other one waits. Raises its exception too. The line is as before unless
        it is sent."""
        waiting, parked = self.waiting, self.parked
        if parked is None or len(waiting) != 1 or waiting[0] is not parked:
            return False
        reply = parked.result()
        if reply is None or (len(reply) == 1 and len(reply[0]) > SENT_AT_ONCE_BYTES):
            return False
        waiting.clear()
        is_sent = False
        try:
            is_sent = self.send_alone(reply)
        finally:
            if is_sent:
                self.parked = None
            else:
                waiting.append(parked)
        return is_sent
