"""The compiled gait of scan.py; not there where nothing compiled it."""

from kafkacompat.ports import Buffer

def scan(
    data: Buffer,
    position: int,
    end: int,
    first_offset: int,
    most: int,
    units: int,
    headers_a_record: int,
    with_rows: bool,
    /,
) -> tuple[int, int, int, int, int, int, int, bytes | None]: ...
def find(
    data: Buffer, position: int, end: int, most: int, timestamp: int, offset: int, /
) -> tuple[int, int, tuple[int, int] | None]: ...
def cut(data: Buffer, rows: Buffer, first: int, last: int, /) -> list[bytes | None]: ...
