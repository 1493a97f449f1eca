"""The compiled gait of plain_produce.py; not there where nothing compiled it."""

from typing import Any

from kafkacompat.ports import Buffer
from kafkacompat.records.plain_produce import TopicFacts

def read_request(
    frame: Buffer,
    position: int,
    version: int,
    units: int,
    partition_units: int,
    records_most: int,
    headers_most: int,
    headers_a_record: int,
    unpacked_most: int,
    /,
) -> tuple[int, int, int, list[TopicFacts]] | None: ...
def answer_produce(
    version: int, topics: list[TopicFacts], results: list[tuple[int, int] | Any], /
) -> bytes | None: ...
def checksum(data: Buffer, by_instruction: bool, /) -> int: ...
def use_lz4(path: str, /) -> bool: ...
