"""Requests that are repeated byte for byte: which are kept, and who gets the earlier reply."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api import route
from kafkacompat.api._tests.kit import Api
from kafkacompat.api._tests.test_throttling import Throttled
from kafkacompat.api.meters import RequestMeters
from kafkacompat.api.request_context import RequestContext
from kafkacompat.api.route import SIZE_MAX, Repeat, Repeats
from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


class Groups:
    """A service that says how to answer again. It counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.again = 0
        self.is_same = True
        self.held: Deferred[Any] | None = None

    def consumer_group_heartbeat(self, request: Any, context: RequestContext, may_describe: Any) -> Any:
        self.asked += 1
        context.again = self._again
        return self.held or Deferred.of(
            ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=self.asked)
        )

    def _again(self) -> bool:
        self.again += self.is_same
        return self.is_same


def served(throttled: Throttled | None = None) -> tuple[Api, Groups]:
    api = Api(topic_image("t", 1)) if throttled is None else throttled.api
    groups = Groups()
    api.node.groups = groups  # type: ignore[assignment]
    api.node.image = api.node.image.__class__(features={"group.version": 1})
    api.dispatcher._route(68, 1)  # the first request of all makes it, and is not kept
    return api, groups


def beat(api: Api, member: str = "m", **options: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=1)
    return api.send(request, 1, **options)


def test_a_repetition_gets_the_earlier_reply_with_its_own_correlation_id() -> None:
    api, groups = served()
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    first = api.raw(api.frame(request, 1, correlation_id=7))
    again = api.raw(api.frame(request, 1, correlation_id=-2))
    assert api.decoded(first, 68, 1) == api.decoded(again, 68, 1, correlation_id=-2)
    assert (groups.asked, groups.again) == (1, 1)


@pytest.mark.parametrize("options", [{"member": "n"}, {"client_id": "other"}, {"client_id": None}])
def test_other_bytes_are_another_request(options: dict[str, Any]) -> None:
    api, groups = served()
    beat(api)
    beat(api, **options)
    assert (groups.asked, groups.again) == (2, 0)


def test_another_host_is_another_sender() -> None:
    api, groups = served()
    beat(api)
    api.connection.client_host = "127.0.0.2"
    beat(api)
    assert (groups.asked, groups.again) == (2, 0)


def test_what_has_changed_is_answered_anew_and_then_again() -> None:
    api, groups = served()
    assert [beat(api).member_epoch for _ in range(2)] == [1, 1]
    groups.is_same = False
    assert beat(api).member_epoch == 2
    groups.is_same = True
    assert [beat(api).member_epoch for _ in range(2)] == [2, 2]
    assert groups.asked == 2


def test_an_api_that_is_not_served_any_more_refuses_repetitions_too() -> None:
    api, groups = served()
    beat(api)
    api.node.image = api.node.image.__class__(features={"group.version": 0})
    assert beat(api).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert groups.again == 0


def test_an_answer_that_comes_later_is_not_kept() -> None:
    api, groups = served()
    groups.held = Deferred()
    assert isinstance(beat(api), Pending)
    assert isinstance(beat(api), Pending)
    assert (groups.asked, groups.again) == (2, 0)


def test_the_answer_of_a_bug_is_not_kept() -> None:
    api, groups = served()
    groups.held = Deferred()
    groups.held.fail(KeyError("a bug"))
    for asked in (1, 2):
        assert beat(api).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (groups.asked, groups.again) == (asked, 0)


def test_an_answer_that_cannot_be_encoded_is_not_kept() -> None:
    api, groups = served()
    groups.held = Deferred.of(ConsumerGroupHeartbeatResponse(member_epoch=2**31))
    assert beat(api).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    groups.held = None
    assert beat(api).error_code == ErrorCode.NONE
    assert (groups.asked, groups.again) == (2, 0)


def test_a_request_with_quotas_is_measured_each_time() -> None:
    throttled = Throttled(request_percentage=0.001)
    api, groups = served(throttled)
    ticks = iter(range(1_000))
    api.node.monotonic_s = lambda: float(next(ticks))
    times = [beat(api).throttle_time_ms for _ in range(3)]
    assert all(times)
    assert (groups.asked, groups.again, throttled.muted) == (3, 0, times)
    api.node.quotas.take({})
    beat(api)
    beat(api)
    assert (groups.asked, groups.again) == (4, 1)


def test_a_long_request_is_not_kept() -> None:
    api, groups = served()
    for member, asked in (("m" * SIZE_MAX, 2), ("m" * (SIZE_MAX // 2), 3)):
        beat(api, member)
        beat(api, member)
        assert groups.asked == asked


def kept(count: int) -> Repeats:
    found = Repeats()
    for number in range(count):
        found.keep(bytes([number]), Repeat(lambda: True, "host", [bytes(9)]))
    return found


def test_the_newest_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "KEPT_MAX", 3)
    assert len(kept(20)) <= 6
    assert [number for number in range(20) if kept(20).find(bytes([number]))] == [15, 16, 17, 18, 19]


def test_what_is_found_again_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "KEPT_MAX", 3)
    found = kept(1)
    for number in range(1, 20):
        found.keep(bytes([number]), Repeat(lambda: True, "host", [bytes(9)]))
        assert found.find(b"\0") is not None
    assert len(found) <= 6


def test_what_is_forgotten_is_gone() -> None:
    found = kept(2)
    found.forget(b"\0")
    assert (found.find(b"\0"), len(found)) == (None, 1)


def test_the_size_of_a_request_is_that_of_its_body_for_repetitions_too() -> None:
    """As in Kafka: names of clients do not count."""
    api, groups = served()
    api.dispatcher._routes.clear()
    api.dispatcher._meters = meters = RequestMeters()
    api.dispatcher._route(68, 1)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    for client_id in ("a", "a", "a" * 100):
        api.connection.timings = None
        api.send(request, 1, client_id=client_id)
        assert api.connection.timings is not None
        api.connection.timings.sending()
        api.connection.timings.sent(0)
    assert groups.again == 1
    sizes = [times.size for times in meters.kinds["ConsumerGroupHeartbeat"].recent]
    assert sizes == [len(encode(request, 1))] * 3
