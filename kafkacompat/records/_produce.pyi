"""The compiled gait of plain_produce.py; not there where nothing compiled it."""

from typing import Any

from kafkacompat.ports import Buffer
from kafkacompat.records.plain_produce import PlainBounds, PlainFacts, TopicFacts

def read_frame(frame: Buffer, version: int, bounds: PlainBounds, /) -> PlainFacts | None: ...
def pack_answer(
    version: int,
    topics: list[TopicFacts],
    results: list[tuple[int, int] | Any],
    correlation_id: int | None,
    /,
) -> bytes | None: ...
def checksum(data: Buffer, by_instruction: bool, /) -> int: ...
def use_lz4(path: str, /) -> bool: ...
