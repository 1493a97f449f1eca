"""A member says what became of records that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafkacompat.share.in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    InFlightBatch,
    InFlightRecords,
    Run,
)
from kafkacompat.share.service import ShareError
from kafkacompat.share.transitions import Transition
from kafkacompat.share.values import (
    NO_MEMBER,
    SUCCEEDED,
    AcknowledgementBatch,
    AcknowledgeType,
    RecordState,
    ShareSettings,
)
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.one_by_one import OneByOne

UNITS_A_STEP = 1_000
"""Runs and batches."""

OFFSETS_A_PIECE = 500

_STATE_OF: dict[int, RecordState] = {
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
}
_KNOWN_TYPES = frozenset(int(each) for each in AcknowledgeType)
_RENEW = int(AcknowledgeType.RENEW)
_CHANGES = _KNOWN_TYPES - {_RENEW}


class Refused(Exception):
    """The request cannot be carried out, and none of it is."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = ShareError(code, message)


class Acknowledgement:
    """One request of a member for one share-partition. What it changes is held by `transition`, also after an error."""

    __slots__ = ("_deadline_ms", "_member_id", "_records", "_renews", "transition")

    def __init__(
        self, records: InFlightRecords, settings: ShareSettings, member_id: str, now_ms: int
    ) -> None:
        self._records = records
        self._member_id = member_id
        self._renews = settings.renew_acknowledge_enabled
        self._deadline_ms = now_ms + settings.record_lock_duration_ms
        self.transition = Transition(records, member_id, settings)

    def work(self, batches: Sequence[AcknowledgementBatch]) -> Work[ShareError]:
        """Return the first error, or none."""
        pace = Pace(UNITS_A_STEP)
        try:
            for units in self._acknowledge_all(batches):
                if pace.is_over(units):
                    yield TURN_COST
        except Refused as refused:
            return refused.error
        return SUCCEEDED

    def _acknowledge_all(self, batches: Sequence[AcknowledgementBatch]) -> Iterator[int]:
        """Yields how much was done since the last time."""
        if isinstance(batches, OneByOne):
            for run in batches.runs:
                for at in range(0, len(run.types), OFFSETS_A_PIECE):
                    types = run.types[at : at + OFFSETS_A_PIECE]
                    yield from self._acknowledge_ones(run.first_offset + at, types)
        else:
            for batch in batches:
                yield from self._acknowledge(batch)

    def _acknowledge_ones(self, first: int, types: bytes) -> Iterator[int]:
        """A batch for each offset. Those that cannot be refused change their records together."""
        end = first + len(types)
        are_changes = _CHANGES.issuperset(types)
        offset = first
        while offset < end:
            held = self._held(offset, end - 1) if are_changes else 0
            if held:
                at = offset - first
                yield self._acknowledge_held(offset, types[at : at + held])
                offset += held
            else:
                kind = types[offset - first]
                yield from self._acknowledge(AcknowledgementBatch(offset, offset, (kind,)))
                offset += 1

    def _held(self, first: int, last: int) -> int:
        """How many of these offsets, from the first one on, the member holds."""
        records = self._records
        if first < records.start_offset:
            return 0
        expected = first
        for batch in records.from_floor(first, last):
            if batch.first > expected:
                break
            for run in batch.runs[batch.index_of(expected) : batch.index_of(last) + 1]:
                if run.state is not ACQUIRED or run.member_id != self._member_id:
                    return max(run.first - first, 0)
            expected = batch.last + 1
        return max(min(expected - 1, last) - first + 1, 0)

    def _acknowledge_held(self, first: int, types: bytes) -> int:
        """Return how many runs there are."""
        last = first + len(types) - 1
        is_one_type = types.count(types[0]) == len(types)
        together = AcknowledgementBatch(first, last, types[:1] if is_one_type else types)
        count = 0
        for batch in self._records.from_floor(first, last):
            if batch.first == batch.last and not batch.per_offset:
                self._change(batch, batch.whole, types[batch.first - first])
                count += 1
            else:
                batch.per_offset = True
                count += self._acknowledge_piece(
                    batch, max(batch.first, first), min(batch.last, last), together
                )
        return count

    def _acknowledge(self, request: AcknowledgementBatch) -> Iterator[int]:
        types = request.acknowledge_types
        if not _KNOWN_TYPES.issuperset(types):
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: [{', '.join(map(str, types))}]"
            )
        yield 1 + len(types) // 100
        if request.last_offset < self._records.start_offset:
            return
        for batch in self._batches_of(request):
            # Another request may have come between, and may have moved the start offset.
            if batch.last < self._records.start_offset:
                continue
            if not batch.per_offset:
                run = batch.whole
                self._check_owner_of_batch(run)
                if (
                    len(types) == 1
                    and request.first_offset <= batch.first
                    and batch.last <= request.last_offset
                    and not self._records.begins_within(batch)
                ):
                    if types[0] == _RENEW and not self._renews:
                        raise _no_renewal()
                    self._change(batch, run, types[0])
                    yield 1
                    continue
                batch.per_offset = True
            yield from self._acknowledge_offsets(batch, request)

    def _batches_of(self, request: AcknowledgementBatch) -> list[InFlightBatch]:
        records = self._records
        first = request.first_offset
        if records.floor(first) < 0:
            if not records.batches or not first < records.start_offset <= request.last_offset:
                raise Refused(
                    ErrorCode.INVALID_RECORD_STATE,
                    "Batch record not found. The request batch offsets are not found in the cache.",
                )
            first = records.start_offset
        batches = records.from_floor(first, request.last_offset)
        if not batches or batches[-1].last < request.first_offset:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if request.last_offset > batches[-1].last:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        return batches

    def _check_owner_of_batch(self, run: Run) -> None:
        if run.member_id == NO_MEMBER:
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE,
                "The batch cannot be acknowledged. The batch is not in the acquired state.",
            )
        if run.member_id != self._member_id:
            raise Refused(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")

    def _acknowledge_offsets(self, batch: InFlightBatch, request: AcknowledgementBatch) -> Iterator[int]:
        offset = max(batch.first, request.first_offset)
        last = min(batch.last, request.last_offset)
        while (offset := max(offset, self._records.start_offset)) <= last:
            end = min(offset + OFFSETS_A_PIECE - 1, last)
            yield self._acknowledge_piece(batch, offset, end, request)
            offset = end + 1

    def _acknowledge_piece(
        self, batch: InFlightBatch, first: int, last: int, request: AcknowledgementBatch
    ) -> int:
        """Return how many runs there are."""
        begin = batch.cut(first)
        end = batch.cut(last + 1)
        end_of_all = end
        types = request.acknowledge_types
        skipped = request.first_offset
        good_until = last
        refused: Refused | None = None
        for index in range(begin, end):
            refused = self._refusal(batch.runs[index])
            if refused is not None:
                end = index
                good_until = batch.runs[index].first - 1
                break
        good_types = types if len(types) == 1 else types[first - skipped : good_until - skipped + 1]
        if begin < end and not self._renews and _RENEW in good_types:
            refused = _no_renewal()
            end = begin
        changed: list[Run] = []
        for run in batch.runs[begin:end]:
            if len(types) == 1:
                self._change(batch, run, types[0])
                changed.append(run)
                continue
            rest: Run | None = run
            while rest is not None:
                part, rest = rest, None
                at = part.first - skipped
                size = part.last - part.first + 1
                alike = _alike(types, at, size)
                if alike < size:
                    rest = part.split(part.first + alike)
                self._change(batch, part, types[at])
                changed.append(part)
        batch.runs[begin:end] = changed
        batch.join_runs(begin, begin + len(changed) + end_of_all - end)
        if refused is not None:
            raise refused
        return len(changed)

    def _refusal(self, run: Run) -> Refused | None:
        if run.state is not ACQUIRED:
            return Refused(
                ErrorCode.INVALID_RECORD_STATE,
                "The offset cannot be acknowledged. The offset is not acquired.",
            )
        if run.member_id != self._member_id:
            return Refused(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
        return None

    def _change(self, batch: InFlightBatch, run: Run, acknowledge_type: int) -> None:
        if acknowledge_type == AcknowledgeType.REJECT:
            self.transition.reject(batch, run)
            return
        if acknowledge_type != _RENEW:
            self.transition.start(batch, run, _STATE_OF[acknowledge_type])
            return
        # A renewed lock stays renewed even if another part of the request is refused.
        run.deadline_ms = self._deadline_ms
        self._records.deadlines.add(self._deadline_ms, batch)


def _no_renewal() -> Refused:
    return Refused(ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group.")


def _alike(types: Sequence[int], begin: int, most: int) -> int:
    """How many types from `begin` on are the same, up to `most`."""
    first = types[begin]
    count = 1
    while count < most and types[begin + count] == first:
        count += 1
    return count
