"""Lines of standard input, by a pipe and a stand-in for the producer: what arrives, and what a stop or a slow broker does."""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator

import pytest

from kafkacompat.pipeline import collect_command
from kafkacompat.pipeline._tests.collector_kit import Shipper
from kafkacompat.pipeline._tests.test_collect_command import words
from kafkacompat.pipeline.collector.lines import Line
from kafkacompat.pipeline.collector.running import RECORD_WAIT_S
from kafkacompat.pipeline.collector.standard_input import StandardInput
from kafkacompat.pipeline.failure import PipelineFailed


class SlowShipper(Shipper):
    """Acknowledges a chunk a turn, unless it is away."""

    def __init__(self) -> None:
        super().__init__(defaultdict(set))
        self.is_away = False

    def turn(self, timeout_s: float) -> None:
        if not self.is_away:
            self.deliver(0)

    def flush(self, timeout_s: float) -> bool:
        while self.on_the_way and not self.is_away:
            self.deliver(0)
        return not self.on_the_way

    def lines(self) -> list[bytes]:
        return [value for _, values in sorted(self.arrived.items()) for value in values]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def collected(pipe: tuple[int, int], shipper: SlowShipper) -> StandardInput:
    return StandardInput(shipper, "web", pipe[0])  # type: ignore[arg-type]


def never() -> bool:
    return False


def test_every_line_arrives_and_the_last_one_needs_no_newline(pipe: tuple[int, int]) -> None:
    shipper = SlowShipper()
    source = collected(pipe, shipper)
    os.write(pipe[1], b"one\ntw")
    assert source.turn(0, 0)
    os.write(pipe[1], b"o\n\nthree")
    os.close(pipe[1])
    source.run(never, lambda figures: None)
    assert shipper.lines() == [b"one", b"two", b"", b"three"]
    (identity,) = {identity for identity, _ in shipper.arrived}
    assert "-stdin-" in identity
    assert [position for _, position in sorted(shipper.arrived)] == [0, 4, 8, 9]
    assert source.figures().lines == 4


def test_two_runs_have_different_event_ids(pipe: tuple[int, int]) -> None:
    assert collected(pipe, SlowShipper())._identity != collected(pipe, SlowShipper())._identity


def test_a_long_line_is_cut_and_counted_with_its_length(pipe: tuple[int, int]) -> None:
    shipper = SlowShipper()
    source = collected(pipe, shipper)
    source._cutter.max_line_bytes = 10
    os.write(pipe[1], b"x" * 25 + b"\n")
    source.turn(0, 0)
    ((_, _, lines),) = shipper.on_the_way
    assert lines == [Line(0, b"x" * 10, 25)]


def test_nothing_is_read_while_the_broker_is_behind(pipe: tuple[int, int]) -> None:
    shipper = SlowShipper()
    source = collected(pipe, shipper)
    shipper.allowed = 1
    os.write(pipe[1], b"one\n")
    assert source.turn(0, 0)
    os.write(pipe[1], b"two\n")
    assert not source.turn(0, 0)
    shipper.allowed = 1
    assert source.turn(0, 0)


def test_a_stop_says_what_was_read_and_not_shipped(pipe: tuple[int, int]) -> None:
    shipper = SlowShipper()
    shipper.is_away = True
    source = collected(pipe, shipper)
    os.write(pipe[1], b"one\nand")
    source.turn(0, 0)
    with pytest.raises(PipelineFailed, match="stopped with 6 bytes of standard input that are not shipped"):
        source.run(lambda: True, lambda figures: None)


def test_standard_input_is_collected_alone(tmp_path: os.PathLike[str]) -> None:
    given = words(tmp_path)  # type: ignore[arg-type]
    given.files.append("-")
    with pytest.raises(PipelineFailed, match="- is standard input, which is collected alone"):
        collect_command.run(given)  # type: ignore[arg-type]


def test_a_stack_trace_is_one_record_until_nothing_comes_for_a_while(pipe: tuple[int, int]) -> None:
    shipper = SlowShipper()
    source = StandardInput(shipper, "web", pipe[0], lambda line: not line.startswith(b" "))  # type: ignore[arg-type]
    os.write(pipe[1], b"failed\n at a\n at b\nnext\n")
    assert source.turn(0, 0.0)
    assert not source.turn(0, RECORD_WAIT_S - 0.1)
    assert [line.value for _, _, lines in shipper.on_the_way for line in lines] == [b"failed\n at a\n at b"]
    source.turn(0, RECORD_WAIT_S)
    os.write(pipe[1], b" late\nend\n of it")
    os.close(pipe[1])
    source.run(never, lambda figures: None)
    assert shipper.lines() == [b"failed\n at a\n at b", b"next", b" late", b"end\n of it"]


def test_a_record_of_whole_lines_is_sent_at_a_stop(pipe: tuple[int, int]) -> None:
    shipper = SlowShipper()
    source = StandardInput(shipper, "web", pipe[0], lambda line: not line.startswith(b" "))  # type: ignore[arg-type]
    os.write(pipe[1], b"failed\n at a\n")
    source.turn(0, 0.0)
    source.run(lambda: True, lambda figures: None)
    assert shipper.lines() == [b"failed\n at a"]


@pytest.mark.parametrize("text", ["(a", "a{1000}{1000}", r"(?=a)"])
def test_a_rule_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no regular expression"):
        collect_command._rule(text)


def test_a_rule_is_asked_for_the_beginning_of_a_line() -> None:
    rule = collect_command._rule(r"\d{4}-|[A-Z]")
    assert [bool(rule(line)) for line in (b"2026-11-29 a", b" 2026-", b"A", b"\xff", b"")] == [
        True,
        False,
        True,
        False,
        False,
    ]
