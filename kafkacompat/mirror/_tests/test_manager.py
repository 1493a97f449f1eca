"""Which partitions follow, and the requests to a source, with a clock moved by the test. The source is a node of ours."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.ids import uuid_to_text
from kafkacompat.metrics.mirror import mirror_families
from kafkacompat.mirror._tests.test_following import Mirror, bytes_of, elect, produce, source_with
from kafkacompat.mirror.manager import MirrorManager
from kafkacompat.mirror.source import SourceUnknown
from kafkacompat.mirror.traffic import MirrorTopicTraffic
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.partition._tests.cluster import T0, Cluster, carried, values_of
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest
from kafkacompat.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafkacompat.wire.messages.list_offsets_request import ListOffsetsRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
)

ANSWER_MS = 100


class SourceChannels:
    """Channels to the source, which answers after some time."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.are_cut = self.are_fetches_cut = False
        self.lost_hosts: set[str] = set()
        self.are_fetches_stale = False
        """They fail with the credentials that were read before the next `renew`."""
        self.closings = 0
        self.is_closed = False
        self.partitions = 1
        self.topic_error = ErrorCode.NONE
        self.asked: list[tuple[str, str]] = []
        self.is_made_again = False
        """The topic is deleted, and made again, before the next question for offsets comes."""

    def get(self, host: str, port: int, purpose: str) -> SourceChannels:
        self.asked.append((host, purpose))
        self.host = host
        return self

    def renew(self) -> Deferred[None]:
        self.are_fetches_stale = False
        return Deferred.of(None)

    def close_all(self) -> None:
        self.is_closed = True
        self.closings += 1

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        reply: Deferred[Any] = Deferred()
        host = self.host
        self.mirror.time.call_after(ANSWER_MS, lambda: self._answer(message, reply, host))
        return reply

    def _answer(self, message: Any, reply: Deferred[Any], host: str) -> None:
        is_fetch = hasattr(message, "max_wait_ms")
        if (
            host in self.lost_hosts
            or self.are_cut
            or (is_fetch and (self.are_fetches_cut or self.are_fetches_stale))
        ):
            reply.fail(ConnectionLost(f"the link to {host} is cut"))
        elif isinstance(message, MetadataRequest):
            reply.resolve(self._metadata())
        else:
            if self.is_made_again and isinstance(message, ListOffsetsRequest):
                self.is_made_again = False
                source = self.mirror.source
                source.topic = topic_image("t", dict(source.topic.partitions), generation=1)
                source.publish()
                source.settle()
            message = carried(message, 18 if is_fetch else 10)
            if is_fetch:
                message.max_wait_ms = 0
            reply.resolve(self.mirror.answer(self.mirror.source.leader(), message))

    def _metadata(self) -> MetadataResponse:
        response = self.mirror.metadata()
        response.brokers = [
            MetadataResponseBroker(node_id=each, host=f"source-{each}", port=1)
            for each in self.mirror.source.ids
        ]
        response.topics[0].error_code = self.topic_error
        response.topics[0].partitions += [
            MetadataResponsePartition(partition_index=index, leader_id=-1)
            for index in range(1, self.partitions)
        ]
        return response


class ManagedMirror(Mirror):
    """A single node with its MirrorManager."""

    def __init__(self, source: Cluster, servers: str = "first:1,second:1") -> None:
        self.servers = servers
        self.channels = SourceChannels(self)
        self.trouble: Exception | None = None
        self.connects = 0
        self.asked_for: list[int] = []
        self.code = ErrorCode.NONE
        super().__init__(source)
        self.begin()

    def begin(self) -> None:
        node = self.leader()
        self.log_config = replace(
            self.log_config,
            mirror_source_bootstrap_servers=self.servers,
            mirror_source_topic_id=uuid_to_text(self.source_id),
        )
        hosted = node.manager.hosted
        self.manager = MirrorManager(node.tasks, self.time, hosted, self.connect, self.create_partitions)
        hosted.mirroring = self.manager
        self.put_state("mirroring")

    def connect(self, servers: str) -> Deferred[SourceChannels]:
        made: Deferred[SourceChannels] = Deferred()
        self.connects += 1
        if self.trouble is not None:
            made.fail(self.trouble)
        else:
            made.resolve(self.channels)
        return made

    def create_partitions(self, request: CreatePartitionsRequest) -> Deferred[CreatePartitionsResponse]:
        self.asked_for.append(request.topics[0].count)
        result = CreatePartitionsTopicResult(name="t", error_code=self.code)
        return Deferred.of(CreatePartitionsResponse(results=[result]))

    def is_equal(self) -> bool:
        return bytes_of(self.log()) == bytes_of(self.source.leader().log()) != b""


