"""`kafkacompat consume --share` on a scripted coordinator and scripted leaders: what it sends, also when they fail."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.cli import consume_share, record_command
from kafkacompat.cli.consume_share import Answers, share_renderer
from kafkacompat.cli.output import Terminated, terminable
from kafkacompat.cli.record_command import Outcome, ending_of, outcome_of, run_for, variables_of, words_of
from kafkacompat.cli.share_group import Stand
from kafkacompat.cli.share_member import ShareMember
from kafkacompat.cli.share_reader import Delivery, ShareReader
from kafkacompat.cli.share_session import (
    BATCH_OPTIMIZED,
    LAST_EPOCH,
    RECORD_LIMIT,
    Acknowledgement,
    Range,
    SessionLost,
    ShareSession,
    acquired_of,
    joined,
)
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.failure import CommandFailed
from kafkacompat.records.batch import build_batch
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.records.record import Record
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkacompat.wire.messages.share_acknowledge_response import (
    PartitionData as AcknowledgedPartition,
)
from kafkacompat.wire.messages.share_acknowledge_response import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kafkacompat.wire.messages.share_fetch_response import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from kafkacompat.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = b"t" * 16
GROUP = "g"
Answer = Any


def through_codec(request: Any, answer: Any, version: int) -> Any:
    """The answer as it arrives. The request passes through its codec too."""
    decode(type(request), version, encode(request, version))
    return decode(type(answer), version, encode(answer, version))


class Leader:
    """Stands for the connection to a leader. It gives out `batches` one by one, and checks sessions as a leader does."""

    def __init__(self, version: int = 2) -> None:
        self.version = version
        self.is_lost = False
        self.epoch: int | None = None
        self.partitions: set[int] = set()
        self.batches: list[tuple[int, bytes, list[tuple[int, int, int]]]] = []
        """Partition, batch, and (first, last, delivery count) of what is acquired."""
        self.fetch_errors: list[int] = []
        """For the next fetches: errors of partition 0."""
        self.acknowledge_errors: list[int] = []
        self.acknowledged: list[tuple[int, int, int, int]] = []
        """Partition, first, last and type."""
        self.most: list[tuple[int, int]] = []
        """The limits and modes of the fetches."""

    def serves(self, api_key: int, version: int) -> bool:
        return version <= self.version

    def close(self) -> None:
        self.is_lost = True

    def call(self, request: Any, response_type: Any) -> Any:
        if self.is_lost:
            raise BrokerAway("lost")
        answer = self.fetched(request) if request.API_KEY == ApiKey.SHARE_FETCH else self.took(request)
        return through_codec(request, answer, self.version)

    def check(self, epoch: int) -> int:
        if epoch == 0:
            self.epoch, self.partitions = 1, set()
            return 0
        if self.epoch is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (-1, self.epoch):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        self.epoch = None if epoch == -1 else self.epoch + 1
        return 0

    def fetched(self, request: Any) -> ShareFetchResponse:
        if code := self.check(request.share_session_epoch):
            return ShareFetchResponse(error_code=code)
        self.most.append((request.max_records, request.share_acquire_mode))
        self.partitions |= {each.partition_index for topic in request.topics for each in topic.partitions}
        self.partitions -= {number for topic in request.forgotten_topics_data for number in topic.partitions}
        data = []
        if self.fetch_errors:
            data.append(PartitionData(partition_index=0, error_code=self.fetch_errors.pop(0), records=b""))
        elif self.batches and self.batches[0][0] in self.partitions:
            number, batch, acquired = self.batches.pop(0)
            ranges = [
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in acquired
            ]
            data.append(PartitionData(partition_index=number, records=batch, acquired_records=ranges))
        topics = [ShareFetchableTopicResponse(topic_id=TOPIC, partitions=data)]
        return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=topics)

    def took(self, request: Any) -> ShareAcknowledgeResponse:
        if code := self.check(request.share_session_epoch):
            return ShareAcknowledgeResponse(error_code=code)
        code = self.acknowledge_errors.pop(0) if self.acknowledge_errors else 0
        asked = [each for topic in request.topics for each in topic.partitions]
        if not code:
            for each in asked:
                for batch in each.acknowledgement_batches:
                    assert request.is_renew_ack == (4 in batch.acknowledge_types)
                    (kind,) = batch.acknowledge_types
                    self.acknowledged.append(
                        (each.partition_index, batch.first_offset, batch.last_offset, kind)
                    )
        answers = [
            AcknowledgedPartition(partition_index=each.partition_index, error_code=code) for each in asked
        ]
        return ShareAcknowledgeResponse(
            responses=[ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=answers)]
        )


class ScriptedCluster:
    """Two partitions of topic t. `leaders` gives the connection of each node, `leads` the node of each partition."""

    def __init__(self, *leaders: Leader) -> None:
        self.leaders = dict(enumerate(leaders))
        self.leads = [0, len(leaders) - 1]
        self.heartbeats: list[tuple[int, list[str] | None]] = []
        self.answers: list[Answer] = []
        """Answers to the next heartbeats: an error code, an exception, or else an assignment of both partitions."""
        self.assigns = True
        self.refreshes = 0

    def any(self) -> ScriptedCluster:
        return self

    def serves(self, api_key: int, version: int) -> bool:
        return True

    def leader(self, node: int, of: str) -> Leader:
        if node not in self.leaders or self.leaders[node].is_lost:
            raise BrokerAway(f"node {node} is away")
        return self.leaders[node]

    def ask_metadata(self, topics: list[str]) -> MetadataResponse:
        self.refreshes += 1
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=node)
            for number, node in enumerate(self.leads)
        ]
        return MetadataResponse(
            topics=[MetadataResponseTopic(name="t", topic_id=TOPIC, partitions=partitions)]
        )

    def coordinator_call(
        self, group: str, request: Any, response_type: Any, error_of: Any, within_s: float
    ) -> ShareGroupHeartbeatResponse:
        assert within_s == 0
        self.heartbeats.append((request.member_epoch, request.subscribed_topic_names))
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        partitions = [TopicPartitions(topic_id=TOPIC, partitions=[0, 1])] if self.assigns else []
        assigned = Assignment(topic_partitions=partitions)
        found = ShareGroupHeartbeatResponse(
            error_code=answer,
            member_epoch=len(self.heartbeats),
            heartbeat_interval_ms=5_000,
            assignment=assigned if request.member_epoch == 0 else None,
        )
        through: ShareGroupHeartbeatResponse = through_codec(request, found, 1)
        return through


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    hand = Clock()
    monkeypatch.setattr("time.monotonic", hand.monotonic)
    monkeypatch.setattr("time.sleep", hand.sleep)
    return hand


def batch(first: int, *values: bytes) -> bytes:
    return bytes(
        build_batch([Record(at, 5, None, value) for at, value in enumerate(values)], base_offset=first)
    )


def reading(*leaders: Leader) -> tuple[ScriptedCluster, ShareMember, ShareReader]:
    cluster: Any = ScriptedCluster(*leaders)
    member = ShareMember(cluster, GROUP, ["t"])
    return cluster, member, ShareReader(cluster, member, ["t"])


def values(deliveries: list[Delivery]) -> list[bytes | None]:
    return [each.record.value for each in deliveries]


def test_records_are_taken_accepted_and_the_rest_released_at_the_end() -> None:
    leader = Leader()
    leader.batches = [(0, batch(3, b"a", b"b", b"c"), [(3, 5, 2)])]
    cluster, member, reader = reading(leader)
    found = reader.acquire(10, BATCH_OPTIMIZED)
    assert [(each.name, each.count, each.record.value) for each in found] == [
        ("t-0 offset 3", 2, b"a"),
        ("t-0 offset 4", 2, b"b"),
        ("t-0 offset 5", 2, b"c"),
    ]
    reader.acknowledge(found[:2], Acknowledgement.ACCEPT)
    assert reader.acquire(10, BATCH_OPTIMIZED) == []
    reader.acknowledge(found[2:], Acknowledgement.REJECT)
    assert leader.acknowledged == [(0, 3, 4, 1), (0, 5, 5, 3)]
    reader.close()
    member.leave()
    assert leader.epoch is None
    assert cluster.heartbeats == [(0, ["t"]), (-1, None)]


def test_leaders_are_asked_in_turn() -> None:
    first, second = Leader(), Leader()
    first.batches = [(0, batch(at, b"a"), [(at, at, 1)]) for at in range(3)]
    second.batches = [(1, batch(at, b"b"), [(at, at, 1)]) for at in range(3)]
    _, _, reader = reading(first, second)
    assert [values(reader.acquire(1, RECORD_LIMIT)) for _ in range(4)] == [[b"a"], [b"b"], [b"a"], [b"b"]]
    assert first.most == second.most == [(1, RECORD_LIMIT)] * 2


def test_an_older_leader_gets_no_mode() -> None:
    leader = Leader(version=1)
    _, _, reader = reading(leader)
    reader.acquire(1, RECORD_LIMIT)
    assert leader.most == [(1, BATCH_OPTIMIZED)]


def test_acquired_offsets_without_a_record_are_acknowledged_as_gaps() -> None:
    leader = Leader()
    marker = bytes(
        build_end_transaction_marker(
            committed=True,
            coordinator_epoch=0,
            producer_id=1,
            producer_epoch=0,
            timestamp_ms=5,
            base_offset=5,
        )
    )
    leader.batches = [(0, batch(3, b"a") + marker, [(1, 5, 1)]), (0, marker, [(5, 5, 1)])]
    _, _, reader = reading(leader)
    found = reader.acquire(10, BATCH_OPTIMIZED)
    reader.acknowledge(found, Acknowledgement.ACCEPT)
    assert leader.acknowledged == [(0, 1, 2, 0), (0, 3, 3, 1), (0, 4, 5, 0)]
    # With gaps only there is nothing that a worker could acknowledge.
    assert reader.acquire(10, BATCH_OPTIMIZED) == []
    assert leader.acknowledged[3:] == [(0, 5, 5, 0)]


def test_only_what_was_acquired_is_taken_from_the_answer() -> None:
    ranges = [(4, 4, 1), (6, 7, 3)]
    data = PartitionData(
        records=batch(3, b"d", b"e", b"f", b"g", b"h", b"i"),
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in ranges
        ],
    )
    found = acquired_of(data)
    assert [(offset, count, record.value) for offset, count, record in found.records] == [
        (4, 1, b"e"),
        (6, 3, b"g"),
        (7, 3, b"h"),
    ]
    assert found.gaps == []


def test_a_corrupt_batch_ends_the_worker_with_its_place() -> None:
    leader = Leader()
    leader.batches = [(0, batch(3, b"a")[:-1] + b"x", [(3, 3, 1)])]
    _, _, reader = reading(leader)
    with pytest.raises(CommandFailed, match="t-0 is corrupt at or after offset 3"):
        reader.acquire(1, RECORD_LIMIT)


def test_a_moved_partition_is_read_from_its_new_leader() -> None:
    first, second = Leader(), Leader()
    cluster, _, reader = reading(first, second)
    cluster.leads = [0, 0]
    reader.acquire(1, RECORD_LIMIT)
    first.fetch_errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster.leads = [1, 1]
    assert reader.acquire(1, RECORD_LIMIT) == []
    second.batches = [(0, batch(0, b"a"), [(0, 0, 1)])]
    assert values(reader.acquire(1, RECORD_LIMIT)) == [b"a"]
    assert second.partitions == {0, 1}
    assert first.epoch is None  # its session was ended


def test_a_lost_session_is_opened_anew_and_its_records_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leader = Leader()
    leader.batches = [(0, batch(0, b"a"), [(0, 0, 1)]), (0, batch(0, b"a"), [(0, 0, 2)])]
    _, _, reader = reading(leader)
    found = reader.acquire(1, RECORD_LIMIT)
    leader.epoch = None
    reader.acknowledge(found, Acknowledgement.ACCEPT)
    said = capsys.readouterr().err
    assert "t-0 from offset 0 to 0: not acknowledged (share session: SHARE_SESSION_NOT_FOUND)" in said
    assert [each.count for each in reader.acquire(1, RECORD_LIMIT)] == [2]
    assert leader.partitions == {0, 1}


def test_a_lost_connection_is_made_anew(capsys: pytest.CaptureFixture[str]) -> None:
    leader = Leader()
    leader.batches = [(0, batch(0, b"a"), [(0, 0, 1)])]
    cluster, _, reader = reading(leader)
    found = reader.acquire(1, RECORD_LIMIT)
    leader.is_lost = True
    assert reader.acquire(1, RECORD_LIMIT) == []
    cluster.leaders[0] = Leader()
    cluster.leaders[0].batches = [(1, batch(0, b"b"), [(0, 0, 1)])]
    assert values(reader.acquire(1, RECORD_LIMIT)) == [b"b"]
    reader.acknowledge(found, Acknowledgement.ACCEPT)
    assert "so these records may be delivered again" in capsys.readouterr().err
    assert cluster.leaders[0].acknowledged == []


@pytest.mark.parametrize("kind", [Acknowledgement.ACCEPT, Acknowledgement.RELEASE])
def test_what_the_leader_cannot_store_is_sent_again_while_the_lock_holds(
    kind: Acknowledgement, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = Leader()
    leader.batches = [(0, batch(at, b"a"), [(at, at, 1)]) for at in range(2)]
    _, _, reader = reading(leader)
    leader.acknowledge_errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    reader.acknowledge(reader.acquire(1, RECORD_LIMIT), kind)
    assert leader.acknowledged == [(0, 0, 0, kind)]
    assert capsys.readouterr().err == ""
    leader.acknowledge_errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1_000
    began = clock.now
    reader.acknowledge(reader.acquire(1, RECORD_LIMIT), kind)
    assert 30 <= clock.now - began < 40
    assert "COORDINATOR_NOT_AVAILABLE" in capsys.readouterr().err


def test_an_expired_lock_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    leader = Leader()
    leader.batches = [(0, batch(7, b"a"), [(7, 7, 1)])]
    _, _, reader = reading(leader)
    leader.acknowledge_errors = [ErrorCode.INVALID_RECORD_STATE]
    reader.acknowledge(reader.acquire(1, RECORD_LIMIT), Acknowledgement.ACCEPT)
    assert "t-0 from offset 7 to 7: not acknowledged (INVALID_RECORD_STATE)" in capsys.readouterr().err


def test_locks_are_renewed_before_they_end(clock: Clock) -> None:
    leader = Leader()
    leader.batches = [(0, batch(0, b"a", b"b"), [(0, 1, 1)])]
    _, _, reader = reading(leader)
    found = reader.acquire(2, RECORD_LIMIT)
    for _ in range(20):
        clock.sleep(1)
        reader.tend()
    assert leader.acknowledged == [(0, 0, 1, 4)] * 2
    reader.acknowledge(found, Acknowledgement.ACCEPT)
    clock.sleep(60)
    reader.tend()
    assert leader.acknowledged[2:] == [(0, 0, 1, 1)]


def test_a_leader_without_renewals_is_not_asked_for_them(clock: Clock) -> None:
    leader = Leader(version=1)
    leader.batches = [(0, batch(0, b"a"), [(0, 0, 1)])]
    _, _, reader = reading(leader)
    reader.acquire(1, RECORD_LIMIT)
    clock.sleep(20)
    reader.tend()
    assert leader.acknowledged == []


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_joins_again_and_keeps_its_partitions(code: ErrorCode, clock: Clock) -> None:
    cluster, member, _ = reading(Leader())
    member.tend()
    assigned = member.assignment
    clock.sleep(4.9)
    member.tend()
    assert len(cluster.heartbeats) == 1
    cluster.answers = [code]
    clock.sleep(0.2)
    member.tend()
    assert member.assignment == assigned
    member.tend()
    assert cluster.heartbeats == [(0, ["t"]), (1, None), (0, ["t"])]


def test_a_heartbeat_without_a_coordinator_is_sent_again_soon(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, member, _ = reading(Leader())
    cluster.answers = [BrokerAway("no broker"), ErrorCode.NOT_COORDINATOR] * 10
    for _ in range(14):
        member.tend()
        clock.sleep(0.5)
    assert cluster.heartbeats == [(0, ["t"])] * 14
    assert capsys.readouterr().err.count("trying again") == 1
    cluster.answers = []
    member.tend()
    assert member.assignment


def test_a_worker_that_gets_no_partition_says_so_once(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster of one node may be set up to keep the state of share groups on three."""
    cluster, member, _ = reading(Leader())
    cluster.assigns = False
    for _ in range(30):
        member.tend()
        clock.sleep(0.5)
    assert capsys.readouterr().err.count("group g has no partition for this worker yet") == 1


