"""The collector's decisions with a disk that rotates, truncates, renames and appends at random, and a collector that dies."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.pipeline.collector.followed import Chunk, Mark, Saved
from kafkacompat.pipeline.collector.following import MOST_LOOKS, SETTLE_LOOKS, Following, Look
from kafkacompat.pipeline.collector.identity import HEAD_BYTES, fingerprint
from kafkacompat.pipeline.collector.lines import RECORD_LINES_MAX, Line, LineCutter, RecordCutter
from kafkacompat.pipeline.collector.saved_state import StateUnreadable, decode, encode

LOG = "access.log"
DEVICE = 7
ROUNDS = 20 if os.environ.get("KAFKACOMPAT_SOAK") == "1" else 1


class Disk:
    """Files by name, with inodes as in a file system."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.content: dict[int, bytearray] = {}
        self.free: list[int] = []
        self.next_inode = 100
        self.clock_ns = 0
        self.modified_ns: dict[int, int] = {}

    def create(self, name: str, content: bytes = b"") -> None:
        inode = self.free.pop() if self.free else self.next_inode
        self.next_inode += inode == self.next_inode
        self.names[name] = inode
        self.content[inode] = bytearray(content)
        self.touch(inode)

    def touch(self, inode: int) -> None:
        self.clock_ns += 1
        self.modified_ns[inode] = self.clock_ns

    def append(self, name: str, data: bytes) -> None:
        self.content[self.names[name]].extend(data)
        self.touch(self.names[name])

    def shift(self) -> None:
        """Rename access.log.1 to access.log.2, and so on."""
        for number in sorted(
            (int(name.rsplit(".", 1)[1]) for name in self.names if name != LOG), reverse=True
        ):
            self.names[f"{LOG}.{number + 1}"] = self.names.pop(f"{LOG}.{number}")

    def rotate_by_rename(self) -> None:
        self.shift()
        self.names[f"{LOG}.1"] = self.names.pop(LOG)
        self.create(LOG)

    def rotate_by_copy(self) -> None:
        self.shift()
        self.create(f"{LOG}.1", bytes(self.content[self.names[LOG]]))
        self.content[self.names[LOG]].clear()
        self.touch(self.names[LOG])

    def delete(self, name: str) -> None:
        inode = self.names.pop(name)
        del self.content[inode]
        self.free.append(inode)


class Collector:
    """The shell's loop over a Disk. `arrived` has the lines that reached the broker."""

    def __init__(self, disk: Disk, max_line_bytes: int = 10_000, host: str = "web") -> None:
        self.disk = disk
        self.host = host
        self.max_line_bytes = max_line_bytes
        self.arrived: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        self.state = encode([], [])
        self.on_the_way: list[tuple[Chunk, str, list[tuple[int, bytes]]]] = []
        self.following = Following(max_line_bytes=max_line_bytes, host=host)

    def poll(self, most_bytes: int = 1 << 20) -> None:
        seen = set()
        for name, inode in sorted(self.disk.names.items()):
            seen.add((DEVICE, inode))

            def read(offset: int, length: int, inode: int = inode) -> bytes:
                return bytes(self.disk.content[inode][offset : offset + length])

            size, modified_ns = len(self.disk.content[inode]), self.disk.modified_ns[inode]
            file = self.following.look(Look(name, DEVICE, inode, size, modified_ns), read)
            while file is not None and file.unread_bytes:
                lines, chunk = self.following.lines_of(file, read, most_bytes)
                if self.following.must_save:
                    self.save()
                if chunk is None and file.left:
                    break
                if chunk is not None:
                    assert file.identity is not None
                    pairs = [(line.position, line.value) for line in lines]
                    self.on_the_way.append((chunk, file.identity, pairs))
                if most_bytes < 1 << 20:
                    break
        for file in list(self.following.files()):
            if (file.device, file.inode) not in seen:
                self.following.gone((file.device, file.inode))

    def deliver(self, index: int) -> None:
        """Acknowledge one whole chunk, in any order."""
        if self.on_the_way:
            chunk, identity, pairs = self.on_the_way.pop(index % len(self.on_the_way))
            for position, value in pairs:
                self.arrived[identity, position].add(value)
            chunk.missing = 0
            chunk.file.acknowledge()

    def save(self) -> None:
        self.state = encode(self.following.saved(), self.following.held())
        self.following.must_save = False

    def crash(self) -> None:
        self.on_the_way.clear()
        self.following = Following(*decode(self.state), max_line_bytes=self.max_line_bytes, host=self.host)

    def drain(self) -> None:
        for _ in range(MOST_LOOKS + SETTLE_LOOKS):
            self.poll()
            while self.on_the_way:
                self.deliver(0)
            self.save()

    def values(self) -> Counter[bytes]:
        """Return the number of event ids under which each line has arrived."""
        return Counter(value for values in self.arrived.values() for value in values)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 600)),
        st.tuples(st.just("part"), st.integers(0, 0), st.integers(1, 300)),
        st.tuples(st.sampled_from(["rename", "copy", "save", "crash", "delete"])),
        st.tuples(st.just("poll"), st.sampled_from([1, 50, 700, 1 << 20])),
        st.tuples(st.just("deliver"), st.integers(0, 5)),
    ),
    max_size=40,
)


