"""A Kafka that all workers of pytest-xdist share: what they may ask, what is refused, and when it ends."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.testing import Kafka, UnknownSetting
from kafkacompat.testing._tests.test_plugin import Pytest
from kafkacompat.testing.kafka_process import KafkaProcess
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.shared import NotShared, SharedKafka, SharedKafkas
from kafkacompat.testing.shared_host import SharedHost
from kafkacompat.testing.waiting import until

ASKED: dict[str, Any] = {"settings": {}, "nodes": 1}


@pytest.fixture
def run(tmp_path: Path) -> Pytest:
    return Pytest(tmp_path)


@pytest.fixture
def host() -> Iterator[SharedHost]:
    host = SharedHost()
    yield host
    host.stop()


@pytest.fixture
def workers(host: SharedHost) -> Iterator[list[SharedKafkas]]:
    """Two of them."""
    workers = [SharedKafkas(host.port, host.key) for _ in range(2)]
    yield workers
    for each in workers:
        each.close()


def test_workers_have_the_same_kafka_and_topics_of_their_own(workers: list[SharedKafkas]) -> None:
    first, second = (each.open(ASKED) for each in workers)
    assert first.bootstrap_servers == second.bootstrap_servers
    assert first.pid == second.pid != os.getpid()
    one, other = first.topic("orders"), second.topic("orders", partitions=2)
    assert first.topics() == {one: 1, other: 2}
    first.produce(one, (each for each in ["tea", {"sugar": 2}]), key="k")
    second.assert_produced(one, ["tea", {"sugar": 2}], key="k")
    first.end_test()
    assert second.topics() == {other: 2}
    with second.topic() as short:
        assert short in first.topics()
    assert short not in first.topics()


def test_other_arguments_ask_for_another_one(workers: list[SharedKafkas]) -> None:
    first = workers[0].open({**ASKED, "settings": {"num.partitions": 3, "log.retention.ms": -1}})
    same = workers[1].open({**ASKED, "settings": {"log.retention.ms": -1, "num.partitions": 3}})
    other = workers[1].open(ASKED)
    assert first.bootstrap_servers == same.bootstrap_servers != other.bootstrap_servers
    other.produce("t", ["x"])
    first.produce("t", ["x"])
    assert (first.topics(), other.topics()) == ({"t": 3}, {"t": 1})
    with pytest.raises(UnknownSetting, match=r"num\.partition$"):
        workers[0].open({**ASKED, "settings": {"num.partition": 3}})


SHARED = {
    *("ask", "assert_produced", "assign", "bootstrap_servers", "committed", "create_topic", "delete_topic"),
    *("end_test", "ends", "expire_session", "fence_producer", "groups", "joined", "lag", "leads", "log"),
    *("move_leader", "own_name", "pid", "produce", "record_requests", "records", "requests", "topic"),
    *("topics", "transactions", "wait_until"),
}
OF_INSTANCES = {"clock", "nodes", "paused"}


def test_what_the_tests_of_others_would_notice_is_refused(workers: list[SharedKafkas]) -> None:
    kafka = workers[0].open(ASKED)
    public = {name for each in (Kafka, KafkaProcess) for name in vars(each) if not name.startswith("_")}
    assert public >= SHARED
    for name in sorted(public - SHARED | OF_INSTANCES):
        with pytest.raises(NotShared, match=f"^{name}: all workers of this run share this Kafka"):
            getattr(kafka, name)()
    with pytest.raises(NotShared, match="a Kafka of its own"), kafka:
        pass
    assert kafka.topics() == {}


def test_what_is_asked_of_a_test_is_answered(workers: list[SharedKafkas]) -> None:
    kafka = workers[0].open(ASKED)
    topic = kafka.topic()
    kafka.produce(topic, ["x"])
    assert kafka.groups() == kafka.transactions() == kafka.committed("till") == {}
    assert kafka.ends(topic)[0].high_watermark == kafka.lag("till", topic) == 1
    assert kafka.leads(1, topic, 0)
    assert kafka.own_name("till") != kafka.own_name("till")
    assert "registered with broker epoch" in str(kafka.log)
    assert kafka.requests(api="Produce", client_id="nobody") == []
    with pytest.raises(LookupError, match="gone does not exist"):
        kafka.records("gone")
    with pytest.raises(AssertionError, match="it does not hold"):
        kafka.wait_until(lambda: False, timeout_s=0)


def test_workers_share_a_secured_cluster(workers: list[SharedKafkas]) -> None:
    asked = {"settings": {}, "nodes": 2, "secure": "SASL_PLAINTEXT", "users": {"alice": "wonderland"}}
    first, second = (each.open(asked) for each in workers)
    assert first.security.python() == second.security.python()
    assert second.security.python()["sasl_plain_password"] == "wonderland"
    topic = first.topic()
    first.move_leader(topic, to=2)
    second.wait_until(lambda: second.leads(2, topic, 0))
    first.move_leader(topic, to=1)
    second.wait_until(lambda: second.leads(1, topic, 0))


def test_nobody_comes_without_the_key(host: SharedHost, workers: list[SharedKafkas]) -> None:
    with pytest.raises(AuthenticationError):
        SharedKafkas(host.port, b"x" * 32)
    assert isinstance(workers[0].open(ASKED), SharedKafka)


def test_workers_come_after_a_lack_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = [OSError(errno.EMFILE, "too many open files")]
    accept = socket.socket.accept

    def refused_once(listening: socket.socket) -> Any:
        if lacks:
            raise lacks.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", refused_once)
    host = SharedHost()
    SharedKafkas(host.port, host.key).close()
    assert not lacks
    host.stop()


def test_a_worker_that_is_left_alone_is_told_so(host: SharedHost, workers: list[SharedKafkas]) -> None:
    kafka = workers[0].open(ASKED)
    pid = kafka.pid
    host.stop()
    with pytest.raises(NodeEnded):
        kafka.topics()
    with pytest.raises(RuntimeError, match="the run has ended"):
        workers[1].open(ASKED)
    until(lambda: not is_running(pid), 60, lambda: f"process {pid} goes on")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Whole runs.

NAMED = """
import os
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range(4))
def test_it(kafka, number, request):
    topic = kafka.topic("orders")
    kafka.produce(topic, [number])
    kafka.assert_produced(topic, [number])
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    Path(f"{worker}.{number}").write_text(f"{kafka.bootstrap_servers} {kafka.pid}")
"""


@pytest.mark.parametrize("options", [["-n", "2", "--dist=each"], []])
def test_a_run_has_one_for_all_workers_which_ends_with_it(
    run: Pytest, tmp_path: Path, options: list[str]
) -> None:
    said = run(NAMED, "--kafka-scope=run", *options)
    assert re.search("8 passed" if options else "4 passed", said), said
    workers = ["gw0", "gw1"] if options else ["alone"]
    found = {(tmp_path / f"{each}.{number}").read_text() for each in workers for number in range(4)}
    assert len(found) == 1
    assert not is_running(int(found.pop().split()[1]))


def test_the_settings_of_all_are_a_marker_of_the_session(run: Pytest) -> None:
    source = "def test_it(kafka):\n    kafka.produce(kafka.own_name('t'), ['x'])\n    assert {*kafka.topics().values()} == {4}\n"
    conftest = """