def test_a_mirror_follows_its_source_while_it_runs() -> None:
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    assert mirror.is_equal()
    assert mirror.log().high_watermark == 1
    for value, leader in ((b"b", 2), (b"c", 1)):
        elect(source, leader)
        produce(source, value)
        mirror.settle(10_000)
        assert mirror.is_equal()
    assert {("first", "mirror-metadata"), ("source-2", "mirror-fetch")} <= set(mirror.channels.asked)


def test_a_mirror_keeps_its_records_when_the_topic_is_made_again_while_it_asks_for_offsets() -> None:
    """It asks by the name, and both topics have the same leader epoch."""
    source = source_with(b"a", b"b")
    mirror = ManagedMirror(source)
    assert mirror.is_equal()
    mirror.channels.are_fetches_cut = True
    mirror.settle(1_000)
    produce(source, b"c")
    produce(source, b"d")
    source.leader().log().increment_log_start_offset(3)  # type: ignore[attr-defined]
    mirror.channels.are_fetches_cut, mirror.channels.is_made_again = False, True
    mirror.settle(10_000)
    assert not mirror.channels.is_made_again
    assert values_of(mirror.log(), 9) == {0: b"a", 1: b"b"}
    (state,) = [state for _, state in mirror.manager.states()]
    assert state.stands_still


def test_a_source_that_does_not_answer_is_asked_again_through_other_servers() -> None:
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    mirror.channels.are_cut = True
    produce(source, b"b")
    mirror.settle(10_000)
    mirror.channels.asked.clear()
    mirror.settle(20_000)
    assert {"first", "second", "source-1"} <= {host for host, _ in mirror.channels.asked}
    assert not mirror.is_equal()
    mirror.channels.are_cut = False
    mirror.settle(10_000)
    assert mirror.is_equal()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "[Mirror" in each.getMessage()]


def test_leaders_that_cannot_be_reached_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """As with an advertised listener that is not for this site: metadata comes, and records do not."""
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    caplog.set_level(logging.INFO)
    mirror.channels.are_fetches_cut = True
    mirror.settle(60_000)
    assert len(told(caplog)) == 1
    mirror.channels.are_fetches_cut = False
    produce(source, b"b")
    mirror.settle(10_000)
    assert mirror.is_equal()
    assert len(told(caplog)) == 2


def test_a_server_that_is_away_is_told_once_while_others_answer(caplog: pytest.LogCaptureFixture) -> None:
    mirror = ManagedMirror(source_with(b"a"))
    caplog.set_level(logging.INFO)
    mirror.channels.lost_hosts.add("first")
    mirror.settle(300_000)
    assert len(told(caplog)) == 2  # and that the cluster answers again
    assert mirror.connects == 1
    assert mirror.is_equal()


def test_a_source_that_is_away_is_told_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    mirror = ManagedMirror(source_with(b"a"))
    caplog.set_level(logging.INFO)
    mirror.channels.are_cut = True
    mirror.settle(300_000)
    assert len(told(caplog)) <= 6  # each server, and the leader


def test_servers_that_are_no_addresses_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    mirror = ManagedMirror(source_with(b"a"), "nowhere")
    mirror.settle(300_000)
    assert told(caplog) == ["[Mirror source=nowhere] no server has the form HOST:PORT"]
    assert not [each for each in caplog.records if each.exc_info]


def test_a_topic_that_is_deleted_at_the_source_is_looked_for_now_and_then() -> None:
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    mirror.channels.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    mirror.settle(60_000)
    mirror.channels.asked.clear()
    mirror.settle(300_000)
    assert 9 <= len(mirror.channels.asked) <= 11
    mirror.channels.topic_error = ErrorCode.NONE
    produce(source, b"b")
    mirror.settle(40_000)
    assert mirror.is_equal()