def run(operations: list[tuple], heading: bytes) -> tuple[Collector, list[bytes]]:
    """Run the operations, complete the last line, ship everything. Return the lines written, without the heading."""
    disk = Disk()
    disk.create(LOG)
    collector = Collector(disk)
    written: list[bytes] = []
    unfinished = b""

    def append(data: bytes) -> None:
        if not disk.content[disk.names[LOG]]:
            disk.append(LOG, heading)
        disk.append(LOG, data)

    def end_line() -> None:
        nonlocal unfinished
        if unfinished:
            append(b"\n")
            written.append(unfinished)
            unfinished = b""

    for operation, *numbers in operations:
        match operation:
            case "append":
                end_line()
                for _ in range(numbers[0]):
                    written.append(b"%d %s" % (len(written), b"x" * numbers[1]))
                    append(written[-1] + b"\n")
            case "part":
                piece = (b"%d " % len(written) if not unfinished else b"") + b"y" * numbers[1]
                append(piece)
                unfinished += piece
            case "rename":
                end_line()
                disk.rotate_by_rename()
            case "copy":
                end_line()
                disk.rotate_by_copy()
            case "delete":
                end_line()
                collector.drain()
                for name in [name for name in disk.names if name != LOG]:
                    disk.delete(name)
            case "poll":
                collector.poll(numbers[0])
            case "deliver":
                collector.deliver(numbers[0])
            case "save":
                collector.save()
            case "crash":
                collector.crash()
    end_line()
    collector.drain()
    return collector, written


@settings(max_examples=400 * ROUNDS)
@given(OPERATIONS, st.sampled_from([b"", b"#Fields: a b c\n"]))
def test_every_line_arrives_and_no_event_id_means_two_lines(operations: list[tuple], heading: bytes) -> None:
    collector, written = run(operations, heading)
    arrived = collector.values()
    assert [line for line in written if line not in arrived] == []
    assert {key: values for key, values in collector.arrived.items() if len(values) > 1} == {}


@settings(max_examples=300 * ROUNDS)
@given(OPERATIONS)
def test_a_line_keeps_its_event_id_through_renames_and_crashes(operations: list[tuple]) -> None:
    operations = [operation for operation in operations if operation[0] != "copy"]
    collector, written = run(operations, b"")
    assert collector.values() == Counter(written)


@settings(max_examples=300 * ROUNDS)
@given(OPERATIONS, st.sampled_from([b"", b"#Fields: a b c\n"]))
def test_a_line_keeps_its_event_id_through_copies_while_the_collector_lives(
    operations: list[tuple], heading: bytes
) -> None:
    operations = [operation for operation in operations if operation[0] != "crash"]
    # A copy of a file that was never read cannot be recognised. It counts as a new file.
    looked: list[tuple] = []
    for operation in operations:
        if operation[0] == "copy":
            looked.append(("poll", 1 << 20))
        looked.append(operation)
    collector, written = run(looked, heading)
    counts = collector.values()
    counts.pop(heading.rstrip(b"\n"), None)
    assert counts == Counter(written)


