"""`kafkacompat pipeline collect` and `generate` as processes, against a broker that is killed and started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.harness.waiting import TIMEOUT_S, wait_until
from interop_tests.pipeline.collecting import Arrived, CollectorRun, by_event_id, count_arrived, read_lines

pytestmark = pytest.mark.needs_control

LINE_BYTES = 150
MEMORY_BOUND_BYTES = 192 * 1024 * 1024
MAX_LINE_BYTES = 512 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for this module. The topic names are fixed, and the records are distinguished by their folder."""
    process = BrokerProcess(chosen_kind(), tmp_path_factory.mktemp("collected")).start()
    yield process
    process.kill()


@pytest.fixture
def here(broker: BrokerProcess, tmp_path: Path) -> Here:
    """The records from the test's folder."""
    return Here(broker.bootstrap, str(tmp_path))


class Here:
    """Records of logs.raw from one folder."""

    def __init__(self, bootstrap: str, folder: str) -> None:
        self._bootstrap = bootstrap
        self._source = f"web{folder}/".encode()
        self._before = count_arrived(bootstrap)

    def count(self) -> int:
        return count_arrived(self._bootstrap) - self._before

    def lines(self) -> list[Arrived]:
        return [
            line for line in read_lines(self._bootstrap) if line.headers["source"].startswith(self._source)
        ]

    def wait_for(self, count: int, timeout_s: float = TIMEOUT_S) -> None:
        wait_until(lambda: self.count() >= count, f"{count} lines have arrived", timeout_s)


@pytest.fixture
def make_collector(broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[..., CollectorRun]]:
    """make_collector(pattern) follows files in the test's folder. It is killed when the test ends."""
    made: list[CollectorRun] = []

    def make(*patterns: str) -> CollectorRun:
        made.append(
            CollectorRun(broker.bootstrap, tmp_path, *(str(tmp_path / pattern) for pattern in patterns))
        )
        return made[-1]

    yield make
    for collector in made:
        collector.kill()


