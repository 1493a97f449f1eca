"""Topologies beside the topics of a cluster: what Kafka's own class makes of them, and the largest ones."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.group.streams.configured_topology import StatusCode, configure_topology
from kafkacompat.group.streams.streams_topology import (
    CopartitionGroup,
    StreamsTopology,
    Subtopology,
    TopicInfo,
)
from kafkacompat.wire.errors import ErrorCode

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "kafka_topologies.jsonl").read_text("utf-8").splitlines()
]
"""Random topologies and topics, and what InternalTopicManager of Apache Kafka 4.4.0 answered when it was called with them."""


def cluster(counts: dict[str, int]) -> Any:
    return SimpleNamespace(
        by_name={name: SimpleNamespace(partitions=range(count)) for name, count in counts.items()}
    )


def infos(told: list[tuple[str, int, int]]) -> tuple[TopicInfo, ...]:
    return tuple(TopicInfo(name, partitions, replicas) for name, partitions, replicas in told)


def topology(told: list[dict[str, Any]]) -> StreamsTopology:
    return StreamsTopology(
        0,
        {
            each["id"]: Subtopology(
                each["id"],
                source_topics=tuple(each["sources"]),
                repartition_sink_topics=tuple(each["sinks"]),
                repartition_source_topics=infos(each["repartition"]),
                state_changelog_topics=infos(each["changelogs"]),
                copartition_groups=tuple(
                    CopartitionGroup(tuple(sources), (), tuple(internal))
                    for sources, internal in each["groups"]
                ),
            )
            for each in told
        },
    )


def answer(told: dict[str, Any]) -> list[Any]:
    try:
        found = configure_topology(topology(told["subtopologies"]), cluster(told["topics"]))
    except OperationRefused as refusal:
        return [refusal.code.name, refusal.message]
    subtopologies = None
    if found.subtopologies is not None:
        subtopologies = [
            [
                subtopology_id,
                each.number_of_tasks,
                {topic.name: topic.number_of_partitions for topic in each.internal_topics()},
            ]
            for subtopology_id, each in found.subtopologies.items()
        ]
    missing = [
        [topic.name, topic.number_of_partitions, topic.replication_factor]
        for topic in found.topics_to_create.values()
    ]
    return [None if found.status is None else found.status.value, found.detail, subtopologies, missing]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_topology_is_configured_as_by_kafka(case: int) -> None:
    assert answer(CASES[case]["told"]) == CASES[case]["configured"]


def test_internal_topics_are_created_with_what_the_client_says_of_them() -> None:
    told = Subtopology(
        "0",
        source_topics=("t",),
        state_changelog_topics=(
            TopicInfo("app-s-changelog", 0, 2, (("cleanup.policy", "compact"), ("segment.bytes", "1048576"))),
            TopicInfo("app-r-changelog"),
        ),
    )
    found = configure_topology(StreamsTopology(3, {"0": told}), cluster({"t": 5}))
    assert found.subtopologies is not None
    assert found.subtopologies["0"].is_stateful
    assert (found.status, found.is_ready) == (StatusCode.MISSING_INTERNAL_TOPICS, False)
    created = found.topics_to_create["app-s-changelog"]
    assert (created.number_of_partitions, created.replication_factor) == (5, 2)
    assert dict(created.configs) == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert found.topics_to_create["app-r-changelog"].replication_factor == -1


def test_more_than_three_missing_topics_are_counted() -> None:
    told = Subtopology("0", source_topics=tuple("edcba"))
    found = configure_topology(StreamsTopology(0, {"0": told}), cluster({"c": 1}))
    assert (found.status, found.subtopologies) == (StatusCode.MISSING_SOURCE_TOPICS, None)
    assert found.detail == "Source topics a, b, d and 1 additional topics are missing."


@pytest.mark.parametrize(
    "told",
    [
        Subtopology("0", source_topics=("t",), copartition_groups=(CopartitionGroup((1,)),)),
        Subtopology("0", source_topics=("t",), copartition_groups=(CopartitionGroup((-1,)),)),
        Subtopology("0", source_topics=("t",), state_changelog_topics=(TopicInfo("c"), TopicInfo("c"))),
        Subtopology("0", source_topics=("t",), repartition_source_topics=(TopicInfo("r", -1),)),
        Subtopology(
            "0",
            source_topics=("t",),
            state_changelog_topics=(TopicInfo("c", configs=(("k", "1"), ("k", "2"))),),
        ),
    ],
)
def test_what_kafka_does_not_expect_is_an_unknown_error_as_there(told: Subtopology) -> None:
    with pytest.raises(OperationRefused) as refused:
        configure_topology(StreamsTopology(0, {"0": told}), cluster({"t": 1}))
    assert (refused.value.code, refused.value.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


def chain(length: int) -> StreamsTopology:
    """Each subtopology reads what the next one in the order of their ids writes, so that each pass over them decides one."""
    return StreamsTopology(
        0,
        {
            f"{number:05}": Subtopology(
                f"{number:05}",
                source_topics=("t",) if number == length - 1 else (),
                repartition_sink_topics=(f"r{number}",),
                repartition_source_topics=() if number == length - 1 else (TopicInfo(f"r{number + 1}"),),
            )
            for number in range(length)
        },
    )


def test_a_long_chain_is_decided_from_its_end() -> None:
    found = configure_topology(chain(2_000), cluster({"t": 2}))
    assert found.subtopologies is not None
    assert {each.number_of_tasks for each in found.subtopologies.values()} == {2}
    assert len(found.topics_to_create) == 1_999
