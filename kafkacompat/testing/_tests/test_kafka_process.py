"""A Kafka in a process of its own: what outlives the process, and what goes from process to process."""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.testing import Kafka, KafkaCluster, Refused, forkserver
from kafkacompat.testing._tests.test_node import api_versions_of
from kafkacompat.testing.faults import NeverHit
from kafkacompat.testing.forkserver import ForkServer, fork_server
from kafkacompat.testing.kafka_process import HOSTED, KafkaProcess
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.sweep import every_fault
from kafkacompat.testing.waiting import until
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.metadata_request import MetadataRequest


@pytest.fixture
def kafka() -> Iterator[KafkaProcess]:
    kafka = Kafka(process=True)
    assert isinstance(kafka, KafkaProcess)
    kafka.record_requests()
    with kafka:
        yield kafka


def folder_of(kafka: KafkaProcess) -> Path:
    assert kafka._folder is not None
    return Path(kafka._folder)


def ask_versions(kafka: Kafka) -> None:
    api_versions_of(kafka.bootstrap_servers)


def test_a_killed_process_is_noticed_and_starts_again_on_what_it_has_written(kafka: KafkaProcess) -> None:
    before, address = kafka.pid, kafka.bootstrap_servers
    kafka.produce("t", ["x"])
    os.kill(before, signal.SIGKILL)
    kafka._process.channel.ended.wait()  # type: ignore[union-attr]
    assert not kafka.nodes[1].is_running
    with pytest.raises(NodeEnded, match="no node runs"):
        kafka.topics()
    kafka.start_node(1)
    assert kafka.pid != before
    assert kafka.nodes[1].is_running
    assert kafka.bootstrap_servers == address
    kafka.assert_produced("t", ["x"])
    kafka.restart_node(1)
    assert api_versions_of(address) == 7


def test_nothing_is_left(kafka: KafkaProcess) -> None:
    kafka.produce("t", ["x"])
    kafka.reset()
    kafka.snapshot()
    folder, pid = folder_of(kafka), kafka.pid
    assert folder.exists()
    kafka.stop()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_a_test_knows_outlives_the_process(kafka: KafkaProcess) -> None:
    kafka.produce("t", ["x"])
    state = kafka.snapshot()
    kafka.produce("t", ["y"])
    kafka.clock.freeze()
    at_ms = kafka.clock.now_ms()
    second = kafka.faults.close(api="ApiVersions", nth=2)
    ask_versions(kafka)
    kafka.kill_node(1)
    (exchange,) = kafka.requests(api="ApiVersions")
    assert exchange.response.error_code == 0
    assert "registered with broker epoch" in str(kafka.log)
    kafka.clock.advance(seconds=10)
    kafka.start_node(1)
    assert kafka.clock.now_ms() == at_ms + 10_000
    with pytest.raises((ConnectionError, AssertionError, IndexError, ValueError)):
        ask_versions(kafka)
    assert second.hits == 1
    kafka.kill_node(1)
    kafka.restore(state)
    kafka.assert_produced("t", ["x"])
    kafka.kill_node(1)
    kafka.reset()
    assert kafka.topics() == {}
    kafka.kill_node(1)
    kafka.end_test()
    assert not kafka.clock.is_frozen
    ask_versions(kafka)


def test_a_function_of_the_test_chooses_what_a_fault_hits(kafka: KafkaProcess) -> None:
    asked: list[object] = []

    def is_second(request: object) -> bool:
        asked.append(request)
        return len(asked) == 2

    fault = kafka.faults.error("NOT_CONTROLLER", api="ApiVersions", when=is_second)
    ask_versions(kafka)
    assert fault.hits == 0
    with pytest.raises(NeverHit):
        kafka.faults.verify()
    ask_versions(kafka)
    fault.wait()
    assert kafka.requests(api="ApiVersions")[-1].errors == ("NOT_CONTROLLER",)
    assert kafka.faults.active == ()
    kafka.faults.close(times=None)
    kafka.faults.clear()
    ask_versions(kafka)


