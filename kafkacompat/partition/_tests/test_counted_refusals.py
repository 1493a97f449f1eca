"""Which refusals of a Produce count as failed requests, as in Kafka: what an append throws, except for a few codes."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from kafkacompat.api import produce
from kafkacompat.config import LogConfig
from kafkacompat.ids import TopicPartition
from kafkacompat.partition import replica_manager
from kafkacompat.partition._tests.kit import LedPartitions, batch_of, partition_image, topic_image
from kafkacompat.partition.hosted_partitions import HostedPartitions
from kafkacompat.partition.replica_manager import WITHOUT_FAILURE
from kafkacompat.ports import LogRefused, RefusedAtSight
from kafkacompat.records.validate import Allowance, TooMuchAtOnce
from kafkacompat.wire.errors import ErrorCode

NAME = TopicPartition("t", 0)
NOT_COUNTED = {
    "INVALID_TOPIC_EXCEPTION": "an internal topic is refused before its partition is looked for",
    "KAFKA_STORAGE_ERROR": "Kafka does not count it: WITHOUT_FAILURE",
    "NOT_LEADER_OR_FOLLOWER": "Kafka does not count what is asked of the wrong broker",
    "UNKNOWN_TOPIC_ID": "as above",
    "UNKNOWN_TOPIC_OR_PARTITION": "as above",
    "INVALID_RECORD": "a partition without records, which no append sees",
    "INVALID_REQUIRED_ACKS": "refuses the request before any append",
}
"""The codes of results that are made without `_refused`, and why."""


def counts(world: LedPartitions) -> tuple[int, int]:
    core = world.manager.core(NAME)
    assert core is not None
    return core.traffic.produces, core.traffic.failed_produces


def test_whatever_is_refused_without_being_counted_is_named() -> None:
    found = {
        call.args[0].attr
        for module in (replica_manager, produce)
        for call in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "ProduceResult"
        and call.args
        and isinstance(call.args[0], ast.Attribute)
        and isinstance(call.args[0].value, ast.Name)
        and call.args[0].value.id == "ErrorCode"
    }
    found |= set(re.findall(r"ErrorCode\.(\w+)", inspect.getsource(HostedPartitions.absent)))
    assert found == set(NOT_COUNTED), (
        "pass it to `_refused`, which counts it, or say here why Kafka does not. txn/marker_writer.py answers markers "
        "with it: a coordinator of Apache Kafka does not send one again after a code that it does not expect there"
    )


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_a_refused_append_is_a_failure_or_kafka_says_otherwise(code: ErrorCode) -> None:
    world = LedPartitions(topic_image("t"))
    assert world.manager.append(NAME, LogRefused(code), 1, 13, False).error is code
    assert counts(world) == (1, int(code not in WITHOUT_FAILURE))


def test_too_few_replicas_in_sync_are_a_failure_that_tells_the_log_start() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(replicas=(1, 2), isr=(1,))}))
    world.log().config = LogConfig(min_insync_replicas=2)
    result = world.produce(acks=-1)
    assert (result.error, result.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    assert counts(world) == (1, 1)


def test_what_is_refused_by_its_structure_is_no_attempt() -> None:
    world = LedPartitions(topic_image("t"))
    batch = batch_of(b"x")
    assert world.manager.append(NAME, batch * 2, 1, 13, False).error is ErrorCode.INVALID_RECORD
    assert counts(world) == (0, 0)
    checked = RefusedAtSight(ErrorCode.INVALID_RECORD)
    assert world.manager.append(NAME, checked, 1, 13, False).error is ErrorCode.INVALID_RECORD
    assert counts(world) == (0, 0)


def test_a_batch_that_is_opened_in_steps_is_one_attempt() -> None:
    world = LedPartitions(topic_image("t"))
    batch, nothing = batch_of(b"x"), Allowance()
    nothing.units = 0
    with pytest.raises(TooMuchAtOnce):
        world.manager.append(NAME, batch, 1, 13, False, allowance=nothing)
    assert counts(world) == (0, 0)
    opened = world.manager.validate(NAME, batch, 13)
    world.settle()
    assert world.manager.append(NAME, opened.result(), 1, 13, False).error is ErrorCode.NONE
    assert counts(world) == (1, 0)
