"""Mirrors between two clusters of partition managers, in one thread: real logs, real responses, requests carried by the test.

The source is a node of ours, whose fetch engine answers as for any consumer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.controller.image import MetadataImage
from kafkacompat.log import unified_log
from kafkacompat.log.producer_snapshots import decode_snapshot
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.mirror.following import EARLIEST, LATEST, MirrorFetches, Outcome
from kafkacompat.mirror.mirrored_partition import MirroredPartition
from kafkacompat.mirror.traffic import MirrorTopicTraffic
from kafkacompat.partition import following
from kafkacompat.partition._tests.cluster import T0, Cluster, ClusterNode, carried, values_of
from kafkacompat.partition._tests.kit import (
    PIECE,
    batch_of,
    replayed_in_pieces,
    topic_image,
    write_as_producer,
)
from kafkacompat.partition._tests.test_long_truncations import longest
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import IndexesRebuilt, Log
from kafkacompat.records.batch import iterate_batches, stamp_offset_and_epoch
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.validate import Origin
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kafkacompat.wire.messages.list_offsets_request import ListOffsetsRequest
from kafkacompat.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_EPOCH = 1 << 20


def bytes_of(log: Log) -> bytes:
    """All batches, as they lie on the disk."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 26, log.log_end_offset, True).records
        piece = read if isinstance(read, bytes) else read.read()
        data += piece
        offset = max(header.last_offset for header in iterate_batches(piece)) + 1
    return data


