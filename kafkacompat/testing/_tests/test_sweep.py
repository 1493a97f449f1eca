"""What a sweep of faults says of a program. interop_tests/testing has programs with planted mistakes."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from kafkacompat.testing.kafka import Kafka
from kafkacompat.testing.sweep import (
    AFTER,
    CRASH,
    EXPIRY,
    KILL,
    FaultFound,
    Finding,
    Hangs,
    Point,
    _Limits,
    _run_once,
    every_fault,
)

POINTS = [Point(number, "Produce", number, "app") for number in range(1, 13)]
RECORD = ("out", b"k", b"v")


def test_a_report_names_the_exchange_the_records_and_the_mistake() -> None:
    first = Finding(AFTER, POINTS[11], Counter(), Counter({RECORD: 1}))
    second = Finding(EXPIRY, POINTS[0], Counter({RECORD: 2}), Counter())
    text = str(FaultFound([first, second], POINTS))
    assert text.splitlines() == [
        "When the reply is lost of exchange 12, Produce of 'app' (the 12th one):",
        "  1 too many: b'v' with key b'k' in out",
        "  What is sent again is not recognized: set enable.idempotence, or use a transaction.",
        "The exchanges until then:",
        *(f"  {point}" for point in POINTS[7:]),
        "1 more:",
        "  the members of its groups are removed after exchange 1, Produce of 'app' (the 1st one)",
    ]


def test_a_program_that_does_not_end_is_told_so() -> None:
    text = str(Finding(CRASH, POINTS[1], Counter(), Counter(), "ValueError: no"))
    assert text.splitlines() == [
        "When the program crashes after exchange 2, Produce of 'app' (the 2nd one):",
        "  the program does not end: ValueError: no",
    ]


def test_what_a_program_raises_without_a_fault_is_raised() -> None:
    with Kafka() as kafka, pytest.raises(ZeroDivisionError):
        every_fault(lambda _: 1 / 0, kafka)


def test_a_program_without_exchanges_passes() -> None:
    with Kafka() as kafka:
        assert every_fault(lambda _: None, kafka).points == ()


def test_a_record_that_only_a_killed_node_had_has_its_own_advice() -> None:
    text = str(Finding(KILL, POINTS[1], Counter({RECORD: 1}), Counter()))
    assert text.splitlines()[0] == (
        "When the node is cut off from the others and killed that has carried out exchange 2, Produce of 'app' (the 2nd one):"
    )
    assert "acks=all" in text


def test_a_program_that_asks_for_nothing_any_more_hangs() -> None:
    limits = _Limits(timeout_s=60, silence_s=0.05)
    over = threading.Event()
    with Kafka() as kafka:
        with pytest.raises(Hangs, match="asked for nothing"):
            _run_once(lambda _: over.wait(), kafka, limits)
        over.set()
