"""What the quorum driver asks of the world around it, and what it tells the state machine above it.

Protocols and the values that cross them; nothing here acts. Knows no role, no socket and no record's meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.ports import Buffer, LogRead


class MetadataLogProblem(Exception):
    """The metadata log cannot be used: halt, keep the files. The message names file and reason."""


class NotLeader(Exception):
    """Only the leader of the quorum can do this, and this node is not the leader (any more)."""


class PeerUnsupported(Exception):
    """A transport's failure: the peer does not know the API, or no version of it that can say this."""


class PeerUnavailable(Exception):
    """A transport's failure: not reachable, connection lost, or no answer in time."""


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """Committed values in log order, from a snapshot or a batch. `last_offset` is that of the batch or snapshot."""

    values: Sequence[bytes]
    last_offset: int
    epoch: int
    kraft_version: int | None = None
    """Set when a control record of this batch states it."""
    is_snapshot: bool = False


class StateMachine(Protocol):
    """Fed by the driver, always between two of its steps, so that any of these may propose."""

    def load_snapshot(self, batch: LoadedBatch) -> None:
        """Forget everything; this is the state, with the parts that follow. `last_offset` is -1 for the 0-0 snapshot, which holds
        no values."""
        ...

    def apply_part(self, values: Sequence[bytes]) -> None:
        """More values of the snapshot, or the first ones of the batch whose last ones `apply` brings."""
        ...

    def apply(self, batch: LoadedBatch) -> None:
        """One committed batch, in log order, once each; not for what this node proposed in its present leadership.

        Control batches come too, with no values.
        """
        ...

    def caught_up(self) -> None:
        """After each run of load_snapshot and apply: publish."""
        ...

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        """-1: no leader known. Every uncommitted proposal of a former leader was `lost` before."""
        ...

    def became_active(self, epoch: int) -> None:
        """This node leads `epoch`, and all that was in the log when it began is committed and applied: it may propose."""
        ...


class NetworkChannel(Protocol):
    """Ways to other members. All calls in the loop's thread."""

    on_refused: Callable[[int], None]
    """Set by the driver; called with a node id when its connection was closed and a new one was refused."""

    def request(
        self, node_id: int, host: str, port: int, message: Any, timeout_ms: int, *, min_version: int = 0
    ) -> Deferred[Any]:
        """The answer as a wire message, at the highest version that both know.

        `node_id` is below -1 for a bootstrap server whose id is unknown. Fails with PeerUnsupported (also when the peer knows only
        versions below min_version) or PeerUnavailable. Also carries the ApiVersions request that probes a would-be voter.
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
        """Cut the log so that it ends at offset, which is a batch boundary."""
        ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def append_batch(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        """Append a built batch whose offsets follow the log's end. OSError passes through and nothing has changed."""
        ...

    def append_fetched(self, batches: Buffer, epoch: int) -> None:
        """Append whole batches as the leader wrote them; `epoch` is that of the last. OSError as above."""
        ...

    def begin_sync(self) -> Callable[[], None]:
        """A call for a worker thread that makes durable what is written now; `finish_sync` follows it in the loop."""
        ...

    def finish_sync(self) -> None: ...

    def drop_below(self, offset: int) -> None:
        """A snapshot holds everything below: the log starts there, and whole segments below may go."""
        ...