def test_a_group_of_another_kind_and_a_full_group_are_refused() -> None:
    cluster, member, _ = reading(Leader())
    cluster.answers = [ErrorCode.GROUP_ID_NOT_FOUND]
    with pytest.raises(CommandFailed, match="g is not a share group"):
        member.tend()
    cluster, member, _ = reading(Leader())
    cluster.answers = [ErrorCode.GROUP_MAX_SIZE_REACHED]
    with pytest.raises(CommandFailed, match="GROUP_MAX_SIZE_REACHED"):
        member.tend()
    member.leave()
    assert len(cluster.heartbeats) == 1  # it never became a member


def test_the_epoch_of_a_session_begins_anew_after_the_last_one() -> None:
    leader: Any = Leader()
    session = ShareSession(leader, GROUP, "m")
    places = frozenset({(TOPIC, 0)})
    session.fetch(places, 1, RECORD_LIMIT, 0)
    session._epoch = leader.epoch = LAST_EPOCH
    session.fetch(places, 1, RECORD_LIMIT, 0)
    leader.epoch = 1
    session.fetch(places, 1, RECORD_LIMIT, 0)
    with pytest.raises(SessionLost):
        ShareSession(leader, GROUP, "m").acknowledge({(TOPIC, 0): [Range(0, 0, Acknowledgement.ACCEPT)]})


