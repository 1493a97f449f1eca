"""The declarations of metrics: each once, and on the reference page."""

from __future__ import annotations

from collections import Counter

from kafkacompat.metrics.reference import PAGE, declared, series, with_tables


def test_the_reference_page_has_the_tables_of_the_declarations() -> None:
    page = PAGE.read_text("utf-8")
    assert with_tables(page) == page, "write it anew: python -m kafkacompat.metrics.reference"


def test_each_metric_is_declared_once() -> None:
    names = Counter(series(metric) for each in declared() for metric in each.metrics)
    assert len(names) > 200
    assert [name for name, count in names.items() if count > 1] == []


def test_each_meaning_is_a_sentence_that_fits_into_a_table() -> None:
    texts = [metric.text for each in declared() for metric in each.metrics]
    assert [text for text in texts if not text.endswith(".") or "|" in text or "\n" in text] == []
