"""The metrics of several nodes as one text, as a scraper reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafkacompat.metrics._tests.exposition import counter, gauges
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.metrics.families import Families
from kafkacompat.metrics.merging import BROKERS, LABEL, merged, with_label
from kafkacompat.metrics.reference import declared
from kafkacompat.telemetry.series import labels_of


def text_of(node: int, sizes: int) -> str:
    def families() -> Families:
        yield counter("requests", "All requests.", float(node))
        if sizes:
            yield gauges("size", "Sizes.", (({"topic": f"a b{{{n}}}"}, float(n)) for n in range(sizes)))

    return b"".join(rendered(families())).decode()


def test_each_name_is_there_once_with_the_series_of_all_nodes() -> None:
    text = b"".join(merged({2: text_of(2, 300), 1: text_of(1, 0), 3: text_of(3, 1)})).decode()
    assert text.count("# TYPE size gauge") == text.count("# HELP size") == 1
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert {(each.labels["node_id"], each.value) for each in found["requests"].samples} == {
        ("1", 1.0),
        ("2", 2.0),
        ("3", 3.0),
    }
    sizes = found["size"].samples
    assert len(sizes) == 301
    assert sizes[-1].labels == {"node_id": "3", "topic": "a b{0}"}
    assert found["size"].documentation == "Sizes."


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b", "\r"])
def test_a_line_ends_only_where_a_scraper_ends_it(character: str) -> None:
    """Clients name groups, and the text has any character but a line feed as it is."""
    named = f"a{character}b"
    text = b"".join(rendered([gauges("size", "Sizes.", [({"group": named}, 1.0)])])).decode()
    (family,) = text_string_to_metric_families(b"".join(merged({1: text})).decode())
    assert [each.labels for each in family.samples] == [{"node_id": "1", "group": named}]


def test_no_piece_is_long() -> None:
    pieces = list(merged({1: text_of(1, 3000), 2: text_of(2, 3000)}))
    assert max(piece.count(b"\n") for piece in pieces) <= 500
    assert sum(piece == b"" for piece in pieces) >= 10


def test_no_node_is_no_text() -> None:
    assert list(merged({})) == []


def test_a_label_stands_first() -> None:
    assert with_label("up 1", 4) == 'up{node_id="4"} 1'
    assert with_label('up{a="b c"} 1', 4) == 'up{node_id="4",a="b c"} 1'


def test_no_series_of_one_node_has_the_label_that_is_put_in_front() -> None:
    """A scraper refuses the whole text if one series has a label twice."""
    with_it = [
        each.name
        for told in declared()
        if told is not BROKERS
        for each in told.metrics
        if LABEL in each.labels
    ]
    assert with_it == []


@pytest.mark.parametrize("attribute", ["node.id", "node_id"])
def test_an_attribute_of_a_clients_metric_is_not_the_label_that_is_put_in_front(attribute: str) -> None:
    """librdkafka sends `node.id` with the latency of the requests to each broker."""
    labels = dict(labels_of({attribute: "7"}))
    text = b"".join(rendered([gauges("latency", "Latency.", [(labels, 1.0)])])).decode()
    (family,) = text_string_to_metric_families(b"".join(merged({1: text})).decode())
    assert [each.labels for each in family.samples] == [{"node_id": "1", "attribute_node_id": "7"}]
