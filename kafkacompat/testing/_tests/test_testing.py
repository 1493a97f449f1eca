"""The broker for users' tests: under trio, under asyncio, without either, and as a pytest fixture."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import kafkacompat.testing
from kafkacompat.addresses import split_host_and_port
from kafkacompat.testing import Broker


def answers(broker: Broker) -> bool:
    """Return whether the broker answers ApiVersions at its address."""
    address = split_host_and_port(broker.bootstrap_servers)
    assert address is not None
    with socket.create_connection(address, timeout=10) as client:
        body = struct.pack(">hhih", 18, 0, 7, -1)
        client.sendall(struct.pack(">i", len(body)) + body)
        head = b""
        while len(head) < 10:
            head += client.recv(10 - len(head))
    return struct.unpack(">ih", head[4:]) == (7, 0)


def test_a_with_block_has_a_broker_and_leaves_nothing() -> None:
    with kafkacompat.testing.running_broker() as broker:
        assert answers(broker)
        assert broker.process.poll() is None
        assert broker.pid == broker.process.pid
        assert (broker.data_dir / "meta.properties").exists()
    assert broker.process.returncode == 0
    assert not broker.data_dir.exists()


def test_two_at_once_do_not_meet() -> None:
    with kafkacompat.testing.running_broker() as one, kafkacompat.testing.running_broker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        assert answers(one)
        assert answers(other)


def test_a_failing_block_stops_the_broker_too() -> None:
    with pytest.raises(ZeroDivisionError), kafkacompat.testing.running_broker() as broker:
        raise ZeroDivisionError
    assert broker.process.returncode == 0


def test_a_broker_leaves_no_pipe_open(recwarn: pytest.WarningsRecorder) -> None:
    with kafkacompat.testing.running_broker() as broker:
        broker.kill()
        broker.restart()
    with pytest.raises(RuntimeError):
        kafkacompat.testing.running_broker({"num.partitions": "none"}).__enter__()
    del broker
    gc.collect()
    assert not [each for each in recwarn if issubclass(each.category, ResourceWarning)]


def test_a_listener_may_have_any_name() -> None:
    settings = {
        "listeners": "CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
    }
    with kafkacompat.testing.running_broker(settings) as broker:
        assert answers(broker)


def test_settings_reach_the_broker_and_refusals_the_test() -> None:
    with pytest.raises(RuntimeError, match=r"num\.partitions"):
        kafkacompat.testing.running_broker({"num.partitions": "none"}).__enter__()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_the_address_of_a_broker_on_ipv6_has_the_brackets_that_clients_ask_for() -> None:
    listeners = "PLAINTEXT://[::1]:0,CONTROLLER://127.0.0.1:0"
    with kafkacompat.testing.running_broker({"listeners": listeners}) as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        assert answers(broker)
        asked = [
            sys.executable,
            "-m",
            "kafkacompat",
            "topics",
            "--bootstrap",
            broker.bootstrap_servers,
            "create",
            "t",
        ]
        subprocess.run(asked, check=True, timeout=30)


def test_a_restarted_broker_keeps_its_port_and_its_files() -> None:
    with kafkacompat.testing.running_broker() as broker:
        before = broker.bootstrap_servers
        identity = (broker.data_dir / "meta.properties").read_text()
        broker.kill()
        broker.restart()
        assert broker.bootstrap_servers == before
        assert answers(broker)
        assert (broker.data_dir / "meta.properties").read_text() == identity
        assert "serving" in "".join(broker.said)


def test_a_broker_ends_with_its_parent_however_that_ends_and_leaves_nothing() -> None:
    program = (
        "import time, kafkacompat.testing\n"
        "with kafkacompat.testing.running_broker() as broker:\n"
        "    print(broker.pid, broker.data_dir, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        parent.kill()
    # The broker is nobody's child now. Its end of a pidfd is readable when it has ended.
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(int(pid))
        try:
            assert select.select([descriptor], [], [], 30)[0], "it goes on without its parent"
        finally:
            os.close(descriptor)
    assert not Path(folder).exists()


async def test_async_with_under_trio() -> None:
    async with kafkacompat.testing.broker() as broker:
        assert answers(broker)
    assert broker.process.returncode == 0


def test_async_with_under_asyncio() -> None:
    async def main() -> Broker:
        async with kafkacompat.testing.broker({"num.partitions": "2"}) as broker:
            assert answers(broker)
        return broker

    assert asyncio.run(main()).process.returncode == 0


def test_the_fixture_serves_a_session(tmp_path: Path) -> None:
    """In a separate pytest process: two tests share one broker."""
    (tmp_path / "test_user.py").write_text(
        "seen = []\n"
        "def test_first(kafka_broker):\n"
        "    seen.append(kafka_broker.pid)\n"
        "    assert ':' in kafka_broker.bootstrap_servers\n"
        "def test_second(kafka_broker):\n"
        "    assert seen == [kafka_broker.pid]\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
