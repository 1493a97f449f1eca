"""ShareFetch and ShareAcknowledge through the dispatcher: who is refused, and how records are sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.api._tests.test_long_requests import stepping_api
from kafkacompat.partition._tests.kit import LedPartitions, topic_image
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.records.batch import iterate_batches
from kafkacompat.share._tests.kit import ShareLeader
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from kafkacompat.wire.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest

MEMBER = "m" * 36


class ShareApi(Api):
    def __init__(self, monkeypatch: pytest.MonkeyPatch, level: int = 1) -> None:
        monkeypatch.setattr("kafkacompat.api._tests.kit.LedPartitions", _share_world)
        super().__init__(topic_image("t"))
        shares = self.world.shares  # type: ignore[attr-defined]
        self.node.shares = shares
        self.dispatcher._when_closed = [shares.on_connection_closed]
        features = {**self.world.image.features, "share.version": level}
        self.publish(replace(self.world.image, features=features))

    def fetch(self, version: int = 2, **fields: Any) -> Any:
        values = {
            "group_id": "g",
            "member_id": MEMBER,
            "max_records": 10,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
        }
        request = ShareFetchRequest(**{**values, **fields})
        request.topics = [
            FetchTopic(
                topic_id=self.world.image.topics["t"].id, partitions=[FetchPartition(partition_index=0)]
            )
        ]
        return self.send(request, version)


def _share_world(*topics: Any, **_: Any) -> LedPartitions:
    return ShareLeader(*topics)


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_sent_as_they_lie_in_the_log(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    api = ShareApi(monkeypatch)
    api.world.produce("t", 0, b"one", b"two")
    answer = api.fetch(version)
    (row,) = answer.responses[0].partitions
    assert [header.record_count for header in iterate_batches(row.records)] == [2]
    assert [(each.first_offset, each.last_offset) for each in row.acquired_records] == [(0, 1)]


def test_a_closed_connection_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ShareApi(monkeypatch)
    assert isinstance(api.fetch(max_wait_ms=500), Pending)
    api.dispatcher.connection_closed(api.connection)
    shares = api.world.shares  # type: ignore[attr-defined]
    assert (len(shares.sessions), shares.cache.count, len(shares.fetches.purgatory)) == (0, 0, 0)


def test_without_the_feature_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ShareApi(monkeypatch, level=0)
    assert api.fetch().error_code == ErrorCode.UNSUPPORTED_VERSION
    request = ShareAcknowledgeRequest(group_id="g", member_id=MEMBER, share_session_epoch=1)
    assert api.call(request, 2).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("fields", [{"group_id": None}, {"member_id": ""}, {"member_id": "m" * 37}])
def test_group_and_member_must_be_named(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    api = ShareApi(monkeypatch)
    assert api.fetch(**fields).error_code == ErrorCode.INVALID_REQUEST
    values = {"group_id": "g", "member_id": MEMBER, "share_session_epoch": 1, **fields}
    assert api.call(ShareAcknowledgeRequest(**values), 2).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("field", ["max_bytes", "min_bytes", "max_records", "max_wait_ms"])
def test_a_renewal_asks_for_nothing(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    api = ShareApi(monkeypatch)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    refused = api.fetch(is_renew_ack=True, **{**nothing, field: 1})
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert api.fetch(is_renew_ack=True, **nothing).error_code == ErrorCode.NONE


@pytest.mark.parametrize("steps", range(8))
def test_a_first_fetch_in_steps_keeps_nothing_for_a_connection_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Nothing would ever end such a session, and the number of sessions is bounded for all members of the node."""
    api = stepping_api(of=ShareApi(monkeypatch))
    shares = api.world.shares  # type: ignore[attr-defined]
    api.dispatcher._when_closed = [shares.on_connection_closed]
    request = ShareFetchRequest(group_id="g", member_id=MEMBER, max_records=10, max_wait_ms=500, max_bytes=1)
    partitions = [FetchPartition(partition_index=index) for index in range(5_000)]
    request.topics = [FetchTopic(topic_id=api.world.image.topics["t"].id, partitions=partitions)]
    assert isinstance(api.send(request, 2), Pending)
    for _ in range(steps):
        api.world.time.step()
    api.dispatcher.connection_closed(api.connection)
    api.world.settle()
    assert (len(shares.sessions), shares.cache.count, len(shares.fetches.purgatory)) == (0, 0, 0)
    assert not api.dispatcher._parked