@given(st.dictionaries(st.integers(0, 30), st.sampled_from(Acknowledgement)))
def test_joined_ranges_are_in_order_and_say_the_same(kinds: dict[int, Acknowledgement]) -> None:
    ranges = joined(Range(offset, offset, kind) for offset, kind in kinds.items())
    said = {offset: each.kind for each in ranges for offset in range(each.first, each.last + 1)}
    assert said == kinds
    for one, other in itertools.pairwise(ranges):
        assert one.last < other.first
        assert one.kind != other.kind or one.last + 1 < other.first


# What a program's end means.


@pytest.mark.parametrize(
    ("status", "deliveries", "retries", "outcome"),
    [
        (0, 9, 0, Outcome.ACCEPT),
        (65, 1, None, Outcome.REJECT),
        (1, 1, None, Outcome.RELEASE),
        (1, 9, None, Outcome.RELEASE),
        (1, 2, 2, Outcome.RELEASE),
        (1, 3, 2, Outcome.REJECT),
        (1, 1, 0, Outcome.REJECT),
        (75, 9, 0, Outcome.RELEASE),
        (-9, 9, 0, Outcome.RELEASE),
    ],
)
def test_the_status_decides(status: int, deliveries: int, retries: int | None, outcome: Outcome) -> None:
    assert outcome_of(status, deliveries, retries) is outcome