class Mirror(Cluster):
    """A cluster whose topic follows that of another."""

    def __init__(self, source: Cluster, ids: tuple[int, ...] = (1,)) -> None:
        super().__init__(ids)
        self.begin_above(FIRST_EPOCH)
        self.follow_cluster(source)
        self.put_state("mirroring")

    def begin_above(self, first_epoch: int) -> None:
        """All partitions begin in a leader epoch above those of the source."""
        self.first_epoch = first_epoch
        former = self.topic.partitions[0]
        epoch = former.partition_epoch + 1
        self.topic = replace(
            self.topic, partitions={0: replace(former, leader_epoch=first_epoch, partition_epoch=epoch)}
        )

    def follow_cluster(self, source: Cluster) -> None:
        self.source = source
        self.fetches_of: dict[ClusterNode, MirrorFetches] = {}
        self.last = Outcome()
        self.source_id = source.topic.id

    def put_state(self, state: str) -> None:
        """The topic's settings come with the image that all nodes take next."""
        self.log_config = replace(
            self.log_config,
            mirror_state=state,
            mirror_leader_epoch=self.first_epoch,
            min_insync_replicas=1,
        )
        self.fetches_of.clear()
        self.publish()
        self.settle()
        for node in self.nodes.values():
            if node.alive:
                self.take_settings(node)
        self.settle()

    def take_settings(self, node: ClusterNode) -> None:
        node.manager.hosted.reconfiguring.begin(list(node.manager.by_id.values()))

    def following(self) -> MirrorFetches:
        """Of the node that leads, in its present epoch."""
        node = self.leader()
        core = node.manager.by_name[T0]
        fetches = self.fetches_of.setdefault(node, MirrorFetches())
        known = fetches.partitions.get(T0)
        if known is None or not known.is_current():
            fetches.add(core, self.source_id, MirrorTopicTraffic())
        return fetches

    def metadata(self) -> MetadataResponse:
        partition = self.source.topic.partitions[0]
        there = MetadataResponsePartition(
            partition_index=0, leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        topic = MetadataResponseTopic(name="t", topic_id=self.source.topic.id, partitions=[there])
        return MetadataResponse(topics=[topic])

    def follow(self, rounds: int = 6) -> Outcome:
        """Let the leader fetch until nothing is new, and its followers too."""
        fetches, self.last = self.following(), Outcome()
        at_once(fetches.take_metadata_in_turns(self.metadata(), self.last))
        for _ in range(rounds):
            self.fetch_once(fetches)
            self.settle()
        return self.last

    def fetch_once(self, fetches: MirrorFetches) -> None:
        node, now_ms = self.leader(), self.time.monotonic_ms()
        for followed in fetches.partitions.values():
            followed.due_ms = 0
        there = self.source.leader()
        request = fetches.build(there.id, now_ms)
        if request is None:
            return
        response = self.answer(there, replace_wait(request))
        outcome = self.last
        at_once(fetches.take_in_turns(there.id, response, now_ms, outcome))
        left, outcome.out_of_range = outcome.out_of_range, []
        for timestamp in (LATEST, EARLIEST):
            if left:
                asked = carried(fetches.offsets_request(left, timestamp), 10)
                answer = self.answer(there, asked)
                left = at_once(fetches.take_offsets(left, timestamp, answer, now_ms, outcome))
        for core in outcome.appended:
            if core.maybe_increment_leader_high_watermark(now_ms):
                node.manager.hosted.advanced(core)
            node.manager.wakeups.appended(core)
        for followed in outcome.truncated:
            fetches.resolved(followed)

    def answer(self, node: ClusterNode, message: FetchRequest | ListOffsetsRequest) -> Any:
        reply = node.handle(message)
        self.source.settle()
        return reply.result()

    def log(self) -> Log:
        return self.leader().log()


class Turning(Mirror):
    """A cluster with a topic of its own, until it turns back."""

    def __init__(self, ids: tuple[int, ...] = (1, 2)) -> None:
        Cluster.__init__(self, ids)
        self.settle()

    def turn_back(self, source: Cluster) -> None:
        """To what has mirrored it, as the command does. The settings come before the roles."""
        self.follow_cluster(source)
        highest = source.topic.partitions[0].leader_epoch
        self.begin_above((highest // FIRST_EPOCH + 1) * FIRST_EPOCH)
        self.log_config = replace(
            self.log_config,
            mirror_state="mirroring",
            mirror_leader_epoch=self.first_epoch,
            min_insync_replicas=1,
        )
        for node in self.nodes.values():
            if node.alive:
                self.take_settings(node)
        self.publish()
        self.settle()


def replace_wait(request: FetchRequest) -> FetchRequest:
    """Answered at once, also without news."""
    sent: FetchRequest = carried(request, 18)
    sent.max_wait_ms = 0
    return sent


def source_with(*values: bytes) -> Cluster:
    source = Cluster((1, 2))
    source.settle()
    for value in values:
        produce(source, value)
    return source


def produce(cluster: Cluster, value: bytes, **options: Any) -> None:
    node = cluster.leader()
    batch = batch_of(value, now_ms=cluster.time.now_ms(), **options)
    result = node.manager.append(T0, batch, -1, 13, False)
    assert result.error is ErrorCode.NONE, result
    cluster.settle()


def elect(cluster: Cluster, node_id: int) -> None:
    """Another leader, in the next epoch."""
    cluster.change(leader=node_id)
    cluster.publish()
    cluster.settle()


def test_batches_are_the_same_bytes_with_the_source_s_epochs_on_every_replica() -> None:
    source = source_with(b"a", b"b")
    mirror = Mirror(source, (1, 2, 3))
    mirror.follow()
    elect(source, 2)
    produce(source, b"c")
    mirror.follow()
    assert bytes_of(mirror.log()) == bytes_of(source.leader().log()) != b""
    for node in mirror.nodes.values():
        assert bytes_of(node.log()) == bytes_of(mirror.log())
        assert node.log().high_watermark == 3
        assert node.log().epoch_entries == [(0, 0), (1, 2)]  # type: ignore[attr-defined]  # of the real log


def test_another_leader_here_goes_on_at_its_log_end() -> None:
    source = source_with(b"a")
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    elect(mirror, 2)
    produce(source, b"b")
    mirror.follow()
    elect(mirror, 1)
    produce(source, b"c")
    mirror.follow()
    for node in mirror.nodes.values():
        assert bytes_of(node.log()) == bytes_of(source.leader().log())
        assert node.log().epoch_entries == [(0, 0)]  # type: ignore[attr-defined]


def test_a_restarted_leader_goes_on_at_its_log_end() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    mirror.kill(1)
    mirror.restart(1)
    mirror.settle()
    mirror.take_settings(mirror.leader())
    produce(source, b"b")
    mirror.follow()
    assert bytes_of(mirror.log()) == bytes_of(source.leader().log())
    assert values_of(mirror.log(), 9) == {0: b"a", 1: b"b"}


def test_what_the_source_has_lost_is_truncated_on_every_replica() -> None:
    source = source_with(b"a")
    mirror = Mirror(source, (1, 2))
    source.cut.add(frozenset((1, 2)))  # node 2 gets nothing more
    produce(source, b"lost")
    source.settle(60_000)
    assert source.partition().isr == (1,)
    produce(source, b"lost too")
    mirror.follow()
    assert values_of(mirror.log(), 9) == {0: b"a", 1: b"lost", 2: b"lost too"}
    elect(mirror, 2)
    source.change(isr=(2,))
    elect(source, 2)  # unclean
    produce(source, b"b")
    mirror.follow()
    for node in mirror.nodes.values():
        assert values_of(node.log(), 9) == {0: b"a", 1: b"b"}
        assert bytes_of(node.log()) == bytes_of(source.leader().log())
        assert node.log().high_watermark == 2
    end = mirror.leader().manager.list_offset(T0, LATEST, False, -1, -1)
    assert isinstance(end, OffsetLookup)
    assert (end.error, end.offset) == (ErrorCode.NONE, 2)


def test_a_mirror_refuses_records_and_markers_until_it_is_stopped() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    manager = mirror.leader().manager
    for state in ("mirroring", "paused"):
        mirror.put_state(state)
        marker = build_end_transaction_marker(
            committed=True, coordinator_epoch=0, producer_id=5, producer_epoch=0, timestamp_ms=1
        )
        for batch, origin in ((batch_of(b"x"), Origin.CLIENT), (marker, Origin.COORDINATOR)):
            refused = manager.append(T0, batch, -1, 13, True, origin=origin)
            assert (refused.error, mirror.log().log_end_offset) == (ErrorCode.POLICY_VIOLATION, 1)
    mirror.put_state("stopped")
    produce(mirror, b"b")
    assert values_of(mirror.log(), 9) == {0: b"a", 1: b"b"}
    assert mirror.log().epoch_entries == [(0, 0), (FIRST_EPOCH, 1)]  # type: ignore[attr-defined]


def test_a_paused_leader_changes_nothing_when_an_answer_comes_late() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    request = fetches.build(source.leader().id, 0)
    assert request is not None
    response = mirror.answer(source.leader(), replace_wait(request))
    mirror.put_state("stopped")
    produce(mirror, b"own")
    at_once(fetches.take_in_turns(source.leader().id, response, 0, mirror.last))
    assert values_of(mirror.log(), 9) == {0: b"own"}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_open_transactions_of_the_source_are_aborted_and_its_producers_forgotten(is_restarted: bool) -> None:
    source = source_with()
    produce(source, b"one", producer_id=5, producer_epoch=0, base_sequence=0)
    node = source.leader()
    open_batch = batch_of(b"open", producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)
    node.log().append_as_follower(with_offset(open_batch, 1), 0)
    core = node.manager.by_name[T0]
    source.settle()
    core.maybe_increment_leader_high_watermark(source.time.monotonic_ms())
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    assert mirror.log().log_end_offset == 2
    mirror.put_state("stopped")
    log = mirror.log()
    assert (log.log_end_offset, log.last_stable_offset) == (3, 3)
    if is_restarted:
        elect(mirror, 2)
        log = mirror.log()
        assert log.log_end_offset == 3
    # The same id, epoch and sequence, of another producer: not a duplicate.
    produce(mirror, b"two", producer_id=5, producer_epoch=0, base_sequence=0)
    assert log.log_end_offset == 4
    elect(mirror, 1 if is_restarted else 2)
    produce(mirror, b"three", producer_id=5, producer_epoch=0, base_sequence=1)
    assert values_of(mirror.log(), 9)[4] == b"three"


def with_offset(batch: bytearray, offset: int) -> bytearray:
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = bytes(4)
    return batch


def test_a_former_leader_gives_up_what_it_mirrored_after_the_stop() -> None:
    source = source_with(b"a")
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    produce(source, b"late")
    mirror.cut.add(frozenset((1, 2)))
    old = mirror.leader()
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    mirror.fetch_once(fetches)
    assert values_of(old.log(), 9) == {0: b"a", 1: b"late"}
    mirror.change(isr=(2,), leader=2)
    mirror.put_state("stopped")
    produce(mirror, b"own")
    mirror.cut.clear()
    mirror.settle()
    assert old is not mirror.leader()
    for node in mirror.nodes.values():
        assert values_of(node.log(), 9) == {0: b"a", 1: b"own"}


def test_what_was_written_after_a_stop_is_not_mirrored_over() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    mirror.put_state("stopped")
    produce(mirror, b"own")
    produce(source, b"theirs")
    mirror.put_state("mirroring")
    mirror.follow()
    assert mirror.following().partitions[T0].failed is not None
    assert values_of(mirror.log(), 9) == {0: b"a", 1: b"own"}


def failed_over(here: Turning) -> Mirror:
    """What mirrors that cluster, took over, and has written since."""
    other = Mirror(here, (1, 2))
    other.follow()
    other.put_state("stopped")
    produce(other, b"other")
    return other


def test_a_source_turns_back_and_gives_up_what_was_not_mirrored() -> None:
    here = Turning()
    for value in (b"a", b"b"):
        produce(here, value)
    elect(here, 2)
    produce(here, b"c")
    other = failed_over(here)
    produce(here, b"lost")  # to a producer that does not know of the fail-over
    elect(here, 1)
    produce(here, b"lost too")
    here.turn_back(other)
    here.follow()
    for node in here.nodes.values():
        assert bytes_of(node.log()) == bytes_of(other.log()) != b""
        assert node.log().epoch_entries == [(0, 0), (1, 2), (FIRST_EPOCH, 3)]  # type: ignore[attr-defined]
    elect(other, 2)
    produce(other, b"more")
    here.follow()
    assert values_of(here.log(), 9) == {0: b"a", 1: b"b", 2: b"c", 3: b"other", 4: b"more"}


def test_who_waits_for_replicas_of_what_a_turn_gives_up_is_not_told_that_they_have_it() -> None:
    here = Turning()
    produce(here, b"a")
    other = failed_over(here)
    produce(other, b"more")
    here.cut.add(frozenset((1, 2)))
    waiting = here.leader().produce(b"lost")
    assert not waiting.done
    here.turn_back(other)
    here.cut.clear()
    here.follow()
    assert values_of(here.log(), 9) == {0: b"a", 1: b"other", 2: b"more"}
    assert here.log().high_watermark == 3
    assert waiting.result() is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_source_that_turned_back_takes_over_and_is_turned_to_again() -> None:
    """Each turn has leader epochs above all of the turn before."""
    here = Turning()
    produce(here, b"a")
    other = failed_over(here)
    here.turn_back(other)
    here.follow()
    here.put_state("stopped")
    produce(here, b"here again")
    assert here.log().epoch_entries[-1] == (2 * FIRST_EPOCH, 2)  # type: ignore[attr-defined]
    produce(other, b"lost there")
    back = Turning.turn_back
    back(other, here)  # type: ignore[arg-type]
    assert other.partition().leader_epoch == 3 * FIRST_EPOCH
    other.follow()
    for node in other.nodes.values():
        assert bytes_of(node.log()) == bytes_of(here.log())
    other.put_state("stopped")
    produce(other, b"and there")
    assert list(values_of(other.log(), 9).values()) == [b"a", b"other", b"here again", b"and there"]


def test_a_leader_that_has_not_heard_of_the_turn_gives_up_its_records() -> None:
    here = Turning()
    produce(here, b"a")
    other = failed_over(here)
    old = here.leader()
    here.cut.add(frozenset((1, 2)))
    result = old.manager.append(T0, batch_of(b"late", now_ms=here.time.now_ms()), 1, 13, False)
    assert result.error is ErrorCode.NONE
    here.change(isr=(2,), leader=2)
    here.turn_back(other)
    here.follow()
    here.cut.clear()
    here.settle()
    assert old is not here.leader()
    for node in here.nodes.values():
        assert values_of(node.log(), 9) == {0: b"a", 1: b"other"}


def test_a_transaction_that_was_open_here_ends_as_in_the_other_cluster() -> None:
    here = Turning()
    mine = batch_of(b"open", producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)
    here.leader().log().append_as_follower(stamped(mine, 0, 0), 0)
    here.leader().manager.wakeups.appended(here.leader().manager.by_name[T0])
    here.settle()
    other = Mirror(here, (1, 2))
    other.follow()
    other.put_state("stopped")
    assert other.log().log_end_offset == 2  # with its marker
    here.turn_back(other)
    here.follow()
    assert bytes_of(here.log()) == bytes_of(other.log())
    assert here.log().last_stable_offset == 2
    here.put_state("stopped")
    assert here.log().log_end_offset == 2
    produce(here, b"own", producer_id=6, producer_epoch=0, base_sequence=0)
    assert here.log().log_end_offset == 3


def test_without_records_of_its_own_a_stopped_mirror_may_follow_again() -> None:
    source = source_with(b"a")
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    mirror.put_state("stopped")
    mirror.put_state("mirroring")
    produce(source, b"b")
    mirror.follow()
    for node in mirror.nodes.values():
        assert bytes_of(node.log()) == bytes_of(source.leader().log())
        assert node.log().epoch_entries == [(0, 0)]  # type: ignore[attr-defined]


def test_a_topic_that_was_made_again_at_the_source_is_not_followed() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    source.topic = topic_image("t", dict(source.topic.partitions), generation=1)
    outcome = mirror.follow()
    assert "made again" in outcome.notes[0]
    assert mirror.following().leaders() == set()
    assert mirror.following().partitions[T0].state().stands_still
    assert values_of(mirror.log(), 9) == {0: b"a"}


def test_a_source_broker_that_still_has_an_older_topic_of_the_name_does_not_end_a_mirror() -> None:
    """Such a broker is cut off from its cluster since before the topic was made again, and mirrored."""
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    older = mirror.metadata()
    older.topics[0].topic_id = topic_image("t", generation=1).id
    outcome = Outcome()
    at_once(mirror.following().take_metadata_in_turns(older, outcome))
    assert "made again" in outcome.notes[0]
    produce(source, b"b")
    mirror.follow()
    assert values_of(mirror.log(), 9) == {0: b"a", 1: b"b"}


def test_a_source_epoch_that_reaches_those_of_the_mirror_ends_it() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    source.change(leader_epoch=FIRST_EPOCH - 1)
    elect(source, 2)
    produce(source, b"b")
    outcome = mirror.follow()
    assert [each.name for each in outcome.failed] == [T0]
    assert values_of(mirror.log(), 9) == {0: b"a"}


def test_the_source_s_log_start_is_taken_over() -> None:
    source = source_with(b"a", b"b", b"c")
    mirror = Mirror(source)
    mirror.follow()
    source.leader().log().increment_log_start_offset(2)  # type: ignore[attr-defined]
    mirror.follow()
    assert (mirror.log().log_start_offset, mirror.log().log_end_offset) == (2, 3)


def test_a_mirror_that_is_too_far_behind_begins_at_the_source_s_start() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    produce(source, b"b")
    produce(source, b"c")
    source.leader().log().increment_log_start_offset(2)  # type: ignore[attr-defined]
    mirror.follow()
    assert (mirror.log().log_start_offset, mirror.log().log_end_offset) == (2, 3)
    assert values_of(mirror.log(), 9) == {2: b"c"}


def test_consumers_may_ask_for_the_epochs_that_metadata_tells() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    manager = mirror.leader().manager
    assert manager.end_offset_for_epoch(T0, -1, FIRST_EPOCH) == (ErrorCode.NONE, 0, 1)
    assert manager.end_offset_for_epoch(T0, -1, 0) == (ErrorCode.NONE, 0, 1)


def test_the_end_of_a_mirror_without_followers_is_readable_at_once() -> None:
    source = source_with()
    node = source.leader()
    open_batch = batch_of(b"open", producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)
    node.log().append_as_follower(with_offset(open_batch, 0), 0)
    source.settle()
    node.manager.by_name[T0].maybe_increment_leader_high_watermark(source.time.monotonic_ms())
    mirror = Mirror(source)
    mirror.follow()
    mirror.put_state("stopped")
    log = mirror.log()
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (2, 2, 2)


def test_what_was_appended_before_a_stop_came_between_is_readable() -> None:
    source = source_with(b"a", b"b")
    mirror = Mirror(source)
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    there = source.leader()
    request = fetches.build(there.id, 0)
    assert request is not None
    taken = fetches.take_in_turns(there.id, mirror.answer(there, replace_wait(request)), 0, mirror.last)
    next(taken)  # the task ends here: the partition is not followed any more
    assert (mirror.log().log_end_offset, mirror.log().high_watermark) == (2, 0)
    mirror.log_config = replace(mirror.log_config, mirror_state="paused")
    mirror.take_settings(mirror.leader())
    mirror.settle()
    assert mirror.log().high_watermark == 2


def test_a_source_broker_with_older_metadata_does_not_turn_a_mirror_back() -> None:
    """Such a broker is cut off from its cluster, and still leads in its own eyes."""
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    older = mirror.metadata()
    elect(source, 2)
    produce(source, b"b")
    mirror.follow()
    fetches = mirror.following()
    for _ in range(2):
        outcome = Outcome()
        at_once(fetches.take_metadata_in_turns(older, outcome))
        assert fetches.leaders() == {2}
        assert "older" in outcome.notes[0]
        elect(mirror, 1)  # what a new leader here knows is in its log
        fetches = mirror.following()
        at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    fetches = MirrorFetches()
    fetches.add(mirror.leader().manager.by_name[T0], mirror.source_id, MirrorTopicTraffic())
    outcome = Outcome()
    at_once(fetches.take_metadata_in_turns(older, outcome))
    assert fetches.leaders() == set()
    assert outcome.notes


def test_a_topic_that_names_the_id_of_another_does_not_take_its_answers() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    other = MirroredPartition(fetches.partitions[T0].core, mirror.source_id, MirrorTopicTraffic())
    fetches.partitions["other", 0] = other
    mirror.fetch_once(fetches)
    assert values_of(mirror.log(), 9) == {0: b"a"}


def answer_with_partition(mirror: Mirror, there: ClusterNode, request: FetchRequest) -> FetchResponse:
    """The source's answer, also if a session has nothing to tell of the partition."""
    response: FetchResponse = mirror.answer(there, replace_wait(request))
    if not response.responses:
        partition = PartitionData(partition_index=0, high_watermark=1)
        response.responses = [FetchableTopicResponse(topic_id=mirror.source_id, partitions=[partition])]
    return response


def test_a_trouble_of_a_partition_is_told_once_while_it_lasts() -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    fetches = mirror.following()
    there = source.leader()

    def take(code: ErrorCode) -> list[str]:
        fetches.partitions[T0].due_ms = 0
        request = fetches.build(there.id, 0)
        assert request is not None
        response = answer_with_partition(mirror, there, request)
        response.responses[0].partitions[0].error_code = code
        outcome = Outcome()
        at_once(fetches.take_in_turns(there.id, response, 0, outcome))
        return outcome.notes

    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [len(take(code)) for code in (denied, denied, ErrorCode.NONE, denied)] == [1, 0, 0, 1]


def test_a_waiting_follower_here_finds_that_its_leader_was_truncated_and_has_grown_again() -> None:
    source = source_with(b"a")
    mirror = Mirror(source, (1, 2))
    source.cut.add(frozenset((1, 2)))
    produce(source, b"lost")
    source.settle(60_000)
    mirror.follow()
    assert [node.log().log_end_offset for node in mirror.nodes.values()] == [2, 2]
    source.change(isr=(2,))
    elect(source, 2)  # unclean
    produce(source, b"b")  # the same end, with another record
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    mirror.fetch_once(fetches)
    mirror.fetch_once(fetches)
    assert values_of(mirror.log(), 9)[1] == b"b"
    assert mirror.log().high_watermark == 1  # of the record only the leader knows
    mirror.settle()
    for node in mirror.nodes.values():
        assert values_of(node.log(), 9) == {0: b"a", 1: b"b"}
        assert node.log().high_watermark == 2


def test_partitions_that_got_records_are_asked_for_last() -> None:
    """A response has no room for all that are behind, and the source fills it in the order of the request."""
    source = source_with(b"a")
    mirror = Mirror(source)
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    (session,) = fetches.sessions.values()
    session.add(MirroredPartition(fetches.partitions[T0].core, bytes(16), MirrorTopicTraffic()))
    for _ in range(2):
        mirror.fetch_once(fetches)
        assert list(session.partitions) == [(bytes(16), 0), (mirror.source_id, 0)]


def test_a_transaction_of_this_cluster_is_not_aborted_when_its_beginning_is_deleted() -> None:
    source = source_with(b"a")
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    mirror.put_state("stopped")
    mine = {"producer_id": 6, "producer_epoch": 0, "is_transactional": True}
    for sequence, value in enumerate((b"b", b"c")):
        offset = mirror.log().log_end_offset
        batch = batch_of(value, base_sequence=sequence, **mine)
        for node in mirror.nodes.values():
            node.log().roll(offset, 0)  # type: ignore[attr-defined]
        mirror.log().append_as_follower(stamped(batch, offset, FIRST_EPOCH), FIRST_EPOCH)
        mirror.leader().manager.wakeups.appended(mirror.leader().manager.by_name[T0])
        mirror.settle()
    assert (mirror.log().high_watermark, mirror.log().last_stable_offset) == (3, 1)
    for node in mirror.nodes.values():
        node.log().increment_log_start_offset(2)  # type: ignore[attr-defined]
        assert node.log().enforce_retention(0)  # type: ignore[attr-defined]
        assert node.log().epoch_entries == [(FIRST_EPOCH, 2)]  # type: ignore[attr-defined]
    elect(mirror, 2)
    assert mirror.log().log_end_offset == 3
    assert mirror.log().last_stable_offset < 3


def stamped(batch: bytearray, offset: int, leader_epoch: int) -> bytearray:
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = leader_epoch.to_bytes(4, "big")
    return batch


@pytest.mark.parametrize("is_diverging", [False, True])
def test_an_answer_that_leads_nowhere_delays_its_partition(is_diverging: bool) -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    mirror.follow()
    fetches, there = mirror.following(), source.leader()
    notes: list[str] = []
    for round_ in range(3):
        fetches.partitions[T0].due_ms = 0
        request = fetches.build(there.id, 0)
        assert request is not None
        response = answer_with_partition(mirror, there, request)
        answer = response.responses[0].partitions[0]
        if is_diverging:
            answer.diverging_epoch = EpochEndOffset(epoch=7, end_offset=9)
        else:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        outcome = Outcome()
        at_once(fetches.take_in_turns(there.id, response, 0, outcome))
        left = outcome.out_of_range
        for timestamp in (LATEST, EARLIEST):
            if left:
                asked = carried(fetches.offsets_request(left, timestamp), 10)
                answer = mirror.answer(there, asked)
                left = at_once(fetches.take_offsets(left, timestamp, answer, 0, outcome))
        assert not outcome.truncated
        assert not fetches.partitions[T0].resolving
        assert fetches.build(there.id, 0) is None
        notes += outcome.notes
        assert mirror.log().log_end_offset == 1, round_
    assert len(notes) == 1


def test_coordinators_of_the_source_fence_none_of_this_cluster() -> None:
    source = source_with()
    first = batch_of(b"theirs", producer_id=6, producer_epoch=7, base_sequence=0, is_transactional=True)
    there = source.leader().log()
    there.append_as_follower(stamped(first, 0, 0), 0)
    there.append_as_follower(stamped(marker_of(coordinator_epoch=10, producer_epoch=7), 1, 0), 0)
    source.leader().manager.wakeups.appended(source.leader().manager.by_name[T0])
    source.settle()
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    assert mirror.log().last_stable_offset == 2
    mirror.put_state("stopped")
    mine = batch_of(b"mine", producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)
    mirror.log().append_as_follower(stamped(mine, 2, FIRST_EPOCH), FIRST_EPOCH)
    mirror.leader().manager.wakeups.appended(mirror.leader().manager.by_name[T0])
    mirror.settle()
    elect(mirror, 2)
    assert (mirror.log().log_end_offset, mirror.log().last_stable_offset) == (3, 2)
    marker = marker_of(coordinator_epoch=0, producer_epoch=0)
    result = mirror.leader().manager.append(T0, marker, -1, 13, True, origin=Origin.COORDINATOR)
    assert result.error is ErrorCode.NONE
    mirror.settle()
    assert mirror.log().last_stable_offset == 4


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_replaced_coordinator_of_this_cluster_stays_fenced(is_restarted: bool) -> None:
    """Its marker comes late, after another replica has begun to lead, and would end the producer's next transaction."""
    mirror = Mirror(source_with(b"a"), (1, 2))
    mirror.follow()
    mirror.put_state("stopped")

    def begin() -> None:
        mine = batch_of(b"mine", producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)
        log = mirror.log()
        epoch = mirror.partition().leader_epoch
        log.append_as_follower(stamped(mine, log.log_end_offset, epoch), epoch)
        mirror.leader().manager.wakeups.appended(mirror.leader().manager.by_name[T0])
        mirror.settle()

    def end(coordinator_epoch: int) -> ErrorCode:
        marker = marker_of(coordinator_epoch, producer_epoch=0)
        result = mirror.leader().manager.append(T0, marker, -1, 13, True, origin=Origin.COORDINATOR)
        mirror.settle()
        return result.error

    begin()
    assert end(6) is ErrorCode.NONE
    if is_restarted:
        mirror.kill(1)
        mirror.restart(1)
        mirror.settle()
    elect(mirror, 2 if mirror.partition().leader == 1 else 1)
    begin()
    assert end(5) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(6) is ErrorCode.NONE


def test_many_open_transactions_end_with_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_with(b"a")
    add_open_transactions(source, 300)
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    writes: list[int] = []
    append = UnifiedLog.append_as_follower

    def counting(log: UnifiedLog, records: bytearray, epoch: int) -> Any:
        writes.append(len(records))
        return append(log, records, epoch)

    monkeypatch.setattr(UnifiedLog, "append_as_follower", counting)
    mirror.put_state("stopped")
    monkeypatch.undo()
    assert len(writes) == 2  # and that of the follower
    for node in mirror.nodes.values():
        assert (node.log().log_end_offset, node.log().last_stable_offset) == (601, 601)
    for number in (1, 300):
        produce(mirror, b"own", producer_id=number, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize("ended_by", ["stop", "election"])
def test_more_open_transactions_end_in_steps_before_any_record(
    monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    monkeypatch.setattr(unified_log, "MARKERS_AT_ONCE", 10)
    source = source_with(b"a")
    add_open_transactions(source, 35)
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    if ended_by == "election":
        mirror.log_config = replace(mirror.log_config, mirror_state="stopped")
        mirror.change(leader=2)
        mirror.take_settings(mirror.nodes[2])
        node = mirror.leader()
        mirror._inform(node, image_with(node, mirror))
    else:
        mirror.log_config = replace(mirror.log_config, mirror_state="stopped")
        node = mirror.leader()
        mirror.take_settings(node)
    assert node.log().log_end_offset == 46
    refused = node.manager.append(T0, batch_of(b"early", now_ms=mirror.time.now_ms()), -1, 13, False)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    mirror.publish()
    mirror.settle()
    log = mirror.log()
    assert (log.log_end_offset, log.last_stable_offset) == (71, 71)
    produce(mirror, b"own", producer_id=35, producer_epoch=0, base_sequence=0)


def image_with(node: ClusterNode, mirror: Mirror) -> MetadataImage:
    """The next image that the node takes."""
    return replace(
        node.image,
        offset=node.image.offset + 1,
        topics={"t": mirror.topic},
        topics_by_id={mirror.topic.id: mirror.topic},
    )


def add_open_transactions(source: Cluster, count: int) -> None:
    """Of as many producers, from offset 1 on."""
    node = source.leader()
    for number in range(1, count + 1):
        batch = batch_of(b"x", producer_id=number, producer_epoch=0, base_sequence=0, is_transactional=True)
        node.log().append_as_follower(stamped(batch, number, 0), 0)
    node.manager.wakeups.appended(node.manager.by_name[T0])
    source.settle()


def marker_of(coordinator_epoch: int, producer_epoch: int) -> bytearray:
    return build_end_transaction_marker(
        committed=True,
        coordinator_epoch=coordinator_epoch,
        producer_id=6,
        producer_epoch=producer_epoch,
        timestamp_ms=1,
    )


@pytest.mark.parametrize("leader", [2, -1])
def test_a_source_whose_leader_moves_while_its_answer_is_appended_is_followed_on(leader: int) -> None:
    source = source_with(b"a")
    mirror = Mirror(source)
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    request = fetches.build(source.leader().id, 0)
    assert request is not None
    response = mirror.answer(source.leader(), replace_wait(request))
    taking = fetches.take_in_turns(source.leader().id, response, 0, mirror.last)
    next(taking)
    assert mirror.log().log_end_offset == 1
    moved = mirror.metadata()
    moved.topics[0].partitions[0].leader_id = leader
    moved.topics[0].partitions[0].leader_epoch += 1
    at_once(fetches.take_metadata_in_turns(moved, mirror.last))
    at_once(taking)
    assert (mirror.last.failed, mirror.last.bugs) == ([], [])
    assert [core.topic_partition for core in mirror.last.appended] == [T0]
    assert fetches.leaders() == {leader} - {-1}


def restarted(producer_epoch: int) -> Mirror:
    """A stopped mirror, whose second node reads producers of the source from its log. The epoch of producer 5 is that of its
    marker, which transactions of version 2 raise."""
    source = source_with()
    produce(source, b"theirs", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    mark(source, 50, producer_epoch)
    mirror = Mirror(source, (1, 2))
    mirror.follow()
    mirror.put_state("stopped")
    produce(mirror, b"own")
    mirror.kill(2)
    mirror.restart(2)
    mirror.settle()
    mirror.nodes[2].log().roll(mirror.log().log_end_offset, 0)  # type: ignore[attr-defined]  # with a snapshot
    return mirror


@pytest.mark.parametrize("producer_epoch", [0, 1])
def test_snapshots_of_a_replica_that_was_restarted_have_no_producer_of_the_source(
    producer_epoch: int,
) -> None:
    node = restarted(producer_epoch).nodes[2]
    path = node.log().snapshot_path(3)  # type: ignore[attr-defined]
    assert list(decode_snapshot(node.disk.read_bytes(path))) == []


def test_a_coordinator_of_the_source_does_not_fence_one_of_this_cluster() -> None:
    """A start after a crash writes the snapshot anew. A marker that is refused leaves its transaction open for ever."""
    mirror = restarted(0)
    mirror.kill(2)
    mirror.restart(2)
    mirror.settle()
    elect(mirror, 2)
    produce(mirror, b"open", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    mark(mirror, 3)
    assert mirror.log().last_stable_offset == mirror.log().log_end_offset


def mark(cluster: Cluster, coordinator_epoch: int, producer_epoch: int = 0) -> None:
    """Commit the transaction of producer 5."""
    marker = build_end_transaction_marker(
        committed=True,
        coordinator_epoch=coordinator_epoch,
        producer_id=5,
        producer_epoch=producer_epoch,
        timestamp_ms=cluster.time.now_ms(),
    )
    result = cluster.leader().manager.append(T0, marker, -1, 13, True, origin=Origin.COORDINATOR)
    assert result.error is ErrorCode.NONE, result
    cluster.settle()


@pytest.mark.parametrize("is_taken_out", [False, True])
@pytest.mark.parametrize("diverges", [True, False])
def test_what_producers_wrote_is_read_in_pieces_before_a_mirror_is_truncated(
    diverges: bool, is_taken_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_with(b"a")
    there, mirror = source.leader(), Mirror(source)
    fetches, log = mirror.following(), mirror.log()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    count = 10 * PIECE
    write_as_producer(log, count)
    request = fetches.build(there.id, 0)
    assert request is not None
    response = answer_with_partition(mirror, there, request)
    answer, outcome = response.responses[0].partitions[0], Outcome()
    read = replayed_in_pieces(monkeypatch)
    work: Any
    if diverges:
        answer.diverging_epoch = EpochEndOffset(epoch=0, end_offset=count - 1)
        work = fetches.take_in_turns(there.id, response, 0, outcome)
    else:
        found = ListOffsetsPartitionResponse(partition_index=T0.partition, offset=count - 1)
        offsets = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
        work = fetches.take_offsets([fetches.partitions[T0]], LATEST, offsets, 0, outcome)
    if is_taken_out:
        next(work)
        fetches.remove(mirror.leader().manager.by_name[T0])
    assert longest(read, work) <= PIECE
    assert log.log_end_offset == count - 1 + is_taken_out
    assert len(outcome.truncated) == 1 - is_taken_out


@pytest.mark.parametrize("gives", [True, False])
def test_what_another_leader_of_the_source_gave_meanwhile_is_not_truncated(
    gives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former leader ends earlier. What producers wrote is read while the next one's records come."""
    source = source_with(b"a")
    there, mirror = source.leader(), Mirror(source)
    fetches, log = mirror.following(), mirror.log()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    count = 10 * PIECE
    write_as_producer(log, count)
    request = fetches.build(there.id, 0)
    assert request is not None
    response = answer_with_partition(mirror, there, request)
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=0, end_offset=count - 1)
    outcome = Outcome()
    replayed_in_pieces(monkeypatch)
    work = fetches.take_in_turns(there.id, response, 0, outcome)
    next(work)
    elect(source, 2)
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    assert fetches.build(2, 0) is not None, "it is followed"
    if gives:
        batch = batch_of(b"of the next leader")
        stamp_offset_and_epoch(batch, count, 1)
        log.append_as_follower(bytes(batch), 1)
    at_once(work)
    assert log.log_end_offset == count + gives
    assert outcome.truncated == []
    assert not fetches.partitions[T0].resolving


def test_partitions_that_begin_anew_are_truncated_in_steps() -> None:
    source = source_with(b"a", b"b")
    mirror = Mirror(source)
    fetches = mirror.following()
    followed = fetches.partitions[T0]
    for each in (LATEST, EARLIEST):
        asked = carried(fetches.offsets_request([followed], each), 10)
        answer = mirror.answer(source.leader(), asked)
        steps = fetches.take_offsets([followed] * 3, each, answer, 0, mirror.last)
        assert sum(1 for _ in steps) == 3


def test_followers_here_get_each_piece_before_the_rest_of_an_answer_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer may have 10 MiB of many partitions, and many pieces of one."""
    monkeypatch.setattr(following, "BATCHES_AT_ONCE", 2)
    source = source_with(b"a", b"b", b"c", b"d", b"e")
    there, mirror = source.leader(), Mirror(source)
    fetches = mirror.following()
    at_once(fetches.take_metadata_in_turns(mirror.metadata(), mirror.last))
    request = fetches.build(there.id, 0)
    assert request is not None
    outcome, passed_on = Outcome(), []
    for _ in fetches.take_in_turns(there.id, answer_with_partition(mirror, there, request), 0, outcome):
        passed_on += [core.log.log_end_offset for core in outcome.appended]
        outcome.appended.clear()
    assert passed_on == [2, 4, 5]


def test_a_mirror_that_lacks_memory_for_an_answer_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_with(b"a")
    mirror = Mirror(source)

    def no_memory(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "append_as_follower", no_memory)
        mirror.follow(1)
    assert (mirror.last.failed, mirror.last.bugs) == ([], [])
    mirror.follow()
    assert values_of(mirror.log(), 9) == {0: b"a"}


@pytest.mark.parametrize("problem", [IndexesRebuilt(ErrorCode.KAFKA_STORAGE_ERROR), MemoryError()])
def test_a_mirror_that_cannot_begin_where_its_source_does_begins_there_later(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_with(b"a", b"b", b"c")
    source.leader().manager.delete_records({T0: 2}, 30_000)
    source.settle()
    mirror = Mirror(source)
    problems = [problem]
    begin = UnifiedLog.truncate_fully_and_start_at

    def refused_once(log: UnifiedLog, *arguments: Any, **options: Any) -> None:
        if problems:
            raise problems.pop()
        begin(log, *arguments, **options)

    monkeypatch.setattr(UnifiedLog, "truncate_fully_and_start_at", refused_once)
    mirror.follow()
    assert not problems
    assert values_of(mirror.log(), 9) == {2: b"c"}


def test_a_mirror_that_cannot_begin_where_its_source_does_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = source_with(b"a", b"b", b"c")
    source.leader().manager.delete_records({T0: 2}, 30_000)
    source.settle()
    mirror = Mirror(source)

    def refuse(*_: Any, **__: Any) -> None:
        raise IndexesRebuilt(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(UnifiedLog, "truncate_fully_and_start_at", refuse)
    (note,) = mirror.follow().notes
    assert "cannot be truncated now" in note
    assert "goes on at" not in note
