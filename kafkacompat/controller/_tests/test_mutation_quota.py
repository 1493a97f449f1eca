"""controller_mutation_rate: newer versions are refused, older ones are carried out, and both are told the throttle time."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api.request_context import RequestContext
from kafkacompat.controller._tests.harness import Harness
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest

REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Quota:
    value = 1.0


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.start().serve()
    made.quotas.take({((("user", "ANONYMOUS"),), "controller_mutation_rate"): Quota()})
    return made


def ask(harness: Harness, version: int, request: Any) -> Any:
    sender = RequestContext(type(request).API_KEY, version, 1, "client", 5, "CONTROLLER", "127.0.0.1")
    command = {
        19: harness.controller.create_topics,
        20: harness.controller.delete_topics,
        37: harness.controller.create_partitions,
    }[type(request).API_KEY]
    return harness.call(lambda asked, _: command(asked, sender), request)


def creating(*names: str, partitions: int = 8, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


def test_a_strict_version_is_refused_topic_by_topic(harness: Harness) -> None:
    answer = ask(harness, 7, creating("a", "b", "c"))
    # Eleven tokens: the second topic uses more than there are, and the third one is refused.
    assert [each.error_code for each in answer.topics] == [0, 0, REFUSED]
    assert answer.topics[2].error_message is None
    assert answer.throttle_time_ms == 5_000
    assert set(harness.machine.image.topics) == {"a", "b"}


def test_an_older_version_is_only_throttled(harness: Harness) -> None:
    answer = ask(harness, 5, creating("a", "b", "c"))
    assert [each.error_code for each in answer.topics] == [0, 0, 0]
    assert answer.throttle_time_ms == 13_000


def test_what_is_only_validated_uses_the_quota_too(harness: Harness) -> None:
    ask(harness, 7, creating("a", "b", validate_only=True))
    assert ask(harness, 7, creating("c")).topics[0].error_code == REFUSED


def test_partitions_and_deletions_use_the_same_quota(harness: Harness) -> None:
    ask(harness, 7, creating("a", "b"))
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=9, assignments=None)])
    refused = ask(harness, 3, more)
    assert (refused.results[0].error_code, refused.throttle_time_ms) == (REFUSED, 5_000)
    gone = ask(harness, 5, DeleteTopicsRequest(topic_names=["b"]))
    assert (gone.responses[0].error_code, gone.throttle_time_ms) == (REFUSED, 5_000)
    old = ask(harness, 2, more)
    assert (old.results[0].error_code, old.throttle_time_ms) == (0, 6_000)
    old = ask(harness, 4, DeleteTopicsRequest(topic_names=["b"]))
    assert (old.responses[0].error_code, old.throttle_time_ms) == (0, 14_000)
    assert set(harness.machine.image.topics) == {"a"}


def test_what_is_refused_for_another_reason_uses_no_quota(harness: Harness) -> None:
    for _ in range(5):
        assert ask(harness, 7, creating("..")).throttle_time_ms == 0
    assert ask(harness, 7, creating("a")).topics[0].error_code == 0


def test_without_the_quota_nothing_is_throttled(harness: Harness) -> None:
    harness.quotas.take({})
    answer = ask(harness, 7, creating("a", "b", "c"))
    assert [each.error_code for each in answer.topics] == [0, 0, 0]
    assert answer.throttle_time_ms == 0
