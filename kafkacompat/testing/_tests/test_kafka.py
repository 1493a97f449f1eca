"""What a test holds: state that comes and goes, and what it says of it. No client is involved."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
import trio

from kafkacompat.addresses import split_host_and_port
from kafkacompat.deferred import Deferred
from kafkacompat.testing import Kafka, KafkaCluster, Record, Refused
from kafkacompat.testing._tests.test_node import api_versions_of, asked_again, received
from kafkacompat.testing.kafka import Snapshot
from kafkacompat.testing.links import TIMER_MAX_MS
from kafkacompat.testing.node import NodeEnded, NodeThread
from kafkacompat.testing.waiting import in_thread, until
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_response_header, request_frame
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.fetch_response import FetchResponse


@pytest.fixture(params=["in process", "as a process"])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    with Kafka(process=request.param == "as a process") as kafka:
        yield kafka


@pytest.fixture
def kafka_here() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


def values(records: list[Record]) -> list[bytes | None]:
    return [each.value for each in records]


# Topics and records.


def test_a_topic_has_a_name_of_its_own_and_goes(kafka: Kafka) -> None:
    with kafka.topic("orders", partitions=3) as topic:
        assert topic.startswith("orders-")
        assert kafka.topics() == {topic: 3}
        assert kafka.topic("orders") != topic
    assert topic not in kafka.topics()
    kafka.end_test()
    assert kafka.topics() == {}


def test_what_a_test_has_done_to_its_kafka_does_not_reach_the_next_one(kafka: Kafka) -> None:
    kafka.produce("t", ["x"])
    kafka.topic()
    kafka.clock.freeze()
    kafka.kill_node(1)
    kafka.end_test()
    assert not kafka.clock.is_frozen
    assert kafka.topics() == {"t": 1}
    assert api_versions_of(kafka.bootstrap_servers) == 7


def test_a_refusal_has_kafkas_code_and_text(kafka: Kafka) -> None:
    with pytest.raises(Refused, match=r"topic a b.*INVALID_TOPIC") as refused:
        kafka.create_topic("a b")
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_records_are_read_from_the_brokers_log(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["tea", None, {"sugar": 2}], key="a", headers={"h": "x"}, timestamp_ms=5)
    first, second, third = kafka.records(topic)
    assert first == Record(topic, 0, 0, 5, b"a", b"tea", (("h", b"x"),))
    assert second.value is None
    assert third.value == b'{"sugar": 2}'
    assert kafka.ends(topic)[0].high_watermark == 3


def test_many_records_are_read_in_order(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [f"{number}" for number in range(2_000)])
    assert [int(each.value or b"") for each in kafka.records(topic)] == list(range(2_000))


def test_a_key_chooses_the_partition_that_kafkas_clients_choose(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=10)
    kafka.produce(topic, ["x"], key="a")
    (record,) = kafka.records(topic)
    assert record.partition == 4  # murmur2


def test_a_partition_that_does_not_exist_is_refused_at_once(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    with pytest.raises(Refused, match=rf"topic {topic} has 2 partitions, and no partition 2") as refused:
        kafka.produce(topic, ["x"], partition=2)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_does_not_exist_is_named_beside_those_that_do(kafka: Kafka) -> None:
    kafka.create_topic("there")
    with pytest.raises(LookupError, match="topic gone does not exist; those that do: there"):
        kafka.records("gone")


# What tests say.


def test_what_was_produced(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, ["a", "b"], partition=0)
    kafka.produce(topic, ["c", {"d": [1]}], partition=1)
    kafka.assert_produced(topic, ["a", "b"], partition=0)
    kafka.assert_produced(topic, ["c", "a", {"d": [1]}, "b"])
    with pytest.raises(AssertionError, match="in another order"):
        kafka.assert_produced(topic, ["c", "b", {"d": [1]}, "a"], timeout_s=0)


def test_json_is_compared_as_what_it_means(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [json.dumps({"a": 1, "b": 2}, indent=2)])
    kafka.assert_produced(topic, [{"b": 2, "a": 1}])


def test_what_json_says_of_a_tuple_is_a_list(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [(1, 2), {3: "c"}])
    kafka.assert_produced(topic, [(1, 2), {3: "c"}])


def test_what_compares_itself_is_compared_within_json(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [{"price": 0.1 + 0.2, "at": "noon"}, {3: ("c", 1)}])
    third = {"price": pytest.approx(0.3), "at": mock.ANY}
    kafka.assert_produced(topic, [third, {3: ("c", mock.ANY)}])
    with pytest.raises(AssertionError) as failed:
        kafka.assert_produced(topic, [third, {"cost": mock.ANY}], timeout_s=0)
    assert str(failed.value).splitlines()[1:] == [
        """  missing: b'{"cost": "<ANY>"}'""",
        """  unexpected: b'{"3": ["c", 1]}' (after 0 s)""",
    ]


def test_a_record_is_taken_once_for_what_compares_itself_and_may_have_no_value(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [{"a": 1}])
    with pytest.raises(AssertionError, match=r"missing: .*<ANY>"):
        kafka.assert_produced(topic, [{"a": mock.ANY}, {"a": 1}], timeout_s=0)
    kafka.produce(topic, [None], key="gone")
    with pytest.raises(AssertionError, match="unexpected: null"):
        kafka.assert_produced(topic, [{"a": 1}, {"a": mock.ANY}], timeout_s=0)
    kafka.assert_produced(topic, [{"a": mock.ANY}, None])


def test_json_that_is_there_in_other_words_is_not_told_as_missing(kafka: Kafka) -> None:
    kafka.produce("orders", ['{"b":2,"a":1}', "no JSON", "5"])
    kafka.produce("other", ['{"c":3}'])
    with pytest.raises(AssertionError) as failed:
        kafka.assert_produced("orders", [{"a": 1, "b": 2}, {"c": 3}, "5"], timeout_s=0)
    assert str(failed.value).splitlines()[1:] == [
        "  missing: b'{\"c\": 3}'",
        "  unexpected: b'no JSON'",
        "  what is missing is in other (after 0 s)",
    ]
    with pytest.raises(AssertionError, match="in another order"):
        kafka.assert_produced("orders", ["no JSON", {"a": 1, "b": 2}, 5], timeout_s=0)


def test_only_records_with_the_key_and_the_headers_count(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["mine"], key="k", headers={"h": "1", "i": "2"})
    kafka.produce(topic, ["other"], key="l", headers={"h": "1"})
    kafka.assert_produced(topic, ["mine"], key="k")
    kafka.assert_produced(topic, ["mine"], headers={"i": "2"})
    kafka.assert_produced(topic, ["mine", "other"], headers={"h": "1"})


def test_a_failure_says_what_is_there_and_where_it_went(kafka: Kafka) -> None:
    kafka.create_topic("right")
    kafka.produce("wrong", ["tea"])
    kafka.produce("right", ["cake"], key="k")
    with pytest.raises(AssertionError) as failed:
        kafka.assert_produced("right", ["tea"], timeout_s=0.05)
    text = str(failed.value)
    assert "missing: b'tea'" in text
    assert "unexpected: b'cake'" in text
    assert "what is missing is in wrong" in text
    with pytest.raises(AssertionError, match="topic nowhere does not exist; those that do: right, wrong"):
        kafka.assert_produced("nowhere", ["tea"], timeout_s=0.05)


def test_what_does_not_come_true_is_told(kafka: Kafka) -> None:
    with pytest.raises(AssertionError, match="group g does not exist; those that do: none"):
        kafka.joined("g", timeout_s=0.05)
    with pytest.raises(AssertionError, match="does not hold"):
        kafka.wait_until(lambda: False, timeout_s=0.05)


def test_there_is_no_group_and_no_transaction_at_first(kafka: Kafka) -> None:
    assert kafka.groups() == {}
    assert kafka.transactions() == {}
    assert kafka.committed("g") == {}


def test_a_fetch_that_finds_nothing_is_answered_before_its_time(kafka: Kafka) -> None:
    kafka.produce("t", ["x"])
    request = FetchRequest(max_wait_ms=3_600_000, min_bytes=1)
    request.topics = [FetchTopic(topic="t", partitions=[FetchPartition(fetch_offset=1)])]
    address = split_host_and_port(kafka.bootstrap_servers)
    assert address is not None
    with socket.create_connection(address, timeout=30) as client:
        client.sendall(request_frame(request, 12, 7, None))
        reply = received(client, int.from_bytes(received(client, 4), "big"))
    _, position = parse_response_header(reply, ApiKey.FETCH, 12)
    (partition,) = decode(FetchResponse, 12, reply, position).responses[0].partitions
    assert (partition.error_code, partition.high_watermark, partition.records) == (0, 1, b"")


# State as a whole.


def test_reset_forgets_everything_and_keeps_connections(kafka: Kafka) -> None:
    address = split_host_and_port(kafka.bootstrap_servers)
    assert address is not None
    with socket.create_connection(address, timeout=10) as client:
        assert asked_again(client, 1) == 1
        kafka.produce("t", ["x"])
        kafka.reset()
        assert kafka.topics() == {}
        assert asked_again(client, 2) == 2
        kafka.produce("t", ["y"])
        assert values(kafka.records("t")) == [b"y"]


def test_nodes_go_on_when_there_is_no_room_for_the_state_to_go_back_to() -> None:
    kafka, node = Kafka(), mock.Mock(spec=NodeThread, is_running=True)
    kafka.nodes = {1: node}
    snapshot = mock.Mock(spec=Snapshot)
    snapshot.copies.side_effect = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        kafka.restore(snapshot)
    node.begin_retirement.assert_not_called()
    kafka._ports.release()


def test_copies_of_a_state_for_which_there_is_no_room_leave_nothing() -> None:
    first, second, copied = mock.Mock(), mock.Mock(), mock.Mock()
    first.copy.return_value = copied
    second.copy.side_effect = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        Snapshot({1: first, 2: second}).copies(mock.Mock())
    copied.close.assert_called_once_with()
    first.close.assert_not_called()


def test_a_snapshot_is_restored_as_often_as_one_likes(kafka: Kafka) -> None:
    kafka.produce("t", ["x"])
    snapshot = kafka.snapshot()
    for _ in range(3):
        kafka.produce("t", ["y"])
        kafka.produce("u", ["z"])
        kafka.restore(snapshot)
        assert kafka.topics() == {"t": 1}
        assert values(kafka.records("t")) == [b"x"]


def test_a_fork_goes_its_own_way(kafka: Kafka) -> None:
    kafka.produce("t", ["x"])
    with kafka.fork() as other:
        assert other.bootstrap_servers != kafka.bootstrap_servers
        other.produce("t", ["other"])
        kafka.produce("t", ["own"])
        assert values(other.records("t")) == [b"x", b"other"]
        assert values(kafka.records("t")) == [b"x", b"own"]
        other.reset()
        assert other.topics() == {}
    assert values(kafka.records("t")) == [b"x", b"own"]


@pytest.mark.parametrize("process", [False, True])
def test_no_broker_of_a_fork_waits_for_the_one_that_it_is_a_copy_of(process: bool) -> None:
    """Nor does one of a fork that goes back to a state of the Kafka before it."""
    with KafkaCluster(process=process) as kafka, kafka.fork() as other:
        other.reset()
        told = str(other.log)
        assert told.count("registered with broker epoch") >= 6
        assert "DUPLICATE_BROKER_REGISTRATION" not in told


def test_the_files_of_a_fork_are_as_old_as_its_own_clock_says(kafka_here: Kafka) -> None:
    kafka = kafka_here
    with kafka.fork() as other:
        other.clock.advance(days=1)
        for _ in range(2):
            other.produce("t", ["x"])
            age_ms = other._disks[1].modified_ms("/kafka/t-0/00000000000000000000.log") - kafka.clock.now_ms()
            assert age_ms > 12 * 3_600_000
            other.reset()


def test_what_was_written_outlives_a_kill_and_the_port_stays(kafka: Kafka) -> None:
    before = kafka.bootstrap_servers
    kafka.produce("t", ["x"])
    kafka.kill_node(1)
    with pytest.raises(ConnectionRefusedError):
        api_versions_of(before)
    kafka.start_node(1)
    assert kafka.bootstrap_servers == before
    assert api_versions_of(before) == 7
    assert values(kafka.records("t")) == [b"x"]
    kafka.stop_node(1)
    kafka.start_node(1)
    assert values(kafka.records("t")) == [b"x"]


def test_a_node_that_runs_is_not_started_again(kafka: Kafka) -> None:
    kafka.produce("t", ["x"])
    with pytest.raises(RuntimeError, match="node 1 runs already"):
        kafka.start_node(1)
    kafka.produce("t", ["y"])
    assert values(kafka.records("t")) == [b"x", b"y"]
    kafka.stop()
    with pytest.raises(ConnectionRefusedError):
        api_versions_of(kafka.bootstrap_servers)


def test_a_start_that_is_refused_leaves_no_node() -> None:
    kafka = Kafka({"offsets.topic.replication.factor": 3})
    with pytest.raises(Refused, match="INVALID_REPLICATION_FACTOR"):
        kafka.start()
    assert not any(node.is_running for node in kafka.nodes.values())


def test_it_keeps_what_its_nodes_log_and_tells_nobody_else(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.produce("t", ["x"])
    assert "registered with broker epoch" in str(kafka.log)
    assert not caplog.records


# Where it runs.


def test_a_cluster_has_nodes_that_come_and_go() -> None:
    with KafkaCluster() as kafka:
        assert len(kafka.bootstrap_servers.split(",")) == 3
        topic = kafka.topic(partitions=3)
        kafka.produce(topic, ["x"], partition=2)
        kafka.kill_node(3)
        kafka.produce(topic, ["y"], partition=2)
        kafka.start_node(3)
        kafka.assert_produced(topic, ["x", "y"])
        kafka.reset()
        assert kafka.topics() == {}
        kafka.produce("t", ["z"])
        assert values(kafka.records("t")) == [b"z"]


def test_no_node_of_a_cluster_begins_again_before_all_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that still runs would give the others of the next quorum what it knows."""
    steps: list[tuple[str, int]] = []
    finish_jobs, next_life = NodeThread._finish_jobs, NodeThread._next_life

    async def finish_last(node: NodeThread) -> None:
        for _ in range(50 if node.config.node_id == 3 else 0):
            if any(step == "begins" for step, _ in steps):
                break
            await trio.sleep(0.01)
        await finish_jobs(node)
        steps.append(("ends", node.config.node_id))

    async def begin(node: NodeThread) -> Any:
        steps.append(("begins", node.config.node_id))
        return await next_life(node)

    with KafkaCluster() as kafka:
        monkeypatch.setattr(NodeThread, "_finish_jobs", finish_last)
        monkeypatch.setattr(NodeThread, "_next_life", begin)
        kafka.reset()
        assert [step for step, _ in steps] == ["ends"] * 3 + ["begins"] * 3


