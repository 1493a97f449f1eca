"""Families in Prometheus' text format, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from kafkacompat.metrics._tests.exposition import counter, counters, gauge, gauges
from kafkacompat.metrics.endpoint import SAMPLES_A_PIECE, rendered
from kafkacompat.metrics.families import Sample


def text_of(*families: object) -> str:
    return b"".join(rendered(families)).decode()  # type: ignore[arg-type]


def test_a_gauge_and_a_counter_have_kafka_s_suffixes() -> None:
    text = text_of(gauge("partitioncount", "Partitions.", 3), counter("isrshrinks", "Shrinks.", 2))
    assert text.splitlines() == [
        "# HELP partitioncount Partitions.",
        "# TYPE partitioncount gauge",
        "partitioncount 3.0",
        "# HELP isrshrinks_total Shrinks.",
        "# TYPE isrshrinks_total counter",
        "isrshrinks_total 2.0",
    ]


def test_a_large_family_comes_in_pieces_under_one_header() -> None:
    samples = [({"topic": f"t{number}"}, number) for number in range(2 * SAMPLES_A_PIECE + 1)]
    pieces = list(rendered([gauges("size", "Size.", samples)]))
    assert [piece.count(b"\n") for piece in pieces] == [SAMPLES_A_PIECE + 2, SAMPLES_A_PIECE, 1]
    text = b"".join(pieces).decode()
    assert text.count("# HELP") == text.count("# TYPE") == 1
    (family,) = text_string_to_metric_families(text)
    assert [(each.labels, each.value) for each in family.samples] == samples


def test_samples_are_read_when_their_piece_is_rendered() -> None:
    read: list[int] = []

    def samples() -> Iterator[Sample]:
        for number in range(3 * SAMPLES_A_PIECE):
            read.append(number)
            yield {"number": str(number)}, 1

    pieces = rendered([gauges("size", "Size.", samples())])
    next(pieces)
    assert len(read) == SAMPLES_A_PIECE


def test_a_pause_gives_an_empty_piece() -> None:
    pieces = list(rendered([None, gauges("size", "Size.", [None, ({}, 1)])]))
    assert pieces[:2] == [b"", b""]
    assert pieces[2].endswith(b"size 1.0\n")


def test_a_family_without_samples_is_left_out() -> None:
    assert text_of(gauges("size", "Size.", ())) == ""


def test_names_and_labels_are_escaped() -> None:
    value = 'a"b\\c\nd é'
    text = text_of(counters("messagesin", "First\nsecond \\ line.", [({"topic": value}, 1)]))
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"topic": value}
    assert text.splitlines()[0] == "# HELP messagesin_total First\\nsecond \\\\ line."


def test_a_label_that_is_not_utf_8_does_not_end_the_text() -> None:
    """The name of a directory, given on the command line."""
    paths = ["/data/\udcff", "/data/\u00fc"]
    text = text_of(
        gauges("size", "Size.", [({"logDirectory": path}, 1) for path in paths]), gauge("up", "Up.", 1)
    )
    first, second = text_string_to_metric_families(text)
    assert [each.labels["logDirectory"] for each in first.samples] == ["/data/\\udcff", "/data/\u00fc"]
    assert second.samples[0].value == 1
