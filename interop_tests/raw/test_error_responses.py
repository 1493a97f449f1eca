"""The file with which the unit tests of error responses compare equals the responses of Kafka's classes to every
served request."""

from __future__ import annotations

from interop_tests.raw.error_responses import GOLDEN, HEADER, answered_by_kafka


def test_the_answers_kept_are_those_of_kafkas_classes() -> None:
    assert GOLDEN.read_text() == HEADER + "".join(f"{line}\n" for line in answered_by_kafka())
