"""The counts of traffic, when topics come and go during a scrape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkacompat.metrics.families import Families, Family
from kafkacompat.metrics.partitions import TRAFFIC, traffic_families
from kafkacompat.partition.traffic import BrokerTraffic


def sums(families: Families) -> Iterator[tuple[str, float]]:
    """Of the families in their order, each read when it comes."""
    for family in families:
        if isinstance(family, Family):
            yield (
                family.name,
                next(
                    value for sample in family.samples if sample for labels, value in [sample] if not labels
                ),
            )


@pytest.mark.parametrize("read_before", range(4))
def test_a_topic_that_ends_during_a_scrape_is_counted_once(read_before: int) -> None:
    """With its counts twice, the next scrape has less: a counter that is reset, and as much traffic as ever there was."""
    traffic = BrokerTraffic()
    stays, ends = traffic.begin("stays"), traffic.begin("ends")
    for each in (stays, ends):
        each.messages_in = each.bytes_in = each.bytes_out = each.replication_bytes_in = 5
    read = sums(traffic_families(traffic))
    found = dict([next(read) for _ in range(read_before)])
    traffic.end("ends")
    stays.bytes_out += 1
    found |= dict(read)
    assert (
        found[f"{TRAFFIC}messagesin"]
        == found[f"{TRAFFIC}bytesin"]
        == found[f"{TRAFFIC}replicationbytesin"]
        == 10
    )
    assert found[f"{TRAFFIC}bytesout"] == (10 if read_before > 2 else 11)