class WebServer:
    """Writes numbered lines to access.log and rotates it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "access.log"
        self.written: list[bytes] = []
        self.path.touch()

    def serve(self, requests: int) -> None:
        fresh = [
            (b"%08d " % number).ljust(LINE_BYTES, b"x")
            for number in range(len(self.written), len(self.written) + requests)
        ]
        with open(self.path, "ab") as file:
            file.write(b"".join(line + b"\n" for line in fresh))
        self.written += fresh

    def shift(self) -> None:
        numbers = (int(path.suffix[1:]) for path in self.path.parent.glob("access.log.*"))
        for number in sorted(numbers, reverse=True):
            self.path.with_name(f"access.log.{number}").rename(
                self.path.with_name(f"access.log.{number + 1}")
            )

    def rename(self) -> None:
        self.shift()
        self.path.rename(self.path.with_name("access.log.1"))
        self.path.touch()

    def copy_and_truncate(self) -> None:
        self.shift()
        self.path.with_name("access.log.1").write_bytes(self.path.read_bytes())
        os.truncate(self.path, 0)


def test_lines_survive_rotation_and_kill_9(
    broker: BrokerProcess, here: Here, make_collector: Callable[..., CollectorRun], tmp_path: Path
) -> None:
    server = WebServer(tmp_path)
    collector = make_collector("access.log*")
    for _ in range(4):
        arrived = len(server.written)
        server.serve(4000)
        collector.begin()
        # At least one chunk has arrived, perhaps not all, and perhaps not all of it is saved.
        here.wait_for(arrived + 1)
        server.serve(1500)
        server.rename()
        server.serve(500)
        collector.kill()
        server.serve(100)
        server.rename()
    collector.ship_the_rest()
    lines = here.lines()
    assert Counter(by_event_id(lines).values()) == Counter(server.written)
    assert len(lines) >= len(server.written)
    assert {line.headers["source"] for line in lines} <= {
        f"web{path}".encode() for path in (server.path, *tmp_path.glob("access.log.*"))
    }


def test_copy_and_truncate_ships_each_line_under_one_event_id(
    broker: BrokerProcess, here: Here, make_collector: Callable[..., CollectorRun], tmp_path: Path
) -> None:
    server = WebServer(tmp_path)
    collector = make_collector("access.log*").begin()
    for _ in range(3):
        arrived = len(server.written)
        server.serve(2000)
        here.wait_for(arrived + 1)
        server.serve(300)
        server.copy_and_truncate()
        server.serve(10)
    here.wait_for(len(server.written))
    assert collector.stop() == 0
    collector.ship_the_rest()
    assert Counter(by_event_id(here.lines()).values()) == Counter(server.written)


def test_odd_lines_arrive_as_they_are_and_a_stop_loses_nothing(
    broker: BrokerProcess, here: Here, make_collector: Callable[..., CollectorRun], tmp_path: Path
) -> None:
    long = b"long " + b"y" * (MAX_LINE_BYTES + 1000)
    odd = [b"plain", b"", b"\xff\xfe\x00 no utf-8 \x80", b"ends in cr\r", long, b"after"]
    (tmp_path / "a.log").write_bytes(b"\n".join([*odd, b"unfinish"]))
    (tmp_path / "a.log.2.gz").write_bytes(b"packed\n")
    (tmp_path / "a.log.d").mkdir()
    collector = make_collector("a.log*").begin()
    here.wait_for(len(odd))
    with open(tmp_path / "a.log", "ab") as file:
        file.write(b"ed\nlast\n")
    here.wait_for(len(odd) + 2)
    assert collector.stop() == 0
    collector.ship_the_rest()
    lines = sorted(here.lines(), key=lambda line: int(line.headers["position"]))
    assert [line.value for line in lines] == [
        *odd[:4],
        long[:MAX_LINE_BYTES],
        b"after",
        b"unfinished",
        b"last",
    ]
    assert [line.headers.get("cut_from_bytes") for line in lines if "cut_from_bytes" in line.headers] == [
        b"%d" % len(long)
    ]
    assert len({line.headers["file"] for line in lines}) == 1
    assert lines[1].headers["position"] == b"6"


def test_lines_too_large_for_the_topic_are_cut_until_it_takes_them(
    broker: BrokerProcess, here: Here, make_collector: Callable[..., CollectorRun], tmp_path: Path
) -> None:
    (tmp_path / "a.log").write_bytes(b"first\n")
    collector = make_collector("a.log")
    collector.ship_the_rest()
    large = bytes(os.urandom(6000).hex(), "ascii")
    with open(tmp_path / "a.log", "ab") as file:
        file.write(large + b"\nlast\n")
    command(broker.bootstrap, "topics", "alter", "logs.raw", "--config", "max.message.bytes=5000")
    try:
        collector.ship_the_rest()
    finally:
        command(broker.bootstrap, "topics", "alter", "logs.raw", "--config", "max.message.bytes=1048588")
    lines = {int(line.headers["position"]): line for line in here.lines()}
    assert lines[6].value == large[: len(lines[6].value)]
    assert 1000 < len(lines[6].value) < 5000
    assert lines[6].headers["cut_from_bytes"] == b"12000"
    assert lines[6 + len(large) + 1].value == b"last"


def command(bootstrap: str, *words: str) -> None:
    """A command of kafkacompat that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "kafkacompat", *words, "--bootstrap-server", bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_topic_deleted_under_the_collector_is_made_again_and_no_line_after_is_lost(
    broker: BrokerProcess, here: Here, make_collector: Callable[..., CollectorRun], tmp_path: Path
) -> None:
    server = WebServer(tmp_path)
    server.serve(100)
    collector = make_collector("access.log").begin()
    here.wait_for(100)
    command(broker.bootstrap, "topics", "delete", "logs.raw")
    for count in (100, 200, 300):
        server.serve(100)
        wait_until(
            lambda count=count: count_arrived(broker.bootstrap) >= count,
            f"{count} lines are in the new topic",
            60.0,
        )
    assert collector.stop() == 0, collector.said()
    assert Counter(by_event_id(read_lines(broker.bootstrap)).values()) == Counter(server.written[100:])