def test_properties_are_read_again_when_no_server_answers() -> None:
    """The password there may be another."""
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    mirror.channels.are_cut = True
    mirror.settle(60_000)
    assert 1 < mirror.connects < 20
    assert mirror.channels.closings >= mirror.connects - 1
    mirror.channels.are_cut = False
    produce(source, b"b")
    mirror.settle(10_000)
    assert mirror.is_equal()


def test_properties_are_read_again_when_one_broker_refuses() -> None:
    """The connection for metadata was made with the earlier ones, and lasts."""
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    mirror.channels.are_fetches_stale = True
    produce(source, b"b")
    mirror.settle(10_000)
    assert mirror.is_equal()
    assert mirror.connects == 1


def test_properties_that_cannot_be_read_are_read_again() -> None:
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    mirror.put_state("paused")
    mirror.trouble = SourceUnknown("mirror.client.properties: no such file")
    produce(source, b"b")
    mirror.put_state("mirroring")
    mirror.settle(5_000)
    assert not mirror.is_equal()
    mirror.trouble = None
    mirror.settle(5_000)
    assert mirror.is_equal()


@pytest.mark.parametrize("state", ["paused", "stopped"])
def test_connections_are_closed_when_nothing_follows_any_more(state: str) -> None:
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    mirror.put_state(state)
    assert mirror.channels.is_closed
    mirror.channels.asked.clear()
    produce(source, b"b")
    mirror.settle(60_000)
    assert mirror.channels.asked == []
    assert mirror.log().log_end_offset == 1
    if state == "paused":
        mirror.put_state("mirroring")
        mirror.settle(5_000)
        assert mirror.is_equal()


def test_what_begins_to_follow_right_after_a_look_at_the_source_is_not_forgotten() -> None:
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    (found,) = mirror.manager._sources.values()
    mirror.settle(100_000)
    found._look_soon()
    mirror.settle(2 * ANSWER_MS)
    found.add(mirror.leader().manager.by_name[T0], mirror.source_id, MirrorTopicTraffic())
    produce(source, b"b")
    mirror.settle(5_000)
    assert mirror.is_equal()


def test_a_deleted_mirror_is_not_followed() -> None:
    mirror = ManagedMirror(source_with(b"a"))
    mirror.manager.gone(mirror.leader().manager.by_name[T0])
    assert mirror.channels.is_closed


def test_partitions_that_the_source_has_added_are_added_here() -> None:
    mirror = ManagedMirror(source_with(b"a"))
    mirror.channels.partitions = 3
    mirror.code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    mirror.settle(40_000)
    assert mirror.asked_for == [3]
    mirror.settle(40_000)
    assert mirror.asked_for == [3, 3]


def test_a_stop_of_the_broker_ends_everything() -> None:
    mirror = ManagedMirror(source_with(b"a"))
    mirror.manager.close()
    mirror.channels.asked.clear()
    mirror.settle(60_000)
    assert mirror.channels.is_closed
    assert mirror.channels.asked == []


def samples(mirror: ManagedMirror) -> dict[str, float]:
    """Of the topic."""
    families = mirror_families(mirror.manager.traffic, mirror.manager.states(), 0)
    return {
        family.name.removeprefix("kafkacompat_mirror_"): value
        for family in families
        if family is not None
        for sample in family.samples
        if sample is not None and sample[0] == {"topic": "t"}
        for value in sample[1:]
    }


def test_metrics_tell_how_far_a_topic_is_behind() -> None:
    source = source_with(b"a")
    mirror = ManagedMirror(source)
    size = len(bytes_of(source.leader().log()))
    assert samples(mirror) == {"bytes": size, "partitions": 1, "standing_partitions": 0, "lag_records": 0}
    mirror.channels.are_fetches_cut = True
    mirror.settle(10_000)
    found = samples(mirror)
    assert found["errors"] > 0
    assert found["standing_partitions"] == 1
    mirror.channels.are_fetches_cut = False
    produce(source, b"b")
    mirror.settle(10_000)
    assert samples(mirror)["standing_partitions"] == 0
    mirror.put_state("stopped")
    assert samples(mirror) == {}


def test_a_topic_that_is_made_again_at_the_source_stands_still() -> None:
    mirror = ManagedMirror(source_with(b"a"))
    mirror.channels.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    mirror.settle(60_000)
    assert samples(mirror)["standing_partitions"] == 1