import pytest
def pytest_sessionstart(session):
    session.add_marker(pytest.mark.kafka(settings={"num.partitions": 4}))
"""
    said = run(source, "-o", "kafka_scope=run", conftest=conftest)
    assert "1 passed" in said, said
    said = run("import pytest\n@pytest.mark.kafka(nodes=2)\n" + source, "-o", "kafka_scope=run")
    assert "because a Kafka lives for the run (kafka_scope)" in said


def test_a_refusal_and_the_last_requests_are_in_the_report(run: Pytest) -> None:
    said = run(
        """
import pytest
from kafka import KafkaProducer
def test_first(kafka):
    KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, client_id="first").send(kafka.topic("one"), b"x").get(20)
def test_second(kafka):
    KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, client_id="second").send(kafka.topic("two"), b"x").get(20)
    kafka.clock.freeze()
""",
        "--kafka-scope=run",
    )
    assert "1 failed, 1 passed" in said, said
    assert "NotShared: clock: all workers of this run share this Kafka (kafka_scope=run)" in said
    _, _, told = said.partition("last requests of <SharedKafka 127.0.0.1:")
    assert "of the tests of all workers" in told
    assert "Produce v" in told
    assert "from 'second'" in told


def test_it_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "from time import sleep\n"
        "def test_it(kafka):\n"
        "    with open('pid', 'w') as file:\n"
        "        print(kafka.pid, file=file)\n"
        "    sleep(600)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", "--kafka-scope=run"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as started:
        told = tmp_path / "pid"
        until(lambda: told.exists() and told.read_text().endswith("\n"), 60, lambda: "no test has begun")
        pid = int(told.read_text())
        assert is_running(pid)
        started.send_signal(signal.SIGKILL)
    until(lambda: not is_running(pid), 60, lambda: f"process {pid} goes on")
