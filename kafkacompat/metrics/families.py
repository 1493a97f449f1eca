"""Metric families of one scrape, as values. Pure: no text format, no socket.

A collector is a generator. It yields a Family, or None between two steps of the loop. It reads the parts of the node while it
runs, so a scrape is no snapshot of one instant. A family's samples are read when they are rendered, a bounded number in each step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

Labels = Mapping[str, str]
Sample = tuple[Labels, float]
"""Labels and value. A sample that is None in a family makes the renderer pause."""

NO_LABELS: Labels = MappingProxyType({})
GAUGE = "gauge"
COUNTER = "counter"
COUNTED_A_STEP = 500
"""Partitions that a collector looks at between two pauses: up to 2 microseconds each."""


class Family(NamedTuple):
    """All series of one name. The name of a counter is given without the suffix `_total`."""

    name: str
    kind: str
    text: str
    samples: Iterable[Sample | None]


Families = Iterator[Family | None]


def gauge(name: str, text: str, value: float) -> Family:
    """One series without labels."""
    return Family(name, GAUGE, text, ((NO_LABELS, value),))


def counter(name: str, text: str, value: float) -> Family:
    """One series without labels."""
    return Family(name, COUNTER, text, ((NO_LABELS, value),))


def gauges(name: str, text: str, samples: Iterable[Sample | None]) -> Family:
    return Family(name, GAUGE, text, samples)


def counters(name: str, text: str, samples: Iterable[Sample | None]) -> Family:
    return Family(name, COUNTER, text, samples)


_PLAIN_VALUE = re.compile(r"[\w\-%. \t]*", re.ASCII)


def mbean_value(text: str) -> str:
    """A tag's value as the name of Kafka's MBean has it: in quotes where it has other characters than letters, digits and `_-%.`.

    The exporter passes the quotes on, so they are part of the label's value.
    """
    if _PLAIN_VALUE.fullmatch(text):
        return text
    escaped = "".join(f"\\{each}" if each in '"\\*?' else each for each in text)
    return '"' + escaped.replace("\n", "\\n") + '"'
