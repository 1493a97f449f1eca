"""The interfaces of the quorum driver: its environment, and the state machine that it calls.

Protocols and their values; nothing here acts. Roles, sockets and the meaning of records are unknown here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred
from kafkacompat.ports import Buffer, LogRead

RECORDS_A_STEP = 200
"""Values that the state machine takes in one step of the loop. One takes 15 to 40 us."""


class MetadataLogProblem(Exception):
    """The metadata log cannot be used: halt and keep the files. The message has file and reason."""


class NotLeader(Exception):
    """Only the leader of the quorum can do this, and this node is not (or no longer) the leader."""


class PeerUnsupported(Exception):
    """A transport error: the peer does not support the API, or no version of it that can express the request."""


class PeerUnavailable(Exception):
    """A transport error: the peer is unreachable, the connection was lost, or no answer came in time."""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """Committed values in log order, from a snapshot or a batch. `last_offset` is that of the batch or snapshot."""

    values: Sequence[bytes]
    last_offset: int
    epoch: int
    kraft_version: int | None = None
    """Set if a control record of this batch contains it."""
    is_snapshot: bool = False


class StateMachine(Protocol):
    """Called by the driver, always between two of its steps, so that any of these methods may propose."""

    def load_snapshot(self, batch: LoadedBatch) -> None:
        """Replace the state by this one and the parts that follow. `last_offset` is -1 for the 0-0 snapshot, which has
        no values."""
        ...

    def apply_part(self, values: Sequence[bytes]) -> None:
        """More values of the snapshot, or the first values of a batch whose last ones come with `apply`."""
        ...

    def apply(self, batch: LoadedBatch) -> None:
        """One committed batch, in log order, once each. Batches that this node proposed in its present leadership are
        not passed.

        Control batches are passed too, without values.
        """
        ...

    def caught_up(self) -> None:
        """Publish. Called after each run of load_snapshot and apply."""
        ...

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        """-1 means that no leader is known. Every uncommitted proposal of a former leadership was `lost` before."""
        ...

    def became_active(self, epoch: int) -> None:
        """This node leads `epoch`, and everything in the log at its start is committed and applied: it may propose."""
        ...


class NetworkChannel(Protocol):
    """Channels to other members. All calls are in the loop's thread."""

    on_refused: Callable[[int], None]
    """Set by the driver. Called with a node id when the node's connection was closed and a new one was refused."""

    def request(
        self, node_id: int, host: str, port: int, message: Any, timeout_ms: int, *, min_version: int = 0
    ) -> Deferred[Any]:
        """The answer as a wire message, at the highest version that both sides support.

        `node_id` is below -1 for a bootstrap server with an unknown id. Fails with PeerUnsupported (also if the peer
        supports only versions below min_version) or PeerUnavailable. Also sends the ApiVersions request to a node that
        asks to be a voter.
        """
        ...


class MetadataLog(Protocol):
    """The metadata partition's log as the driver uses it (raft/metadata_log.py; in memory in tests and the simulator)."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def latest_epoch(self) -> int: ...

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int, minimum_one_batch: bool
    ) -> LogRead: ...

    def set_high_watermark(self, offset: int) -> None: ...

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`, a batch boundary."""
        ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def append_batch(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        """Append a built batch whose offsets follow the log's end. On OSError nothing has changed."""
        ...

    def append_fetched(self, batches: Buffer, epoch: int) -> None:
        """Append whole batches as the leader wrote them. `epoch` is that of the last one. OSError as in
        `append_batch`."""
        ...

    def begin_sync(self) -> Callable[[], None]:
        """A call for a worker thread that makes the present contents durable. `finish_sync` follows in the loop."""
        ...

    def finish_sync(self) -> None: ...

    def drop_below(self, offset: int) -> None:
        """A snapshot contains everything below `offset`: the log starts there, and whole segments below may be
        deleted."""
        ...
