"""The quotas that a filter finds, and the filters that are refused. interop_tests/raw compares both with Apache Kafka."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.metadata_delta import MetadataDelta
from kafkacompat.wire.messages.client_quota_record import ClientQuotaRecord
from kafkacompat.wire.messages.client_quota_record import EntityData as RecordEntity
from kafkacompat.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
KEPT: list[tuple[dict[str, str | None], str, float]] = [
    ({USER: "alice"}, "producer_byte_rate", 1.0),
    ({USER: "alice"}, "consumer_byte_rate", 2.0),
    ({USER: None}, "producer_byte_rate", 3.0),
    ({USER: "alice", CLIENT: "a"}, "producer_byte_rate", 4.0),
    ({USER: None, CLIENT: None}, "request_percentage", 5.0),
    ({IP: "10.0.0.1"}, "connection_creation_rate", 6.0),
]


def image(kept: list[tuple[dict[str, str | None], str, float]] = KEPT) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for entity, key, value in kept:
        parts = [RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        delta.replay(14, ClientQuotaRecord(entity=parts, key=key, value=value))
    return delta.apply(1, 1)


def asked(strict: bool, *components: tuple[str, int, str | None], version: int = 1) -> Any:
    api = Api()
    api.publish(image())
    parts = [ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    return api.send(DescribeClientQuotasRequest(components=parts, strict=strict), version)


def found(answer: Any) -> list[float]:
    assert (answer.error_code, answer.error_message) == (0, "")
    return sorted(value.value for entry in answer.entries for value in entry.values)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("strict", "components", "values"),
    [
        (False, [], [1, 2, 3, 4, 5, 6]),
        (True, [], []),
        (False, [(USER, EXACT, "alice")], [1, 2, 4]),
        (True, [(USER, EXACT, "alice")], [1, 2]),
        (True, [(USER, DEFAULT, None)], [3]),
        (False, [(USER, SPECIFIED, None)], [1, 2, 3, 4, 5]),
        (True, [(USER, SPECIFIED, None), (CLIENT, SPECIFIED, None)], [4, 5]),
        (False, [(CLIENT, EXACT, "a")], [4]),
        (True, [(IP, SPECIFIED, None)], [6]),
        (True, [(USER, EXACT, "")], []),
    ],
)
def test_a_filter_finds_what_it_names(
    version: int, strict: bool, components: list[tuple[str, int, str | None]], values: list[float]
) -> None:
    assert found(asked(strict, *components, version=version)) == values


def test_the_quotas_of_one_entity_stand_in_one_entry() -> None:
    answer = asked(True, (USER, EXACT, "alice"))
    (entry,) = answer.entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [(USER, "alice")]
    assert {each.key for each in entry.values} == {"producer_byte_rate", "consumer_byte_rate"}


@pytest.mark.parametrize(
    "keys",
    [
        ["consumer_byte_rate", "producer_byte_rate"],
        ["consumer_byte_rate", "request_percentage", "producer_byte_rate"],
        ["producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage"],
    ],
)
def test_the_quotas_of_one_entity_have_the_order_of_kafka(keys: list[str]) -> None:
    for written in permutations(keys):
        api = Api()
        api.publish(image([({USER: "alice"}, key, 1.0) for key in written]))
        (entry,) = api.send(DescribeClientQuotasRequest(components=[], strict=False), 1).entries
        assert [each.key for each in entry.values] == keys


@pytest.mark.parametrize(
    ("components", "code", "told"),
    [
        ([("", EXACT, "a")], 42, "Invalid empty"),
        ([("group", EXACT, "a")], 35, "Unsupported entity type group"),
        ([(USER, EXACT, "a"), (USER, SPECIFIED, None)], 42, "more than once"),
        ([(USER, EXACT, None)], 42, "MATCH_TYPE_EXACT"),
        ([(USER, DEFAULT, "a")], 42, "MATCH_TYPE_DEFAULT"),
        ([(USER, SPECIFIED, "a")], 42, "MATCH_TYPE_SPECIFIED"),
        ([(USER, 3, None)], 42, "Unknown match type 3"),
        ([(IP, SPECIFIED, None), (USER, SPECIFIED, None)], 42, "combination"),
    ],
)
def test_other_filters_are_refused(
    components: list[tuple[str, int, str | None]], code: int, told: str
) -> None:
    answer = asked(False, *components)
    assert (answer.error_code, answer.entries) == (code, None)
    assert told in answer.error_message