def test_a_status_is_told_in_words() -> None:
    assert [ending_of(each) for each in (3, -9, -200)] == ["status 3", "SIGKILL", "signal 200"]


def delivery(record: Record, count: int = 2) -> Delivery:
    session: Any = None
    return Delivery("t", (TOPIC, 1), 7, record, count, session)


def test_a_record_is_told_in_the_environment_as_far_as_it_can_hold_it() -> None:
    full = variables_of(delivery(Record(0, 5, b"k", b"v")))
    assert full == {
        b"RECORD_TOPIC": b"t",
        b"RECORD_PARTITION": b"1",
        b"RECORD_OFFSET": b"7",
        b"RECORD_TIMESTAMP": b"5",
        b"RECORD_DELIVERY_COUNT": b"2",
        b"RECORD_KEY": b"k",
    }
    for key in (None, b"a\0b", b"k" * 100_000):
        assert b"RECORD_KEY" not in variables_of(delivery(Record(0, 5, key, b"v")))
    assert variables_of(delivery(Record(0, 5, None, None)))[b"RECORD_VALUE_IS_NULL"] == b"1"


def test_a_command_is_split_as_a_shell_does_and_must_exist() -> None:
    assert words_of("sh -c 'exit 3'") == ["sh", "-c", "exit 3"]
    for wrong in ("", "no-such-program-here", "sh 'open"):
        with pytest.raises(CommandFailed, match="--exec"):
            words_of(wrong)