def test_a_fault_that_is_removed_hits_nothing_more(kafka: KafkaProcess) -> None:
    with kafka.faults.close(times=None, optional=True):
        pass
    ask_versions(kafka)
    with pytest.raises(TimeoutError, match="was hit 0 of 1 times"):
        kafka.faults.close(optional=True).wait(timeout=0)


def test_a_watcher_is_told_of_requests(kafka: KafkaProcess) -> None:
    seen: list[tuple[str, int]] = []
    kafka.watch_requests(lambda exchange: seen.append((exchange.principal, exchange.api_key)))
    ask_versions(kafka)
    kafka.kill_node(1)
    kafka.start_node(1)
    ask_versions(kafka)
    assert seen == [("User:ANONYMOUS", 18)] * 2


def test_errors_and_messages_are_those_of_a_kafka_in_process(kafka: KafkaProcess) -> None:
    topic = kafka.topic(partitions=2)
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS") as refused:
        kafka.create_topic(topic)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert [each.node_id for each in kafka.ask(1, MetadataRequest(topics=[])).brokers] == [1]
    assert kafka.leads(1, topic, 1)
    with pytest.raises(ValueError, match="time goes only forwards"):
        kafka.clock.advance(seconds=-1)
    with pytest.raises(LookupError, match="group 'g' has no member"):
        kafka.expire_session("g")
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Kafka({"num.partitions": "none"}, process=True)


def test_a_sweep_says_that_it_needs_a_kafka_here(kafka: KafkaProcess) -> None:
    with pytest.raises(ValueError, match="in the process of the tests"):
        every_fault(lambda _: None, kafka)


def test_a_kafka_that_does_not_start_says_why_and_leaves_nothing() -> None:
    taken = Kafka({"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"})
    with taken:
        listeners = f"PLAINTEXT://{taken.bootstrap_servers},CONTROLLER://127.0.0.1:0"
        kafka = Kafka({"listeners": listeners}, process=True)
        assert isinstance(kafka, KafkaProcess)
        with pytest.raises(BaseExceptionGroup) as refused:
            kafka.start()
        assert refused.group_contains(OSError, match="(?i)in use")
        assert not folder_of(kafka).exists()


def test_without_the_fork_server_brokers_end_and_start_again(kafka: KafkaProcess) -> None:
    kafka.produce("t", ["x"])
    server = fork_server(HOSTED)
    server._process.kill()
    server._process.wait()
    kafka._process.channel.ended.wait()  # type: ignore[union-attr]
    kafka.start_node(1)
    kafka.assert_produced("t", ["x"])
    assert fork_server(HOSTED) is not server


def test_a_fork_server_that_is_killed_when_it_is_asked_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    server = fork_server(HOSTED)
    server._process.kill()
    looks = iter([None])  # it still runs when it is looked at
    monkeypatch.setattr(server._process, "poll", lambda: next(looks, -9))
    with Kafka(process=True) as kafka:
        kafka.produce("t", ["x"])
        kafka.assert_produced("t", ["x"])
    assert fork_server(HOSTED) is not server


def test_a_process_that_cannot_be_had_ends_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(forkserver, "IMPORTED", ())
    server = ForkServer.__new__(ForkServer)
    server._socket, others = socket.socketpair()
    server._socket.settimeout(30)
    server._lock = threading.Lock()
    serving = threading.Thread(target=forkserver.main, args=(HOSTED, others.detach()))
    serving.start()
    with server._socket:
        for _ in range(2):
            with pytest.raises(BlockingIOError, match="no process for a Kafka"):
                server.fork(str(tmp_path))
        assert serving.is_alive()
    serving.join()
    assert tmp_path.exists(), "the folder is not the server's"


def test_the_answer_for_which_an_interrupted_test_did_not_wait_is_no_answer_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedSocket(socket.socket):
        is_interrupted = True

        def recv(self, *given: Any) -> bytes:
            if self.is_interrupted:
                raise KeyboardInterrupt
            return super().recv(*given)

    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(forkserver, "IMPORTED", ())
    server = ForkServer.__new__(ForkServer)
    own, others = socket.socketpair()
    server._socket = own = InterruptedSocket(fileno=own.detach())
    own.settimeout(30)
    server._lock = threading.Lock()
    serving = threading.Thread(target=forkserver.main, args=(HOSTED, others.detach()))
    serving.start()
    with own:
        with pytest.raises(KeyboardInterrupt):
            server.fork(str(tmp_path))
        own.is_interrupted = False
        assert server._ask({"end": 1}) == 0
    serving.join()


