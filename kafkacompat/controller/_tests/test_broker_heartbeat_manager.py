"""Sessions of brokers: when they expire, in which order, and the effect of a new epoch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.controller._tests.clusters import broker, cluster, partition
from kafkacompat.controller.broker_heartbeat_manager import MAX_OFFSET, BrokerHeartbeatManager


def sessions(timeout_ms: int = 9000) -> BrokerHeartbeatManager:
    return BrokerHeartbeatManager(timeout_ms)


def test_a_session_lasts_exactly_its_timeout() -> None:
    found = sessions()
    found.touch(1, 101, 5, fenced=False, now_ms=1000)
    assert found.has_valid_session(1, 101, 10_000)
    assert found.expired(10_000) == []
    assert found.next_expiry_ms() == 10_001
    assert not found.has_valid_session(1, 101, 10_001)
    assert found.expired(10_001) == [1]
    assert found.expired(99_999) == [1]
    found.end(1)
    assert found.expired(99_999) == []
    assert found.next_expiry_ms() is None


def test_brokers_heard_longest_ago_expire_first() -> None:
    found = sessions()
    for broker_id, now_ms in ((3, 0), (1, 10), (2, 20), (3, 30)):
        found.touch(broker_id, 100 + broker_id, 0, fenced=False, now_ms=now_ms)
    assert found.next_expiry_ms() == 9011
    assert found.expired(9021) == [1, 2]
    for broker_id in (1, 2):
        found.end(broker_id)
    assert found.next_expiry_ms() == 9031


def test_a_session_is_of_one_epoch() -> None:
    found = sessions()
    found.touch(1, 101, 5, fenced=False, now_ms=0)
    assert not found.has_valid_session(1, 200, 1)
    found.register(1, 200, 203)
    assert not found.has_valid_session(1, 101, 1)
    assert found.next_expiry_ms() is None
    assert found.registration_offset(1) == 203
    assert found.metadata_offset(1) == -1


def test_the_same_epoch_keeps_its_session_when_it_registers_again() -> None:
    found = sessions()
    found.touch(1, 101, 5, fenced=False, now_ms=0)
    found.register(1, 101, 300)
    assert found.has_valid_session(1, 101, 1)


def test_a_process_known_to_be_gone_is_not_live_and_is_told_when_its_session_would_have_expired() -> None:
    found = sessions()
    found.touch(1, 101, 5, fenced=False, now_ms=0)
    assert not found.take_for_gone(2)
    assert found.take_for_gone(1)
    assert found.is_gone(1)
    assert not found.has_valid_session(1, 101, 1)
    assert found.next_expiry_ms() == 9001
    assert found.expired(9000) == []
    assert found.expired(9001) == [1]
    found.end(1)
    assert not found.is_gone(1)
    assert found.next_expiry_ms() is None


def test_a_session_is_put_back_when_what_ended_it_was_not_written() -> None:
    found = sessions()
    found.touch(1, 101, 5, fenced=False, now_ms=0)
    found.maybe_update_controlled_shutdown_offset(1, 7)
    saved = found.save(1)
    found.end(1)
    found.remove(1)
    found.put_back(1, saved, 50)
    assert found.has_valid_session(1, 101, 9050)
    assert (found.metadata_offset(1), found.controlled_shutdown_offset(1)) == (5, 7)
    found.take_for_gone(1)
    gone = found.save(1)
    found.register(1, 120, 121)
    found.put_back(1, gone, 60)
    assert found.is_gone(1)
    none = found.save(2)
    found.touch(2, 102, 5, fenced=False, now_ms=0)
    found.put_back(2, none, 50)
    assert (found.metadata_offset(2), found.has_valid_session(2, 102, 50)) == (-1, False)


def test_a_heartbeat_or_a_registration_says_that_nobody_is_gone() -> None:
    found = sessions()
    for come_back in (
        lambda: found.touch(1, 101, 6, fenced=False, now_ms=2),
        lambda: found.register(1, 120, 121),
    ):
        found.touch(1, 101, 5, fenced=False, now_ms=0)
        found.take_for_gone(1)
        come_back()
        assert not found.is_gone(1)
    found.touch(1, 120, 6, fenced=False, now_ms=2)
    assert found.expired(3) == []
    assert found.has_valid_session(1, 120, 3)


def test_decisions_see_those_who_are_gone_as_fenced_save_the_one_that_is_asked_about() -> None:
    found = sessions()
    image = cluster(partition(1, 2), brokers=(1, 2, 3))
    found.reset(image, 0)
    assert found.seen(image) is image
    found.take_for_gone(2)
    found.take_for_gone(3)
    assert [each.fenced for each in found.seen(image).brokers.values()] == [False, True, True]
    assert [each.fenced for each in found.seen(image, but=3).brokers.values()] == [False, True, False]
    assert not any(each.fenced for each in image.brokers.values())


def test_activation_gives_every_unfenced_broker_a_fresh_session() -> None:
    found = sessions()
    found.touch(9, 900, 5, fenced=False, now_ms=0)
    found.maybe_update_controlled_shutdown_offset(9, 7)
    image = cluster(partition(1, 2), brokers=(1, broker(2, fenced=True), 9))
    found.reset(image, 50_000)
    assert found.has_valid_session(1, 101, 59_000)
    assert not found.has_valid_session(2, 102, 50_000)
    assert found.controlled_shutdown_offset(9) == -1
    assert found.expired(59_001) == [1, 9]
    assert found.registration_offset(2) == 102


def test_a_leaving_or_fenced_broker_holds_nobody_back() -> None:
    found = sessions()
    image = cluster(partition(1, 2), brokers=(1, 2, 3, broker(4, fenced=True)))
    found.reset(image, 0)
    assert found.lowest_active_offset(image) == -1
    for broker_id, offset in ((1, 40), (2, 30), (3, 20)):
        found.touch(broker_id, 100 + broker_id, offset, fenced=False, now_ms=1)
    assert found.lowest_active_offset(image) == 20
    found.maybe_update_controlled_shutdown_offset(3, 60)
    found.maybe_update_controlled_shutdown_offset(3, 70)
    assert found.controlled_shutdown_offset(3) == 60
    assert found.lowest_active_offset(image) == 30
    assert found.lowest_active_offset(cluster(partition(4), brokers=(broker(4, fenced=True),))) == MAX_OFFSET


def test_an_unregistered_broker_is_forgotten() -> None:
    found = sessions()
    found.touch(1, 101, 5, fenced=False, now_ms=0)
    found.remove(1)
    assert (found.registration_offset(1), found.next_expiry_ms(), found.expired(99_999)) == (-1, None, [])


@given(
    st.lists(
        st.tuples(st.sampled_from(["touch", "gone", "end", "look"]), st.integers(1, 4), st.integers(0, 60)),
        max_size=60,
    )
)
def test_a_broker_that_is_silent_too_long_is_reported_until_it_is_fenced_and_no_other(
    steps: list[tuple[str, int, int]],
) -> None:
    """Compared with a model that keeps only last contacts and dead brokers."""
    found, now_ms = sessions(100), 0
    heard: dict[int, int] = {}
    gone: set[int] = set()
    for action, broker_id, pause_ms in steps:
        now_ms += pause_ms
        if action == "touch":
            found.touch(broker_id, 1, 0, fenced=False, now_ms=now_ms)
            heard[broker_id] = now_ms
            gone.discard(broker_id)
        elif action == "gone":
            assert found.take_for_gone(broker_id) == (broker_id in heard)
            gone |= {broker_id} & heard.keys()
        elif action == "end":
            found.end(broker_id)
            heard.pop(broker_id, None)
            gone.discard(broker_id)
        else:
            over = {each for each, at_ms in heard.items() if at_ms + 100 < now_ms}
            due_ms = found.next_expiry_ms()
            assert (due_ms is not None and due_ms <= now_ms) == bool(over)
            assert set(found.expired(now_ms)) == set(found.expired(now_ms)) == over
            gone -= over
            for each in over:
                found.end(each)  # as when its fencing is written
                del heard[each]
        for each in range(1, 5):
            lives = each in heard and heard[each] + 100 >= now_ms and each not in gone
            assert found.has_valid_session(each, 1, now_ms) == lives
            assert found.is_gone(each) == (each in gone)
