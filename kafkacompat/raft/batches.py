"""Batches of the metadata log as bytes: headers for the quorum core, values for the state machine.

Pure. Only control records are decoded, for the voters and kraft.version they contain (KIP-853).
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkacompat.ports import Buffer
from kafkacompat.raft import control_records
from kafkacompat.raft.messages import Batch
from kafkacompat.raft.snapshot import BrokenSnapshot, batch_records
from kafkacompat.raft.voter_set import VoterSet
from kafkacompat.records.batch import BatchCorrupt, BatchHeader, has_valid_crc, iterate_batches
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.record import RecordMalformed
from kafkacompat.wire.errors import WireError


class BrokenBatch(Exception):
    """Bytes that cannot be in a metadata log. The message describes the flaw."""


def named_voters(
    data: memoryview, header: BatchHeader, voters: VoterSet, kraft_version: int
) -> tuple[VoterSet | None, int]:
    """The voters and kraft.version in force after a control batch. None if it changes neither."""
    named: VoterSet | None = None
    try:
        for record in batch_records(data, header):
            kind = parse_control_key(record.key)
            if kind == ControlType.KRAFT_VERSION:
                kraft_version = control_records.parse_kraft_version(record.value or b"")
                named = named or voters
            elif kind == ControlType.KRAFT_VOTERS:
                named = VoterSet(control_records.parse_voters(record.value or b""))
    except (BrokenSnapshot, RecordMalformed, WireError, ValueError) as error:
        raise BrokenBatch(f"the control batch at offset {header.base_offset}: {error}") from error
    return named, kraft_version


def headers(view: memoryview) -> Iterator[BatchHeader]:
    """Headers of the complete batches. Raises BrokenBatch."""
    try:
        for header in iterate_batches(view):
            if header.magic != 2:
                raise BrokenBatch(f"a batch of the old format {header.magic} at byte {header.position}")
            yield header
    except BatchCorrupt as error:
        raise BrokenBatch(str(error)) from error


def core_batch(
    view: memoryview, header: BatchHeader, voters: VoterSet, kraft_version: int, payload: Buffer | None
) -> Batch:
    named: VoterSet | None = None
    if header.is_control:
        named, kraft_version = named_voters(view, header, voters, kraft_version)
    return Batch(
        header.base_offset,
        header.last_offset + 1,
        header.leader_epoch,
        payload,
        header.size,
        named,
        kraft_version,
    )


def read_batches(records: Buffer, voters: VoterSet, kraft_version: int) -> tuple[Batch, ...]:
    """The complete batches from a leader, each with its bytes as payload. A damaged batch ends the list. Raises
    BrokenBatch, also if nothing is left."""
    view = memoryview(records)
    found: list[Batch] = []
    for header in headers(view):
        payload = view[header.position : header.position + header.size]
        if not has_valid_crc(payload, header):
            if not found:
                # Without any records it would look like the end of the log, and be asked for again at once.
                raise BrokenBatch(f"the batch at offset {header.base_offset} has a wrong crc")
            break
        batch = core_batch(view, header, voters, kraft_version, payload)
        if batch.voters is not None:
            voters, kraft_version = batch.voters, batch.kraft_version
        found.append(batch)
    return tuple(found)
