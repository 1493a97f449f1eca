"""The series of requests, when APIs are asked for the first time during a scrape."""

from __future__ import annotations

from kafkacompat.api.meters import RequestMeters
from kafkacompat.metrics.requests import request_families

PRODUCE, FETCH, METADATA = 0, 1, 3


def test_a_new_api_does_not_end_the_series_of_errors() -> None:
    meters = RequestMeters()
    for key in (PRODUCE, FETCH):
        meters.of(key, 9)
    meters.errors["Produce"][3] = meters.errors["Produce"][-1] = meters.errors["Fetch"][3] = 7
    (family,) = [each for each in request_families(meters) if each and each.name.endswith("_errors")]
    samples = iter(family.samples)
    found = [next(samples)]
    meters.of(METADATA, 9)
    found += samples
    assert [(labels["request"], labels["error"], value) for labels, value in filter(None, found)] == [
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION", 7),
        ("Produce", "UNKNOWN_SERVER_ERROR", 7),
        ("Fetch", "UNKNOWN_TOPIC_OR_PARTITION", 7),
    ]