def generate(bootstrap: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafkacompat", "pipeline", "generate", "--bootstrap", bootstrap, *options],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_generated_events_arrive_with_their_times_and_again_under_the_same_ids(broker: BrokerProcess) -> None:
    options = ("--count", "3000", "--at-once", "--seed", "5", "--start-time", "2026-01-01T00:00:00")
    for _ in range(2):
        done = generate(broker.bootstrap, *options)
        assert done.returncode == 0, done.stderr
        assert "3,000 records taken" in done.stdout
    lines = [line for line in read_lines(broker.bootstrap) if line.headers["source"].startswith(b"web-")]
    assert 2 * len(by_event_id(lines)) == len(lines)
    ids: Counter[str] = Counter()
    for topic in ("activity.page_views", "activity.searches", "metrics.raw"):
        for record in read_lines(broker.bootstrap, topic):
            assert record.timestamp_ms >= 1_767_225_600_000
            try:
                ids[json.loads(record.value)["event_id"]] += 1
            except ValueError:
                continue
    assert len(ids) > 1000
    assert min(ids.values()) == 2


def test_a_collector_that_cannot_start_says_why_in_one_line(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    calls = {
        "cannot be used": [
            "collect",
            "x.log",
            "--bootstrap",
            broker.bootstrap,
            "--state",
            str(tmp_path / "file" / "s"),
        ],
        "cannot be written": [
            "generate",
            "--bootstrap",
            broker.bootstrap,
            "--access-log",
            str(tmp_path / "file" / "l"),
        ],
        "is not the state of a collector": [
            "collect",
            "x.log",
            "--bootstrap",
            broker.bootstrap,
            "--state",
            str(tmp_path / "s"),
        ],
        "needs --count": ["generate", "--bootstrap", broker.bootstrap, "--at-once"],
    }
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "positions.json").write_text("{")
    running = {
        said: subprocess.Popen(
            [sys.executable, "-m", "kafkacompat", "pipeline", *words],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for said, words in calls.items()
    }
    for said, process in running.items():
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 1, (said, stderr)
        assert said in stderr
        assert len(stderr.splitlines()) == 1


def test_a_collector_waits_for_its_broker_and_stops_when_told(
    broker: BrokerProcess, here: Here, make_collector: Callable[..., CollectorRun], tmp_path: Path
) -> None:
    server = WebServer(tmp_path)
    server.serve(10)
    collector = make_collector("access.log").begin()
    here.wait_for(10)
    broker.kill()
    server.serve(10)
    assert collector.process is not None
    collector.process.send_signal(signal.SIGINT)
    assert collector.end() == 0
    broker.start()
    collector.ship_the_rest()
    assert Counter(by_event_id(here.lines()).values()) == Counter(server.written)


def test_a_broker_that_is_away_stops_the_reading_and_memory_stays_bounded(
    broker: BrokerProcess, here: Here, make_collector: Callable[..., CollectorRun], tmp_path: Path
) -> None:
    server = WebServer(tmp_path)
    server.serve(1000)
    collector = make_collector("access.log").begin()
    here.wait_for(1000)
    broker.kill()
    server.serve(120_000)
    wait_until(
        lambda: "Connection refused" in collector.said(), "the collector says that nobody answers", 30.0
    )
    wait_until(lambda: lag(collector) > 10_000_000, "the collector tells of its lag")
    assert collector.process is not None
    assert psutil.Process(collector.process.pid).memory_info().rss < MEMORY_BOUND_BYTES
    broker.start()
    here.wait_for(121_000, 60.0)
    assert psutil.Process(collector.process.pid).memory_info().rss < MEMORY_BOUND_BYTES
    assert collector.stop() == 0
    assert "121,000 lines" in collector.said()
    assert Counter(by_event_id(here.lines()).values()) == Counter(server.written)


def lag(collector: CollectorRun) -> int:
    """The bytes in the last line about rate and lag."""
    told = [line for line in collector.said().splitlines() if ", lag " in line]
    return int(told[-1].split(", lag ")[1].split(" bytes")[0].replace(",", "")) if told else 0


def test_stack_traces_of_standard_input_arrive_as_one_record_each(broker: BrokerProcess) -> None:
    text = b"2026-11-29 failed\n at a\n\tat b\n2026-11-29 went on\nand on"
    command = [sys.executable, "-m", "kafkacompat", "pipeline", "collect", "-", "--record-start", r"\d{4}-"]
    where = ["--bootstrap", broker.bootstrap, "--host", "input", "--field", "env=test"]
    done = subprocess.run([*command, *where], input=text, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert b"2 lines" in done.stdout.splitlines()[-1]
    found = [line for line in read_lines(broker.bootstrap) if line.headers["source"] == b"input/dev/stdin"]
    assert {line.headers["env"] for line in found} == {b"test"}
    assert sorted((int(line.headers["position"]), line.value) for line in found) == [
        (0, b"2026-11-29 failed\n at a\n\tat b"),
        (30, b"2026-11-29 went on\nand on"),
    ]
