"""An answer with metrics, read as strictly as any scraper does."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from kafkacompat.metrics.families import COUNTER, GAUGE, NO_LABELS, Family, Samples


class Shown(NamedTuple):
    types: dict[str, str]
    values: dict[str, float]
    """By the series as it is written."""


def parsed(text: str) -> Shown:
    """AssertionError for what a scraper may refuse."""
    types: dict[str, str] = {}
    values: dict[str, float] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} is there twice"
            assert kind in (GAUGE, COUNTER)
            types[name] = kind
        elif not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            assert series not in values, f"{series} is there twice"
            assert series.partition("{")[0] == name, f"{series} is not among those of its name"
            values[series] = float(value)
    assert sum(len(each.samples) for each in text_string_to_metric_families(text)) == len(values)
    return Shown(types, values)


def gauge(name: str, text: str, value: float) -> Family:
    """One series without labels."""
    return gauges(name, text, ((NO_LABELS, value),))


def counter(name: str, text: str, value: float) -> Family:
    """One series without labels."""
    return counters(name, text, ((NO_LABELS, value),))


def gauges(name: str, text: str, samples: Samples) -> Family:
    return Family(name, GAUGE, text, samples)


def counters(name: str, text: str, samples: Samples) -> Family:
    return Family(name, COUNTER, text, samples)
