"""The files at both ends of the traffic: a rotated access log, recorded data sets, the collector's state and its disk."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.pipeline.collect_command import OTHER_HANDLES, Teller, allow_handles, described
from kafkacompat.pipeline.collector.disk import DELETED_CLOSE_S, MAX_FILES, MAX_HANDLES, RENAMED_CLOSE_S, Disk
from kafkacompat.pipeline.collector.followed import Mark, Saved
from kafkacompat.pipeline.collector.running import Figures
from kafkacompat.pipeline.collector.state_file import StateFile
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.generate_command import add_arguments, moment, planned, stopped
from kafkacompat.pipeline.generator.access_log import COPY_TRUNCATE, KEPT, NEVER, RENAME, AccessLog
from kafkacompat.pipeline.generator.data_set import DataSet
from kafkacompat.pipeline.generator.events import ACCESS_LINES, Event
from kafkacompat.pipeline.generator.sending import Sender
from kafkacompat.pipeline.terminal import Terminal
from kafkacompat.pipeline.topics import ACTIVITY_PAGE_VIEWS
from kafkacompat.security.cluster_address import ClusterAddress

LINES = [
    b'192.0.2.1 - - [01/Feb/2024:10:00:00 +0100] "GET / HTTP/1.1" 200 5 "-" "agent"',
    b"no time in here",
    b'192.0.2.1 - - [01/Feb/2024:10:00:30 +0100] "GET /b HTTP/1.1" 200 5 "-" "agent"',
]


@pytest.mark.parametrize("rotation", [RENAME, COPY_TRUNCATE])
def test_a_rotated_log_keeps_the_latest_files_and_packs_the_older(tmp_path: Path, rotation: str) -> None:
    path = tmp_path / "logs" / "access.log"
    log = AccessLog(str(path), rotation, rotate_bytes=100)
    for number in range(10):
        log.write([b"%03d %s" % (number, b"x" * 100)])
    log.close()
    assert log.rotations == 10
    assert (
        stopped(1234, log)
        == "generator stopped: 1,234 records taken by the broker, access log rotated 10 times"
    )
    assert stopped(5, None) == "generator stopped: 5 records taken by the broker"
    names = {entry.name for entry in path.parent.iterdir()}
    assert names == {
        "access.log",
        "access.log.1",
        *(f"access.log.{number}.gz" for number in range(2, KEPT + 1)),
    }
    assert path.with_name("access.log.1").read_bytes().startswith(b"009 ")
    assert gzip.decompress(path.with_name("access.log.2.gz").read_bytes()).startswith(b"008 ")
    assert path.read_bytes() == b""


def test_a_log_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="cannot be written"):
        AccessLog(str(tmp_path), NEVER)


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_an_access_log_is_replayed_at_other_times(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    data = b"\n".join([*LINES, b""])
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    data_set = DataSet(str(path))
    assert data_set.recorded[1:] == (3, 30_000)
    assert data_set.without_time == 1
    events = list(data_set.events(1_000_000_000_000))
    assert [event.arrival_ms for event in events] == [999_999_970_000, 999_999_970_000, 1_000_000_000_000]
    assert {event.stream for event in events} == {ACCESS_LINES}
    assert events[1].value == LINES[1]
    assert events[2].value == LINES[2].replace(b"01/Feb/2024:10:00:30 +0100", b"09/Sep/2001:01:46:40 +0000")


def test_a_click_stream_is_replayed_in_order(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "user_id,event,timestamp\n5,cart,2019-11-01 17:59:28.459271\n5,main,2019-11-01 17:59:13\n"
    )
    events = list(DataSet(str(path)).events(2_000_000))
    assert [(event.stream, event.key) for event in events] == [(ACTIVITY_PAGE_VIEWS, "5")] * 2
    values = [json.loads(event.value) for event in events]
    assert [value["page"] for value in values] == ["/main", "/cart"]
    assert [value["event_time_ms"] for value in values] == [2_000_000 - 15_459, 2_000_000]
    assert len({value["event_id"] for value in values}) == 2


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.csv", None, "cannot be read"),
        ("other.csv", b"a,b\n1,2\n", "lacks the columns"),
        ("when.csv", b"user_id,event,timestamp\n1,main,then\n", "no time in row 1"),
        ("empty.log", b"", "holds no events"),
        ("broken.log.gz", b"not packed", "cannot be read"),
        ("cut.log.gz", gzip.compress(LINES[0] * 100, mtime=0)[:-9], "cannot be read"),
        ("spoiled.log.gz", gzip.compress(LINES[0] * 100, mtime=0)[:12] + b"\xff" * 40, "cannot be read"),
        ("short.csv", b"user_id,event,timestamp\n1,main,2019-11-01\n\n2,main\n", "lacks timestamp in row 2"),
        ("shorter.csv", b"timestamp,user_id,event\n2019-11-01,2\n", "lacks event in row 1"),
        ("bytes.csv", b"user_id,event,timestamp\n1,\xff,2019-11-01 17:59:13\n", "cannot be read"),
    ],
)
def test_what_is_no_data_set_is_said_in_one_line(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PipelineFailed, match=said):
        DataSet(str(path))


def test_the_offset_of_a_click_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "user_id,event,timestamp\n5,a,2020-01-01 01:00:00+02:00\n5,b,2020-01-01 00:00:00\n5,c,2020-01-01T00:00:30Z\n"
    )
    events = list(DataSet(str(path)).events(10_000_000))
    assert [(json.loads(event.value)["page"], event.arrival_ms) for event in events] == [
        ("/a", 10_000_000 - 3_630_000),
        ("/b", 10_000_000 - 30_000),
        ("/c", 10_000_000),
    ]


def test_lines_without_a_time_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\n".join([b"before the first", *LINES, b"and the last", b""]))
    what = planned(words("--data-set", str(path)), 10**12).what
    assert "4 events" in what
    assert "2 without a time follow the line before" in what
    assert "1 lines before the first time are left out" in what


def words(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="generate")
    add_arguments(parser)
    return parser.parse_args(options)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--count", "-1"), "--count: must be a whole number from 1 to 1,000,000,000,000, not '-1'"),
        (("--count", "1.5"), "--count: must be"),
        (("--speed", "inf"), "--speed: must be a number from 0.001 to 1,000,000,000, not 'inf'"),
        (("--rate", "inf"), "--rate: must be"),
        (("--rate", "nan"), "--rate: must be"),
        (("--rate", "0"), "--rate: must be"),
        (("--rate", "many"), "--rate: must be"),
        (("--duration", "1e400"), "--duration: must be"),
        (("--interval", "-inf"), "--interval: must be"),
        (("--rotate-bytes", "0"), "--rotate-bytes: must be"),
        (("--start-time", "0001-01-01"), "--start-time: '0001-01-01' is before 1970"),
        (("--start-time", "soon"), "--start-time: 'soon' is not an ISO date and time"),
    ],
)
def test_an_option_that_cannot_be_is_named_with_its_value(
    option: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        # One word, because a negative number looks like an option.
        words("=".join(option))
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@given(
    st.floats(0.001, 1e9),
    st.floats(0.001, 1e9),
    st.integers(1, 10**12),
    st.one_of(st.none(), st.floats(0.001, 1e9)),
    st.booleans(),
)
def test_whatever_is_allowed_can_be_planned_or_is_refused_in_one_line(
    rate: float, speed: float, count: int, duration_s: float | None, at_once: bool
) -> None:
    options = [f"--rate={rate!r}", f"--speed={speed!r}", f"--count={count}"]
    if duration_s is not None:
        options.append(f"--duration={duration_s!r}")
    if at_once:
        options.append("--at-once")
    refused = None
    start_ms = 0
    try:
        start_ms = planned(words(*options), 1_790_000_000_000).start_ms
    except PipelineFailed as failure:
        refused = str(failure)
    assert refused is None or "before 1970" in refused
    assert 0 <= start_ms <= 1_790_000_000_000


def test_events_that_would_begin_before_1970_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="before 1970"):
        planned(words("--at-once", "--count", "1000000", "--rate", "0.001"), 10**9)
    path = tmp_path / "clicks.csv"
    path.write_text("user_id,event,timestamp\n5,a,0001-01-01\n5,b,2020-01-01\n")
    with pytest.raises(PipelineFailed, match="before 1970"):
        planned(words("--data-set", str(path)), 10**12)


def test_a_package_that_is_missing_is_named_with_the_command_that_brings_it() -> None:
    with pytest.raises(PipelineFailed, match="pip install --no-deps retentioneering"):
        DataSet("retentioneering")


def test_words_of_the_command_line() -> None:
    assert moment("2024-01-02T03:04:05") == moment("2024-01-02T04:04:05+01:00") == 1_704_164_645_000
    ahead = argparse.Namespace(
        data_set=None, count=None, rate=1.0, speed=1.0, start_time=2_000, at_once=False, duration=None, seed=1
    )
    with pytest.raises(PipelineFailed, match="ahead of the clock"):
        planned(ahead, 1_000)
    ahead.start_time, ahead.speed, ahead.duration = None, 61.0, 10.0
    assert planned(ahead, 10**12).start_ms == 10**12 - 600_000


def test_events_that_the_client_refuses_at_once_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, settings: dict[str, object]) -> None:
            pass

        def produce(self, topic: str, **record: object) -> None:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(-188))

        def poll(self, timeout_s: float) -> None:
            pass

        def flush(self, timeout_s: float) -> int:
            return 0

    monkeypatch.setattr(confluent_kafka, "Producer", Refusing)
    sender = Sender(ClusterAddress("nowhere"), "a name")
    sender.send([Event(1, ACTIVITY_PAGE_VIEWS, "key", b"value")] * 2, lambda: False)
    with pytest.raises(PipelineFailed, match=r"2 events were not taken by the broker: .*[Uu]nknown topic"):
        sender.close()


def test_the_generator_asks_a_broker_that_is_back_within_about_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, object]] = []
    monkeypatch.setattr(confluent_kafka, "Producer", given.append)
    Sender(ClusterAddress("nowhere"), "a name")
    assert [each["reconnect.backoff.max.ms"] for each in given] == [1000]


def test_what_the_collector_tells_names_what_it_could_not_ship() -> None:
    usual = Figures(1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, None, 0)
    assert described(usual, None) == "2 lines, 0.0 MB shipped, lag 4 bytes in 1 files, 5 bytes in flight"
    told = described(
        usual._replace(truncations=2, unread_at_truncation_bytes=3000, given_up_bytes=77, beyond_files=8), 1.0
    )
    assert told.startswith("1 lines/s, 2 lines,")
    assert told.endswith(
        "2 truncations, 3,000 bytes lost by them, with no copy found, "
        "77 bytes of deleted files not shipped, 8 files beyond 1000 held open until their lines are shipped"
    )
    assert described(usual._replace(lost_files=1), None).endswith(", 1 files of the previous run not found")


@pytest.mark.parametrize(
    ("limits", "files", "raised"),
    [
        ((1024, 524288), MAX_HANDLES, (MAX_HANDLES + OTHER_HANDLES, 524288)),
        ((1024, resource.RLIM_INFINITY), MAX_HANDLES, (MAX_HANDLES + OTHER_HANDLES, resource.RLIM_INFINITY)),
        ((512, 1024), 1024 - OTHER_HANDLES, (1024, 1024)),
        ((1_000_000, 1_000_000), MAX_HANDLES, None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), MAX_HANDLES, None),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], files: int, raised: tuple[int, int] | None
) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda which, wanted: told.append(wanted))
    assert allow_handles() == files
    assert told == ([raised] if raised else [])


def test_more_files_than_the_bound_are_warned_of_once_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    teller = Teller(1e9, Terminal(lambda: None))
    figures = Figures(1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, None, 0)
    for beyond in (0, 1, 2, 0, 1):
        teller.tell(figures._replace(beyond_files=beyond))
    assert capsys.readouterr().err.count("more than 1000 files are held open") == 2


def test_the_state_is_replaced_whole_and_its_directory_is_taken_by_one(tmp_path: Path) -> None:
    state = StateFile(str(tmp_path / "state"))
    assert state.load() is None
    state.save("one")
    state.save("two")
    assert state.load() == "two"
    with pytest.raises(PipelineFailed, match="another collector"):
        StateFile(str(tmp_path / "state"))
    state.close()
    StateFile(str(tmp_path / "state")).close()


def test_a_state_directory_that_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineFailed, match="cannot be used"):
        StateFile(str(tmp_path / "file" / "state"))


def read_whole(disk: Disk, now_s: float) -> list[tuple[str, bytes]]:
    looks, _ = disk.scan(now_s)
    return sorted((os.path.basename(look.path), disk.reader(look)(0, 100)) for look in looks)


def test_the_disk_follows_names_and_keeps_files_that_lost_theirs_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"one\n")
    (tmp_path / "access.log.2.gz").write_bytes(b"packed")
    (tmp_path / "access.log.d").mkdir()
    disk = Disk([str(path), str(tmp_path / "access.lo?")])
    assert read_whole(disk, 0.0) == [("access.log", b"one\n")]
    path.rename(tmp_path / "moved-away")
    path.write_bytes(b"two\n")
    assert read_whole(disk, 1.0) == [("access.log", b"one\n"), ("access.log", b"two\n")]
    with open(tmp_path / "moved-away", "ab") as file:
        file.write(b"last\n")
    assert read_whole(disk, 4.0) == [("access.log", b"one\nlast\n"), ("access.log", b"two\n")]
    key = ((tmp_path / "moved-away").stat().st_dev, (tmp_path / "moved-away").stat().st_ino)
    assert disk.scan(4.0 + RENAMED_CLOSE_S)[1] == []
    assert disk.scan(4.1 + RENAMED_CLOSE_S, pending={key})[1] == []
    looks, gone = disk.scan(4.2 + RENAMED_CLOSE_S)
    assert gone == [key]
    assert [look.path for look in looks] == [str(path)]
    path.unlink()
    assert read_whole(disk, 1000.0) == [("access.log", b"two\n")]
    assert disk.scan(1000.0 + DELETED_CLOSE_S)[1] == []
    looks, gone = disk.scan(1000.1 + DELETED_CLOSE_S)
    assert (looks, len(gone)) == ([], 1)
    disk.close()


def test_the_disk_finds_a_file_of_an_earlier_run_under_another_name(tmp_path: Path) -> None:
    moved = tmp_path / "access.log-20261121"
    moved.write_bytes(b"rest\n")
    status = moved.stat()
    disk = Disk([str(tmp_path / "access.log")])
    disk.scan(0.0)
    saved = Saved(
        "id", status.st_dev, status.st_ino, "print", str(tmp_path / "access.log"), 0, (Mark(5, "x"),), False
    )
    found = disk.find_renamed([saved, saved._replace(inode=1)], 0.0)
    assert found.pop((status.st_dev, 1)) is None
    assert [look and look.size_bytes for look in found.values()] == [5]
    assert read_whole(disk, 0.1) == [("access.log", b"rest\n")]
    disk.close()


def test_more_files_than_the_bound_are_refused_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkacompat.pipeline.collector.disk.MAX_FILES", 3)
    assert MAX_FILES > 3
    for number in range(5):
        (tmp_path / f"{number}.log").touch()
    disk = Disk([str(tmp_path / "*.log")])
    looks, _ = disk.scan(0.0)
    assert len(looks) == 3
    assert disk.refused == 2


def test_a_name_that_leads_nowhere_is_a_trouble_and_no_failure(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to(tmp_path / "nothing")
    disk = Disk([str(tmp_path / "*.log")])
    assert disk.scan(0.0) == ([], [])
    assert "No such file" in disk.troubles[str(tmp_path / "a.log")]