def test_a_cluster_of_which_most_nodes_are_dead_or_paused_goes_back_to_a_state() -> None:
    with KafkaCluster() as kafka:
        kafka.create_topic("t")
        kafka.pause_node(1)
        snapshot = kafka.snapshot()
        kafka.kill_node(2)
        kafka.kill_node(3)
        kafka.restore(snapshot)
        assert kafka.topics() == {"t": 1}
        assert len(kafka._running()) == 3


def test_a_node_that_does_not_run_cannot_be_paused(kafka: Kafka) -> None:
    kafka.kill_node(1)
    with pytest.raises(NodeEnded, match="node 1 does not run"):
        kafka.pause_node(1)
    kafka.start_node(1)
    kafka.pause_node(1)
    kafka.resume_node(1)


def test_a_kafka_whose_nodes_are_dead_or_paused_says_so(kafka: Kafka) -> None:
    kafka.pause_node(1)
    with pytest.raises(NodeEnded, match="no node runs, or all are paused"):
        kafka.topics()
    kafka.kill_node(1)
    for ask in (lambda: kafka.records("t"), kafka.topic, lambda: kafka.delete_topic("t")):
        with pytest.raises(NodeEnded, match="no node runs"):
            ask()


def test_a_slow_disk_holds_up_only_those_who_wait_for_it(kafka: Kafka) -> None:
    slow = kafka.faults.slow_disk(60_000, topic="__cluster_metadata", times=None)

    def create() -> None:
        with suppress(NodeEnded):
            kafka.create_topic("t")

    creator = threading.Thread(target=create)
    creator.start()
    slow.wait()
    assert api_versions_of(kafka.bootstrap_servers) == 7
    assert kafka.topics() == {}
    kafka.kill_node(1)
    creator.join()