def collected(disk: Disk) -> Collector:
    """Return a collector that has shipped everything on the disk."""
    collector = Collector(disk)
    collector.drain()
    return collector


def test_an_inode_given_out_again_is_another_file() -> None:
    disk = Disk()
    disk.create(LOG, b"first file, first line\n")
    collector = collected(disk)
    disk.delete(LOG)
    disk.create(LOG, b"other file, first line\nand a second\n")
    collector.drain()
    assert list(disk.content) == [100]
    assert len({identity for identity, _ in collector.arrived}) == 2
    assert len(collector.values()) == 3


def test_the_last_line_waits_for_its_newline() -> None:
    disk = Disk()
    disk.create(LOG, b"whole\nhal")
    collector = collected(disk)
    assert collector.values() == Counter([b"whole"])
    disk.append(LOG, b"f\n")
    collector.drain()
    assert collector.values() == Counter([b"whole", b"half"])


def test_a_truncation_is_seen_though_the_file_has_grown_to_the_same_size_or_beyond() -> None:
    for fresh in (b"new line of n\n", b"new line of now and longer\n"):
        disk = Disk()
        disk.create(LOG, b"old line of o\n")
        collector = collected(disk)
        disk.content[disk.names[LOG]].clear()
        disk.append(LOG, fresh)
        collector.drain()
        assert collector.values() == Counter([b"old line of o", fresh.rstrip()])
        assert collector.following.truncations == 1


def test_a_copy_that_a_person_made_is_not_shipped_and_one_that_grows_is() -> None:
    disk = Disk()
    lines = [b"%03d %s" % (number, b"x" * 40) for number in range(50)]
    disk.create(LOG, b"\n".join(lines) + b"\n")
    collector = collected(disk)
    disk.create(f"{LOG}.9", bytes(disk.content[disk.names[LOG]]))
    disk.append(LOG, b"one more\n")
    collector.drain()
    collector.crash()
    collector.drain()
    assert collector.values() == Counter([*lines, b"one more"])
    disk.append(f"{LOG}.9", b"its own\n")
    collector.drain()
    assert collector.values() == Counter([*lines, b"one more", b"its own"])
    # After a crash too, what the original has shipped is not read again.
    collector.crash()
    disk.append(f"{LOG}.9", b"more of its own\n")
    collector.drain()
    assert collector.values() == Counter([*lines, b"one more", b"its own", b"more of its own"])


def test_a_file_moved_to_another_device_goes_on_under_its_identity() -> None:
    disk = Disk()
    disk.create(LOG, b"a line\n")
    collector = collected(disk)
    content = bytes(disk.content[disk.names[LOG]])
    disk.delete(LOG)
    disk.create("elsewhere", b"")
    disk.create(f"{LOG}.1", content + b"written meanwhile\n")
    collector.drain()
    assert len({identity for identity, _ in collector.arrived}) == 1
    assert collector.values() == Counter([b"a line", b"written meanwhile"])


def test_lines_of_two_hosts_made_from_one_image_are_told_apart() -> None:
    """Device, inode, first line and all positions are equal."""
    disk = Disk()
    disk.create(LOG, b"#Fields: date time cs-uri\na line\n")
    one, other = Collector(disk, host="web-1"), Collector(disk, host="web-2")
    for collector in (one, other):
        collector.drain()
        assert collector.values() == Counter([b"#Fields: date time cs-uri", b"a line"])
    assert one.arrived.keys().isdisjoint(other.arrived.keys())


def test_a_host_that_is_renamed_goes_on_with_its_files() -> None:
    disk = Disk()
    disk.create(LOG, b"a line\n")
    collector = collected(disk)
    collector.host = "renamed"
    collector.crash()
    disk.append(LOG, b"another\n")
    collector.drain()
    assert len({identity for identity, _ in collector.arrived}) == 1
    assert collector.values() == Counter([b"a line", b"another"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "files": [], "held": []}',
        '{"version": 1, "files": [{}], "held": []}',
        "nonsense",
    ],
)
def test_a_state_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StateUnreadable):
        decode(text)