def test_a_program_gets_the_value_and_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORD_KEY", "of somebody else")
    script = 'test "$(cat)" = v && test -z "$RECORD_KEY" && exit $RECORD_DELIVERY_COUNT'
    record = delivery(Record(0, 5, None, b"v"), count=42)
    assert run_for(record, ["sh", "-c", script], None, lambda: None) == 42
    assert run_for(record, ["true"], None, lambda: None) == 0  # it does not read the value
    large = delivery(Record(0, 5, None, b"v" * 1_000_000))
    assert run_for(large, ["sh", "-c", "exec 0<&-; exit 3"], None, lambda: None) == 3


@pytest.fixture
def running_clock(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.undo()


@pytest.mark.usefixtures("running_clock")
def test_a_program_is_ended_with_those_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit, which comes when the program has started another one, and when it is interrupted then."""
    begun = tmp_path / "pid"
    words = ["sh", "-c", f"sleep 300 & echo $! > {tmp_path}/part; mv {tmp_path}/part {begun}; wait"]
    time_of_the_limit = SimpleNamespace(monotonic=lambda: 10.0 if begun.exists() else 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(record_command, "time", time_of_the_limit)
        assert run_for(delivery(Record(0, 5, None, b"")), words, 0.5, lambda: None) == -signal.SIGTERM
    is_gone(int(begun.read_text()))
    begun.unlink()

    class Interrupt(BaseException):
        pass

    def tend() -> None:
        if begun.exists():
            raise Interrupt

    with pytest.raises(Interrupt):
        run_for(delivery(Record(0, 5, None, b"")), words, None, tend)
    is_gone(int(begun.read_text()))


def test_a_program_is_ended_though_the_signal_comes_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            made.append(self)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    try:
        with terminable(), pytest.raises(Terminated):
            run_for(delivery(Record(0, 5, None, b"")), ["sleep", "300"], None, lambda: None)
        assert [process.returncode for process in made] == [-signal.SIGTERM]
    finally:
        for process in made:
            process.kill()


def is_gone(pid: int) -> None:
    """The program ends soon. Nobody may wait for it, so that its entry may stay."""
    until = time.monotonic() + 30
    with contextlib.suppress(FileNotFoundError):
        while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < until
            time.sleep(0.01)


# What a worker does with records.


def deliver(leader: Leader, *counts: int) -> tuple[ShareReader, list[Delivery]]:
    for at, count in enumerate(counts):
        leader.batches.append((0, batch(at, b"%d" % at), [(at, at, count)]))
    _, _, reader = reading(leader)
    return reader, [found for _ in counts for found in reader.acquire(1, RECORD_LIMIT)]


def test_a_program_accepts_rejects_and_releases(capsys: pytest.CaptureFixture[str]) -> None:
    leader = Leader()
    reader, found = deliver(leader, 1, 1, 1, 3)
    script = "read value; case $value in 0) exit 0;; 1) exit 65;; *) exit 1;; esac"
    work = consume_share.ByCommand(reader, ["sh", "-c", script], 2, 5.0, None)
    assert work.do(found)
    work.finish()
    assert [kind for *_, kind in leader.acknowledged if kind != Acknowledgement.RENEW] == [1, 3, 2, 3]
    said = capsys.readouterr().err
    assert "t-0 offset 2, delivery 1: status 1, released" in said
    assert said.endswith("1 accepted, 1 released, 2 rejected\n")


@pytest.mark.parametrize("status", [126, 127])
def test_a_program_that_cannot_be_run_ends_the_worker_and_costs_no_record(status: int) -> None:
    leader = Leader()
    reader, found = deliver(leader, 1)
    work = consume_share.ByCommand(reader, ["sh", "-c", f"exit {status}"], 0, 0.0, None)
    with pytest.raises(CommandFailed, match="t-0 offset 0 is released"):
        work.do(found)
    reader.close()
    assert leader.acknowledged == []
    assert leader.epoch is None


def test_lines_are_read_as_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        answers = Answers()
        os.write(writer, b"accept\n rel")
        assert answers.next(lambda: None) == "accept"
        tended: list[int] = []

        def tend() -> None:
            tended.append(os.write(writer, b"ease \nhalf"))

        assert answers.next(tend) == "release"
        assert len(tended) == 1
        os.close(writer)
        assert answers.next(lambda: None) is None
    endless, writer = os.pipe()
    with os.fdopen(endless) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(writer, b"x" * 5_000)
        with pytest.raises(CommandFailed, match="more than 1024 bytes"):
            Answers().next(lambda: None)
        os.close(writer)


def test_a_line_shows_topic_and_deliveries() -> None:
    shown = share_renderer(["topic", "partition", "deliveries", "offset", "value"], b"|")
    assert shown(delivery(Record(0, 5, None, b"v|\n"))) == b"t|1|2|7|v|\n\n"
    assert share_renderer(["value"], b"|")(delivery(Record(0, 5, None, None))) == b"null\n"
    with pytest.raises(CommandFailed, match="'colour'"):
        share_renderer(["topic", "colour"], b"|")


@pytest.mark.parametrize(
    ("stands", "drained"),
    [
        ({}, True),
        ({0: Stand(-1, -1)}, True),
        ({0: Stand(0, 0)}, True),  # all is accepted, but a new start is stored later
        ({0: Stand(2, 3)}, False),
        ({0: Stand(5, 3)}, True),  # what is left came later
        ({0: Stand(2, -1)}, True),  # an older broker tells no lag
    ],
)
def test_a_group_is_drained_when_nothing_before_the_end_is_left(
    stands: dict[int, Stand], drained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_share, "described_offsets", lambda *_: {"t": stands})
    cluster: Any = None
    assert consume_share.is_drained(cluster, GROUP, {("t", 0): 5}) is drained
