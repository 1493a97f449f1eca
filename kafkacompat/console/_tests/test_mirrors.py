"""Which topics are mirrors of another cluster, by their settings."""

from __future__ import annotations

from kafkacompat.console._tests.making import partition, snapshot, topic
from kafkacompat.console.core.mirrors import TOPICS_A_REQUEST, mirrors_in, mirrors_requests
from kafkacompat.console.core.snapshot import MirrorSeen
from kafkacompat.console.state import ConsoleState
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

OF_TOPIC, DEFAULT = 1, 5


def result(name: str, *settings: tuple[str, str | None, int], error: int = 0) -> DescribeConfigsResult:
    configs = [
        DescribeConfigsResourceResult(name=key, value=value, config_source=source)
        for key, value, source in settings
    ]
    return DescribeConfigsResult(error_code=error, resource_type=2, resource_name=name, configs=configs)


def test_topics_with_the_name_of_a_mirror_are_mirrors() -> None:
    answer = DescribeConfigsResponse(
        results=[
            result(
                "orders",
                ("mirror.name", "site-b", OF_TOPIC),
                ("mirror.source.bootstrap.servers", "a:1,b:2", OF_TOPIC),
                ("mirror.state", "paused", OF_TOPIC),
            ),
            result("plain", ("mirror.name", "", DEFAULT), ("mirror.state", "stopped", DEFAULT)),
            result("ended", ("mirror.name", "site-c", OF_TOPIC), ("mirror.state", "stopped", DEFAULT)),
            result("hidden", ("mirror.name", "site-d", OF_TOPIC), error=29),
            result("kafka"),
        ]
    )
    assert mirrors_in(answer) == [
        MirrorSeen("orders", "site-b", "a:1,b:2", "paused"),
        MirrorSeen("ended", "site-c", "", "stopped"),
    ]


def test_all_topics_but_internal_ones_are_asked_for_in_parts() -> None:
    topics = [topic("__consumer_offsets", internal=True), *(topic(f"t{each}") for each in range(501))]
    asked = [[each.resource_name for each in request.resources] for request in mirrors_requests(topics)]
    assert [len(part) for part in asked] == [TOPICS_A_REQUEST, 1]
    assert asked[0][0] == "t0"


def test_the_page_has_those_of_the_topics_that_are_there() -> None:
    state = ConsoleState(ClusterAddress("h:1"), 0, "run")
    state.mirrored((MirrorSeen("early", "m", "s", "mirroring"),))
    state.looked(snapshot(topic("b", partition(0), partition(1)), topic("a", partition(0))))
    state.mirrored(
        (
            MirrorSeen("b", "m", "s:1", "mirroring"),
            MirrorSeen("gone", "m", "s:1", "mirroring"),
            MirrorSeen("a", "m", "s:1", "stopped"),
        )
    )
    assert state.cluster(0)()["cluster"]["mirrors"] == [
        {"mirror": "m", "topic": "a", "source": "s:1", "state": "stopped", "partitions": 1},
        {"mirror": "m", "topic": "b", "source": "s:1", "state": "mirroring", "partitions": 2},
    ]
