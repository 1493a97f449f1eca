"""Where the numbers of a message are, learned from the bytes of two that differ in numbers of a fixed size."""

from __future__ import annotations


def places_of_numbers(zeros: bytes, ones: bytes) -> list[tuple[int, int]]:
    """(start, end) of each run of bytes that differ. `zeros` and `ones` are one message, with 0 and with -1 in its numbers. Numbers
    that follow each other are one run."""
    assert len(zeros) == len(ones)
    found = []
    start = -1
    for position, (zero, one) in enumerate(zip(zeros, ones, strict=True)):
        if zero == one:
            if start >= 0:
                found.append((start, position))
            start = -1
        elif start < 0:
            start = position
    if start >= 0:
        found.append((start, len(zeros)))
    return found


def layout_of(zeros: bytes, ones: bytes, formats: dict[int, str]) -> str:
    """The format of `struct` that has each run of numbers by its size in bytes, and the bytes before, between and after them."""
    made, done = ">", 0
    for start, end in places_of_numbers(zeros, ones):
        made += f"{start - done}s{formats[end - start]}"
        done = end
    return f"{made}{len(zeros) - done}s"