def saved_file(fields: bytes, *marks: Mark) -> Saved:
    return Saved("id", 1, 2, "print", "/a.log", marks[0].position, marks, False, fields=fields)


@pytest.mark.parametrize(
    "saved",
    [
        saved_file(b"", Mark(10, "a"), Mark(20, "b", b"date time")),
        saved_file(b"date time", Mark(10, "a", b"date time"), Mark(20, "b", b"date"), Mark(30, "c")),
    ],
)
def test_fields_are_saved_with_the_position_and_the_marks(saved: Saved) -> None:
    assert decode(encode([saved], [])) == ([saved], [])


def test_a_state_without_fields_is_read_and_unusable_ones_are_refused() -> None:
    text = encode([saved_file(b"date time", Mark(10, "a", b"date time"))], [])
    older = re.sub(r',\s*"fields": "date time"', "", text)
    assert decode(older)[0] == [saved_file(b"", Mark(10, "a"))]
    with pytest.raises(StateUnreadable, match="no usable fields"):
        decode(text.replace("date time", "date\\u0007"))


def test_a_fingerprint_does_not_change_while_the_file_grows() -> None:
    assert fingerprint(b"no newline yet") is None
    assert fingerprint(b"a line\n") == fingerprint(b"a line\nand more\n") != fingerprint(b"b line\n")
    assert fingerprint(b"x" * HEAD_BYTES) == fingerprint(b"x" * 2 * HEAD_BYTES + b"\n")


@given(st.lists(st.binary(max_size=30), max_size=10), st.integers(1, 12), st.integers(1, 9))
def test_cutting_is_the_same_however_the_bytes_come(parts: list[bytes], bound: int, step: int) -> None:
    whole = b"\n".join(parts)
    cutter = LineCutter(0, bound)
    lines = [
        line for start in range(0, len(whole), step) for line in cutter.feed(whole[start : start + step])
    ]
    expected = whole.split(b"\n")
    assert [(line.value, line.length_bytes) for line in lines] == [
        (value[:bound], len(value)) for value in expected[:-1]
    ]
    for line in lines:
        assert whole[line.position : line.position + line.length_bytes + 1][-1:] == b"\n"
    assert cutter.waiting_bytes == len(expected[-1])
    assert cutter.scanned == len(whole)


def first(line: bytes) -> bool:
    return line.startswith(b"x")


@given(
    st.lists(st.text("xy", max_size=6), max_size=12),
    st.integers(1, 9),
    st.sets(st.integers(0, 40), max_size=3),
)
def test_putting_together_is_the_same_however_the_bytes_come(
    parts: list[str], step: int, breaks: set[int]
) -> None:
    whole = "".join(part + "\n" for part in parts).encode()
    cutter = RecordCutter(0, 1000, first, breaks)
    records = []
    for start in range(0, len(whole), step):
        records += cutter.feed(whole[start : start + step])
        assert cutter.start + cutter.waiting_bytes == cutter.scanned
    records += cutter.finish()
    assert not cutter.is_open
    assert b"".join(record.value + b"\n" for record in records) == whole
    at = 0
    for number, record in enumerate(records):
        assert record == Line(at, whole[at : at + len(record.value)], len(record.value))
        assert number == 0 or first(record.value) or at in breaks
        at += len(record.value) + 1
        assert not any(map(first, record.value.split(b"\n")[1:]))


def test_a_rule_that_fits_no_line_divides_the_lines_and_loses_none() -> None:
    cutter = RecordCutter(0, 10, first)
    records = cutter.feed(b"aa\nbb\ncc\ndddddd\n" + b"e" * 15 + b"\nf\n") + cutter.finish()
    assert [(record.value, record.length_bytes) for record in records] == [
        (b"aa\nbb\ncc", 8),
        (b"dddddd", 6),
        (b"e" * 10, 15),
        (b"f", 1),
    ]
    long = RecordCutter(0, 1 << 20, first)
    records = long.feed(b"\n" * (2 * RECORD_LINES_MAX)) + long.finish()
    assert [record.length_bytes for record in records] == [RECORD_LINES_MAX - 1] * 2
