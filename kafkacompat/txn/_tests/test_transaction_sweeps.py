"""Passes over all transactional ids, and requests to other nodes: in steps, and a failing one does not affect the
others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.coordinator import inter_broker_sender
from kafkacompat.coordinator.inter_broker_sender import RESUMED_COST, InterBrokerSender, NodeLost
from kafkacompat.coordinator.shard import Shard
from kafkacompat.coordinator.shards import STRETCH
from kafkacompat.ids import NO_LEADER, TRANSACTION_TOPIC, TopicPartition
from kafkacompat.partition._tests.kit import partition_image, topic_image
from kafkacompat.records.batch import iterate_batches
from kafkacompat.tasks import TURN_COST, Tasks
from kafkacompat.txn import transaction_coordinator
from kafkacompat.txn._tests.test_transactions import T0, T1, Channel, TransactionNode
from kafkacompat.txn.transaction_marker_channel_manager import TransactionMarkerChannelManager
from kafkacompat.txn.transaction_metadata import TransactionMetadata, TransactionState
from kafkacompat.txn.transaction_state_manager import TransactionStateManager
from kafkacompat.wire.errors import ErrorCode as E

LOG = TopicPartition(TRANSACTION_TOPIC, 0)
EXPIRY_INTERVAL_MS = 3_600_000
EXPIRATION_MS = 604_800_000


def known(world: TransactionNode) -> int:
    (shard,) = world.coordinator._shards
    assert isinstance(shard.machine, TransactionStateManager)
    return len(shard.machine.transactions)


def steps_of(world: TransactionNode) -> list[int]:
    """The number of records that each due step writes."""
    log = world.partitions.logs[LOG]
    counts = []
    before = len(log.batches)
    while world.time.step():
        counts.append(sum(h.record_count for data in log.batches[before:] for h in iterate_batches(data)))
        before = len(log.batches)
    return counts


def test_unused_ids_are_forgotten_in_steps() -> None:
    world = TransactionNode()
    for index in range(2_000):
        world.init(f"tx{index}")
    world.time.ms = EXPIRATION_MS + 2 * EXPIRY_INTERVAL_MS
    counts = steps_of(world)
    assert sum(counts) == 2_000
    assert max(counts) <= 2 * STRETCH
    assert known(world) == 0


@pytest.mark.parametrize("broken", ["expired_id_records", "write"])
def test_unused_ids_that_cannot_be_forgotten_keep_no_others(
    broken: str, monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    world = TransactionNode()
    for index in range(2_000):
        world.init(f"tx{index}")
    place: Any = transaction_coordinator if broken == "expired_id_records" else Shard
    real = getattr(place, broken)
    calls = 0

    def first_fails(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError(broken)
        return real(*arguments)

    monkeypatch.setattr(place, broken, first_fails)
    world.time.ms = EXPIRATION_MS + 2 * EXPIRY_INTERVAL_MS
    steps_of(world)
    assert known(world) == STRETCH
    assert [type(error) for error in faults.take()] == [KeyError]


def test_timed_out_transactions_are_aborted_in_steps_and_one_that_fails_keeps_none_from_it(
    monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    world = TransactionNode()
    size = 200
    for index in range(size):
        world.init(f"tx{index}")
        world.coordinator.add_partitions(f"tx{index}", 10, 0, frozenset([T0]), 2)
    abort = transaction_coordinator.abort_timed_out

    def broken(machine: Any, transactional_id: str, now_ms: int) -> Any:
        if transactional_id == "tx7":
            raise KeyError(transactional_id)
        return abort(machine, transactional_id, now_ms)

    monkeypatch.setattr(transaction_coordinator, "abort_timed_out", broken)
    world.time.ms = 70_000
    counts = steps_of(world)
    assert sum(counts) == 2 * (size - 1)  # prepared and completed
    assert max(counts) <= 2 * (TURN_COST // transaction_coordinator.OPERATION_COST + 1)
    assert {type(error) for error in faults.take()} == {KeyError}


def test_an_outcome_in_doubt_gives_way_to_the_one_that_follows_it_also_for_the_next_coordinator() -> None:
    """As in Kafka, a step whose wait failed may be repeated or replaced. The last record in the log counts."""
    world = TransactionNode()
    world.begin(T0, T1)
    world.partitions.held = True
    lost = world.end(0, True)
    world.partitions.release(E.REQUEST_TIMED_OUT)
    assert lost.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "Ongoing"
    assert world.end(0, False).result().error_code == E.NONE
    assert world.state() == "CompleteAbort"
    world.move(2, 1)
    world.move(1, 2)
    assert world.state() == "CompleteAbort"
    assert world.markers(T0) == [(10, 1)]


def test_an_id_whose_first_record_the_log_refused_is_not_kept() -> None:
    world = TransactionNode()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert world.init().result().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert known(world) == 0
    world.partitions.refusal = None
    assert world.init().result().producer_epoch == 0


# Requests to other nodes


@dataclass(eq=False)
class Item:
    name: str


def names(items: list[Item]) -> list[str]:
    return [item.name for item in items]


def sender_over(
    channel: Channel, make: Callable[[list[Item]], list[str]] = names
) -> InterBrokerSender[Item, Any]:
    return InterBrokerSender(Tasks(HandTime()), lambda _: channel, 1_000, make, lambda response: response)


def test_what_gathers_for_a_node_is_sent_though_an_answer_could_not_be_taken(faults: Any) -> None:
    channel = Channel()
    taken: list[str] = []

    def take(item: str) -> None:
        taken.append(item)
        if item == "bad":
            raise KeyError("bad")

    sender = sender_over(channel)
    for item in map(Item, ("bad", "good", "better")):
        sender.ask(2, item).on_done(lambda _, item=item: take(item.name))  # type: ignore[misc]
    channel.asked[0][1].resolve(None)
    channel.asked[1][1].resolve(None)
    assert taken == ["bad", "good", "better"]
    assert [type(error) for error in faults.take()] == [KeyError]


@pytest.mark.parametrize("fails", [False, True])
def test_those_whom_one_answer_resumes_go_on_a_few_in_each_turn_and_in_order(fails: bool) -> None:
    time, channel = HandTime(), Channel()
    sender: InterBrokerSender[Item, Any] = InterBrokerSender(
        Tasks(time), lambda _: channel, 1_000, names, lambda response: response
    )
    resumed: list[str] = []

    def ask(name: str) -> None:
        sender.ask(2, Item(name)).on_done(lambda done: resumed.append(f"{name} {done.has_failed}"))

    asked = [str(each) for each in range(100)]
    for name in ("first", *asked):
        ask(name)
    channel.asked[0][1].resolve(None)
    assert resumed == ["first False"]
    if fails:
        channel.asked[1][1].fail(NodeLost("gone"))
    else:
        channel.asked[1][1].resolve(None)
    ask("later")
    turns = 0
    while len(channel.asked) < 3:
        before = len(resumed)
        assert time.step()
        turns += 1
        assert len(resumed) <= before + TURN_COST // RESUMED_COST
    assert turns >= 100 * RESUMED_COST // TURN_COST - 1
    assert resumed == ["first False", *(f"{each} {fails}" for each in asked)]
    assert [message for message, _ in channel.asked] == [["first"], asked, ["later"]]
    channel.asked[2][1].resolve(None)
    assert resumed[-1] == "later False"
    assert not time.waiting


def test_those_whom_an_answer_has_not_resumed_when_the_node_stops_are_lost() -> None:
    time, channel = HandTime(), Channel()
    sender: InterBrokerSender[Item, Any] = InterBrokerSender(
        Tasks(time), lambda _: channel, 1_000, names, lambda response: response
    )
    sender.ask(2, Item("first")).unheeded("the first one")
    answers = [sender.ask(2, Item(str(each))) for each in range(100)]
    channel.asked[0][1].resolve(None)
    channel.asked[1][1].resolve("found")
    given = [each for each in answers if each.done]
    assert 0 < len(given) < len(answers)
    sender.close()
    while time.step():
        pass
    assert all(each.result() == "found" for each in given)
    assert all(each.has_failed for each in answers[len(given) :])


def test_a_request_that_cannot_be_made_is_answered_and_the_next_one_is_sent(faults: Any) -> None:
    channel = Channel()

    def make(items: list[Item]) -> list[str]:
        names = [item.name for item in items]
        if "bad" in names:
            raise ValueError("bad")
        return names

    sender = sender_over(channel, make)
    bad, good = (sender.ask(2, Item(name)) for name in ("bad", "good"))
    assert bad.has_failed
    assert not good.done
    assert [message for message, _ in channel.asked] == [["good"]]
    assert [type(error) for error in faults.take()] == [ValueError]


def test_a_node_is_asked_again_after_memory_lacked_while_its_answer_was_passed_on(
    monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    """Markers of all transactions wait for this queue."""
    channel = Channel()
    sender = sender_over(channel)
    first, *others = [sender.ask(2, Item(name)) for name in ("first", "second", "third", "fourth")]
    channel.asked[0][1].resolve(None)

    def lacks_memory(cost: int) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(inter_broker_sender, "pause", lacks_memory)
        channel.asked[1][1].resolve(None)
    assert [type(error) for error in faults.take()] == [MemoryError]
    assert [each.has_failed for each in (first, *others)] == [False, False, True, True]
    later = sender.ask(2, Item("later"))
    channel.asked[2][1].resolve("found")
    assert later.result() == "found"


def test_what_is_withdrawn_while_it_waits_is_not_sent() -> None:
    channel = Channel()
    sender = sender_over(channel)
    items = [Item(name) for name in ("first", "second", "third")]
    answers = [sender.ask(2, item) for item in items]
    for item in items[:2]:
        sender.withdraw(2, item, KeyError("withdrawn"))
    assert [answer.has_failed for answer in answers] == [False, True, False]
    channel.asked[0][1].resolve(None)
    assert [message for message, _ in channel.asked] == [["first"], ["third"]]


def test_all_that_wait_for_a_node_are_told_of_the_end(faults: Any) -> None:
    channel = Channel()
    sender = sender_over(channel)
    answers = [sender.ask(2, Item(name)) for name in ("in flight", "waiting")]
    sender.close()
    answers.append(sender.ask(2, Item("late")))
    for answer in answers:
        with pytest.raises(NodeLost):
            answer.result()
    channel.asked[0][1].resolve(None)
    assert len(channel.asked) == 1


def test_an_end_that_fails_to_be_written_is_written_again(
    monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    world = TransactionNode()
    world.begin(T0)
    complete = TransactionStateManager.complete
    broken = [True]

    def once(self: TransactionStateManager, transactional_id: str) -> Any:
        if broken:
            broken.clear()
            raise MemoryError
        return complete(self, transactional_id)

    monkeypatch.setattr(TransactionStateManager, "complete", once)
    assert world.end(0).result().error_code == E.NONE
    assert world.state() == "PrepareCommit"
    world.time.advance(1_000)
    assert world.state() == "CompleteCommit"
    assert [type(error) for error in faults.take()] == [MemoryError]


@pytest.mark.parametrize("times", [1, 2], ids=["at its end", "and after the load"])
def test_a_transaction_whose_markers_find_no_memory_to_begin_with_ends_all_the_same(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is in the log, and the producer could never begin another one."""
    send = TransactionMarkerChannelManager.send
    lacking: list[Exception] = []

    def lacks(*arguments: Any, **named: Any) -> None:
        if lacking:
            raise lacking.pop()
        send(*arguments, **named)

    monkeypatch.setattr(TransactionMarkerChannelManager, "send", lacks)
    world = TransactionNode()
    world.begin(T0)
    lacking += [MemoryError()] * times
    assert world.end(0).result().error_code == E.NOT_COORDINATOR
    world.time.advance(10_000)
    assert world.state() == "CompleteCommit"
    assert world.markers(T0) == [(10, 1)]
    assert world.add(1, T0).result() is E.NONE
    assert world.end(1).result().error_code == E.NONE
    world.time.advance(10_000)
    assert world.markers(T0) == [(10, 1), (10, 2)]
    assert world.coordinator.markers.ends_to_write_again == 0