def test_a_start_without_a_process_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork(_: ForkServer, __: str) -> None:
        raise BlockingIOError

    kafka = Kafka(process=True)
    assert isinstance(kafka, KafkaProcess)
    with monkeypatch.context() as patched:
        patched.setattr(ForkServer, "fork", fork)
        with pytest.raises(BlockingIOError):
            kafka.start()
    assert not folder_of(kafka).exists()
    assert kafka._ports.numbers == []


def test_a_process_without_its_fork_server_leaves_the_folder_to_the_next(tmp_path: Path) -> None:
    server = fork_server(HOSTED)
    pid, connection = server.fork(str(tmp_path))
    os.kill(pid, signal.SIGSTOP)
    server._process.kill()
    server._process.wait()
    process = os.pidfd_open(pid)
    try:
        connection.close()
        os.kill(pid, signal.SIGCONT)
        select.select([process], [], [])
    finally:
        os.close(process)
    assert tmp_path.exists()


def test_the_nodes_of_a_cluster_live_in_one_process() -> None:
    with KafkaCluster(process=True) as kafka:
        topic = kafka.topic(replication_factor=3)
        kafka.move_leader(topic, to=1)
        kafka.produce(topic, ["x"])
        fault = kafka.shrink_isr(topic, to=[1, 2])
        kafka.kill_node(3)
        assert [kafka.nodes[each].is_running for each in (1, 2, 3)] == [True, True, False]
        fault.remove()
        kafka.start_node(3)
        kafka.pause_node(2)
        assert 2 in kafka.paused
        kafka.paused.resume_all()
        kafka.partition([1], [2, 3])
        kafka.heal()
        kafka.kill_node(1)
        kafka.end_test()
        until(lambda: kafka.topics() == {}, 60, lambda: f"there are still {kafka.topics()}")


def test_it_ends_no_process_that_is_none_of_its_own() -> None:
    """Another process may have the number of one that has ended."""
    with subprocess.Popen(["sleep", "600"]) as other:
        fork_server(HOSTED).end(other.pid)
        assert other.poll() is None
        other.kill()


def test_the_folder_of_a_killed_process_goes_with_the_tests() -> None:
    program = (
        "import time\n"
        "from kafkacompat.testing import Kafka\n"
        "kafka = Kafka(process=True)\n"
        "kafka.start()\n"
        "kafka.kill_node(1)\n"
        "print(kafka._folder, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        folder = Path(tests.stdout.readline().strip())
        assert folder.exists()
        tests.kill()
    until(lambda: not folder.exists(), 60, lambda: f"{folder} is still there")


def test_it_ends_with_the_tests_however_they_end() -> None:
    """Also when a process that they have forked goes on, with what they had open."""
    program = (
        "import os, time\n"
        "from kafkacompat.testing import Kafka\n"
        "kafka = Kafka(process=True)\n"
        "kafka.start()\n"
        "print(kafka.pid, kafka._folder, flush=True)\n"
        "child = os.fork()\n"
        "if child:\n"
        "    print(child, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid, folder = tests.stdout.readline().split()
        child = int(tests.stdout.readline())
        broker = os.pidfd_open(int(pid))
        try:
            tests.kill()
            assert select.select([broker], [], [], 60)[0], "it goes on without the tests"
        finally:
            os.close(broker)
            os.kill(child, signal.SIGKILL)
    until(lambda: not Path(folder).exists(), 60, lambda: f"{folder} is still there")


def test_what_json_can_say_goes_to_the_process_too(kafka: KafkaProcess) -> None:
    with kafka.topic("t") as topic:
        kafka.produce(topic, [{"a": 1}], headers={"h": 1})
        (record,) = kafka.records(topic)
        assert (record.value, record.headers) == (b'{"a": 1}', (("h", b"1"),))
    assert kafka.topics() == {}