def test_what_a_cut_link_has_lost_is_told_to_a_node_that_was_paused(kafka_here: Kafka) -> None:
    answer: Deferred[None] = Deferred()
    kafka = kafka_here
    links = kafka._node_links[1]
    kafka.node.call(lambda: links.lose(answer, kafka.node.time.work_timers, TIMER_MAX_MS))
    kafka.pause_node(1)
    kafka.heal()
    assert not answer.done
    kafka.resume_node(1)
    until(lambda: answer.done, 10, lambda: "the answer is still awaited")
    assert answer.has_failed


async def test_async_with_under_trio() -> None:
    async with Kafka() as kafka:
        assert api_versions_of(kafka.bootstrap_servers) == 7


def test_async_with_under_asyncio() -> None:
    async def main() -> int:
        async with Kafka() as kafka:
            return api_versions_of(kafka.bootstrap_servers)

    assert asyncio.run(main()) == 7


def test_a_start_that_asyncio_cancels_leaves_no_node() -> None:
    kafka = Kafka()

    async def main() -> None:
        async with asyncio.timeout(0.001), kafka:
            await asyncio.sleep(3_600)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert not any(node.is_running for node in kafka.nodes.values())
    assert kafka._ports.numbers == []


def test_a_caller_that_asyncio_cancels_waits_for_the_end_of_what_it_has_begun() -> None:
    begun, may_end = threading.Event(), threading.Event()
    told: list[str] = []

    def work() -> None:
        begun.set()
        assert may_end.wait(60)
        told.append("the end")

    async def main() -> None:
        caller = asyncio.create_task(in_thread(work, lambda: told.append("undone")))
        await asyncio.to_thread(begun.wait)
        for _ in range(2):
            caller.cancel()
            await asyncio.wait([caller], timeout=0)
            await asyncio.sleep(0)
            assert not caller.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await caller

    asyncio.run(main())
    assert told == ["the end", "undone"]
