"""Reading a coordinator's partition back into its machine, a piece at a time.

Duty: batches to records to `replay`, markers to `replay_end_transaction`. Must not know: what the records mean, when the
next piece is due. Records of an unknown kind are counted and passed over, as a broker must that follows a newer one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import LoadFailure, Machine
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, BatchHeader, has_valid_crc, iterate_batches
from kafkacompat.records.compression import decompress
from kafkacompat.records.control import parse_end_transaction_marker
from kafkacompat.records.record import iterate_records
from kafkacompat.wire.errors import WireError

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer


class Loader:
    """Replays from `next_offset` on. `skipped` counts records by the first bytes of their key that nobody here knows."""

    __slots__ = ("_machine", "next_offset", "record_count", "skipped")

    def __init__(self, machine: Machine[Any], start_offset: int) -> None:
        self._machine = machine
        self.next_offset = start_offset
        self.record_count = 0
        self.skipped: dict[int, int] = {}
        """Key type -> records."""

    def feed(self, data: Buffer) -> bool:
        """Replay the whole batches in data; False when there was none. Raises LoadFailure."""
        advanced = False
        try:
            for header in iterate_batches(data):
                if header.last_offset < self.next_offset:
                    continue
                self._replay_batch(memoryview(data)[header.position : header.position + header.size], header)
                self.next_offset = header.last_offset + 1
                advanced = True
        except (BatchCorrupt, ValueError, WireError) as error:
            raise LoadFailure(f"offset {self.next_offset}: {error}") from error
        return advanced

    def _replay_batch(self, batch: memoryview, header: BatchHeader) -> None:
        if header.magic != 2:
            raise LoadFailure(f"offset {header.base_offset}: a batch of the old format {header.magic}")
        if not has_valid_crc(batch, header):
            raise LoadFailure(f"offset {header.base_offset}: the batch's crc does not fit its bytes")
        body: Buffer = batch[HEADER_SIZE:]
        if header.codec:
            body = decompress(header.codec, body)
        machine = self._machine
        for record in iterate_records(body, header.record_count, header.base_timestamp_ms):
            offset = header.base_offset + record.offset_delta
            if header.is_control:
                marker = parse_end_transaction_marker(record)
                if marker is not None:
                    machine.replay_end_transaction(
                        header.producer_id, header.producer_epoch, marker.committed, offset
                    )
                continue
            if record.key is None:
                raise LoadFailure(f"offset {offset}: a record without a key")
            decoded = machine.decode(record.key, record.value)
            if decoded is None:
                kind = int.from_bytes(record.key[:2], "big", signed=True)
                self.skipped[kind] = self.skipped.get(kind, 0) + 1
                continue
            machine.replay(decoded, offset, header.producer_id)
            self.record_count += 1