def test_what_a_shard_was_sending_ends_with_it_when_its_partition_is_loaded_anew() -> None:
    """The next shard sends it again. Both would write the end, and one of them that of the next transaction."""
    world = TransactionNode()
    world.begin(TopicPartition("u", 0))
    u = topic_image("u", {0: partition_image(leader=NO_LEADER)})
    world.publish(u)
    world.end(0)
    (shard,) = world.coordinator._shards
    world.coordinator._shards._replace(shard)
    world.time.advance(0)
    world.publish(topic_image("u", 1))
    world.time.advance(60_000)
    assert world.state() == "CompleteCommit"
    assert world.markers(TopicPartition("u", 0)) == [(10, 1)]
    assert world.coordinator.markers.ends_to_write_again == 0


def test_a_sending_that_has_come_to_the_end_while_it_began_ends_with_its_shard(
    monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    """One that writes all its markers here is in one step at the end, which its shard may have no memory to take. It would
    write the end again and again, and with that of a later transaction before its markers."""
    complete = TransactionMetadata.complete_transition_to
    lacking = [MemoryError()]

    def lacks(self: TransactionMetadata, following: Any) -> None:
        if lacking and following.state is TransactionState.COMPLETE_COMMIT:
            raise lacking.pop()
        complete(self, following)

    monkeypatch.setattr(TransactionMetadata, "complete_transition_to", lacks)
    world = TransactionNode()
    world.begin(T0)
    world.end(0)
    assert not lacking
    world.time.advance(10_000)
    assert world.state() == "CompleteCommit"
    assert world.coordinator.markers.ends_to_write_again == 0
    assert not faults.take()
