"""The metadata log's state machine: images in order, and proposals reverted when leadership is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import HandTime, PauselessTasks
from kafkacompat.api.request_context import NotController
from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller._tests.harness import CLUSTER_ID
from kafkacompat.controller.controller_metrics import BatchMeter
from kafkacompat.controller.controller_result import ControllerResult
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.records import MetadataRecord, frame_all
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.raft.contracts import LoadedBatch
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.quorum_snapshots import SnapshotWriter
from kafkacompat.raft.snapshot import SnapshotFormat, parse_snapshot
from kafkacompat.tasks import TURN_COST, at_once
from kafkacompat.wire.messages.no_op_record import NoOpRecord
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
from kafkacompat.wire.messages.topic_record import TopicRecord


class FakeQuorum:
    """Commits on request, in order, or loses everything that waits."""

    def __init__(self) -> None:
        self.next_offset = 10
        self.epoch = 3
        self.bytes_since_snapshot = 0
        self.ms_since_snapshot = 0
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.snapshots: list[tuple[int, int]] = []
        self.written: Sequence[bytes] = ()

    def propose(self, values: PackedValues, committed: Callable[[], None], lost: Callable[[], None]) -> int:
        first = self.next_offset
        self.next_offset += values.count
        self.waiting.append((committed, lost))
        return first

    def when_committed(self, call: Callable[[], None], lost: Callable[[], None]) -> None:
        if self.waiting:
            self.waiting.append((call, lost))
        else:
            call()

    def resign_for_room(self, size_bytes: int, error: OSError) -> bool:
        return False

    def begin_snapshot(self, end_offset: int, epoch: int) -> SnapshotWriter:
        def write(parts: Sequence[bytearray]) -> None:
            self.snapshots.append((end_offset, epoch))
            self.bytes_since_snapshot = self.ms_since_snapshot = 0
            self.written = parse_snapshot(b"".join(parts)).values

        return SnapshotWriter(SnapshotFormat(epoch, 0, 0, 0, ()), write, lambda: None)

    def commit(self, count: int | None = None) -> None:
        for committed, _ in self.waiting[:count]:
            committed()
        del self.waiting[:count]

    def lose(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, lost in waiting:
            lost()


def topic(name: str) -> MetadataRecord:
    return MetadataRecord(TopicRecord(name=name, topic_id=name.encode().rjust(16, b"\0")), 0)


@pytest.fixture
def machine() -> MetadataMachine:
    settings = ServerConfig.from_properties(defaults_without_file())
    core = ControllerCore(ControllerSettings(settings, 1, CLUSTER_ID))
    machine = MetadataMachine(
        core, PauselessTasks(HandTime()), max_bytes_between_snapshots=1000, max_ms_between_snapshots=60_000
    )
    machine.attach(FakeQuorum())
    return machine


def quorum_of(machine: MetadataMachine) -> FakeQuorum:
    assert isinstance(machine.quorum, FakeQuorum)
    return machine.quorum


def lead(machine: MetadataMachine) -> None:
    machine.leader_changed(3, 1)
    machine.became_active(3)


def test_committed_batches_become_one_image_when_caught_up(machine: MetadataMachine) -> None:
    seen: list[tuple[int, list[str]]] = []
    machine.subscribe(lambda old, new: seen.append((new.offset, sorted(new.topics))))
    machine.apply(LoadedBatch(frame_all([topic("a")]), 4, 1))
    machine.apply(LoadedBatch(frame_all([topic("b")]), 5, 1))
    assert seen == []
    machine.caught_up()
    assert seen == [(5, ["a", "b"])]


def test_a_snapshot_takes_the_place_of_everything_before(machine: MetadataMachine) -> None:
    machine.apply(LoadedBatch(frame_all([topic("a")]), 4, 1))
    machine.caught_up()
    machine.load_snapshot(LoadedBatch(frame_all([topic("b")]), 90, 2, is_snapshot=True))
    machine.caught_up()
    assert (machine.image.offset, sorted(machine.image.topics)) == (90, ["b"])


def test_the_next_command_sees_what_is_not_committed_and_subscribers_do_not(machine: MetadataMachine) -> None:
    lead(machine)
    answer = machine.submit(ControllerResult((topic("a"),), "made"))
    assert "a" in machine.core.image.topics
    assert "a" not in machine.image.topics
    assert not answer.done
    quorum_of(machine).commit()
    assert answer.result() == "made"
    assert (machine.image.offset, "a" in machine.image.topics) == (10, True)


def test_lost_leadership_takes_back_what_was_not_committed_and_says_so(machine: MetadataMachine) -> None:
    lead(machine)
    kept = machine.submit(ControllerResult((topic("a"),), "made"))
    lost = machine.submit(ControllerResult((topic("b"),), "made"))
    quorum = quorum_of(machine)
    quorum.commit(2)
    quorum.lose()
    machine.leader_changed(4, 2)
    assert kept.result() == "made"
    with pytest.raises(NotController):
        lost.result()
    assert sorted(machine.core.image.topics) == ["a"]
    with pytest.raises(NotController):
        machine.submit(ControllerResult((), None))
    # The next leader has committed it after all: it comes through the log like any other record.
    machine.apply(LoadedBatch(frame_all([topic("b")]), 11, 3))
    machine.caught_up()
    assert sorted(machine.image.topics) == ["a", "b"]


def test_a_raised_kraft_version_stays_in_images_of_proposals_before_it(machine: MetadataMachine) -> None:
    lead(machine)
    machine.append([topic("a")])
    machine.take_kraft_version(1)
    assert machine.image.features["kraft.version"] == 1
    quorum_of(machine).commit()
    assert machine.image.features["kraft.version"] == 1
    assert "a" in machine.image.topics


def test_a_record_that_does_not_fit_is_not_proposed(machine: MetadataMachine) -> None:
    lead(machine)
    with pytest.raises(Exception, match=r".+"):
        machine.append([topic("a"), MetadataRecord(RemoveTopicRecord(topic_id=b"\7" * 16), 0)])
    assert machine.core.image.topics == {}
    assert quorum_of(machine).waiting == []


def test_every_role_writes_a_snapshot_of_what_is_committed(machine: MetadataMachine) -> None:
    quorum = quorum_of(machine)
    quorum.bytes_since_snapshot = 1000
    machine.apply(LoadedBatch(frame_all([topic("a")]), 4, 1))
    machine.caught_up()
    assert quorum.snapshots == [(5, 1)]


def test_a_snapshot_is_also_due_after_a_time_with_few_records(machine: MetadataMachine) -> None:
    quorum = quorum_of(machine)
    for offset, quorum.ms_since_snapshot in ((4, 59_999), (5, 60_000), (6, 1)):
        machine.apply(LoadedBatch(frame_all([MetadataRecord(NoOpRecord(), 0)]), offset, 1))
        machine.caught_up()
    assert quorum.snapshots == [(6, 1)]


def test_without_a_limit_no_time_makes_a_snapshot_due() -> None:
    settings = ServerConfig.from_properties(defaults_without_file())
    core = ControllerCore(ControllerSettings(settings, 1, CLUSTER_ID))
    machine = MetadataMachine(
        core, PauselessTasks(HandTime()), max_bytes_between_snapshots=1000, max_ms_between_snapshots=0
    )
    quorum = FakeQuorum()
    machine.attach(quorum)
    quorum.ms_since_snapshot = 1 << 40
    machine.apply(LoadedBatch(frame_all([topic("a")]), 4, 1))
    machine.caught_up()
    assert quorum.snapshots == []


def test_old_and_new_are_told(machine: MetadataMachine) -> None:
    pairs: list[tuple[MetadataImage, MetadataImage]] = []
    machine.subscribe(lambda old, new: pairs.append((old, new)))
    for offset, name in ((4, "a"), (5, "b")):
        machine.apply(LoadedBatch(frame_all([topic(name)]), offset, 1))
        machine.caught_up()
    assert pairs[0][1] is pairs[1][0]


def sizes(machine: MetadataMachine) -> list[float]:
    return list(machine.batches.sizes.recent)


def test_the_records_of_replayed_batches_are_counted(machine: MetadataMachine) -> None:
    """Those of the log, in one part or several, and those that this node proposes; not those of snapshots."""
    machine.load_snapshot(LoadedBatch(frame_all([topic("a")]), 1, 1, is_snapshot=True))
    machine.apply_part(frame_all([topic("b"), topic("c")]))
    machine.caught_up()
    assert sizes(machine) == []
    machine.apply(LoadedBatch(frame_all([topic("d")]), 4, 1))
    machine.apply_part(frame_all([topic("e"), topic("f")]))
    machine.apply(LoadedBatch(frame_all([topic("g")]), 7, 1))
    machine.caught_up()
    assert sizes(machine) == [1, 3]
    lead(machine)
    machine.append([topic("h"), topic("i")])
    assert sizes(machine) == [1, 3, 2]
    assert len(machine.batches.times_us.recent) == machine.batches.times_us.count == 3


def test_the_time_of_a_batch_is_that_of_its_parts() -> None:
    now_s = iter(range(100))
    meter = BatchMeter(lambda: next(now_s))
    meter.begin()
    meter.end_part(5)
    meter.begin()
    meter.end(1)
    assert (list(meter.sizes.recent), list(meter.times_us.recent)) == ([6], [2_000_000])


def test_what_the_controller_and_snapshots_fail_at_is_counted(
    machine: MetadataMachine, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = quorum_of(machine)
    lead(machine)
    wrong = MetadataRecord(RemoveTopicRecord(topic_id=b"\7" * 16), 0)
    assert at_once(machine.append_own([wrong])) is False
    assert (machine.faults, machine.snapshot_faults) == (1, 0)
    monkeypatch.setattr("kafkacompat.controller.snapshot_records.image_records", _fails)
    quorum.bytes_since_snapshot = 1000
    machine.append([topic("a")])
    quorum.commit()
    assert (machine.faults, machine.snapshot_faults) == (2, 1)
    assert len(faults.take()) == 2


def _fails(image: object) -> Iterator[MetadataRecord]:
    raise RuntimeError("boom")
    yield TURN_COST
