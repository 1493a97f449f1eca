"""Families as Prometheus' text format, in pieces that each take one step of the loop. prometheus-client writes the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as TextSample

from kafkacompat.metrics.families import COUNTER, Family

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SAMPLES_A_PIECE = 100
"""Samples that one piece holds: about 10 microseconds each, to read and to write."""
HEADER_LINES = 2
"""HELP and TYPE, which Prometheus wants once for a name."""


def rendered(families: Iterable[Family | None]) -> Iterator[bytes]:
    """Pieces of the text, in order. b'' is a pause. A family without samples is left out."""
    for family in families:
        if family is None:
            yield b""
        else:
            yield from _rendered(family)


def _rendered(family: Family) -> Iterator[bytes]:
    name = f"{family.name}_total" if family.kind == COUNTER else family.name
    piece: list[TextSample] = []
    is_first = True
    for sample in family.samples:
        if sample is None:
            yield b""
            continue
        labels, value = sample
        piece.append(TextSample(name, dict(labels), float(value)))
        if len(piece) >= SAMPLES_A_PIECE:
            yield _text(family, piece, is_first)
            piece, is_first = [], False
    if piece:
        yield _text(family, piece, is_first)


def _text(family: Family, samples: list[TextSample], with_header: bool) -> bytes:
    metric = Metric(family.name, family.text, family.kind)
    metric.samples = samples
    try:
        text = generate_latest(_One(metric))
    except UnicodeEncodeError:
        metric.samples = [each._replace(labels=_encodable(each.labels)) for each in samples]
        text = generate_latest(_One(metric))
    return text if with_header else text.split(b"\n", HEADER_LINES)[HEADER_LINES]


def _encodable(labels: Mapping[str, str]) -> dict[str, str]:
    """The name of a directory may have bytes that are not UTF-8. Escaped as in the log."""
    return {name: value.encode("utf-8", "backslashreplace").decode() for name, value in labels.items()}


class _One(Collector):
    """What generate_latest wants: a collector of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric
