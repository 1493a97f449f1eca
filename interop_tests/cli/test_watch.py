"""`kafkacompat watch` beside a real client: what it did is shown, live, and only to who has the token."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from interop_tests.cli.command import command_line, refusal_of, run
from interop_tests.harness.broker import APACHE, BrokerProcess, chosen_kind
from interop_tests.harness.ports import free_port

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="it reads a listener that only kafkacompat has"),
]
VALUE = b"the secret of this record"


def watcher(*words: str) -> subprocess.Popen[bytes]:
    """A command that watches already."""
    started = subprocess.Popen(command_line(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stderr is not None
    assert b"watching" in started.stderr.readline()
    return started


def test_what_a_client_does_is_shown(tmp_path: Path) -> None:
    port, token = free_port(), tmp_path / "token"
    settings = {"metrics.listener.port": str(port), "watch.token.file": str(token)}
    broker = BrokerProcess(chosen_kind(), tmp_path / "broker", settings)
    broker.start()
    try:
        url = f"http://127.0.0.1:{port}"
        words = ["watch", "--metrics", url, "--token-file", str(token)]
        told = "--client-id", "orders-app", "--json"
        watching = watcher(*words, *told)
        refusals = watcher(*words, "--errors", "--api", "Metadata", "--topic", "missing", "--count", "1")
        try:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "orders-app"})
            producer.produce("orders", VALUE)
            assert producer.flush(20) == 0
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
            assert consumer.list_topics("missing", 20).topics["missing"].error is not None
            consumer.close()
            exchange: dict[str, Any] = {"api": None}
            while exchange["api"] != "Produce":
                assert watching.stdout is not None
                line = watching.stdout.readline()
                assert VALUE not in line
                exchange = json.loads(line)
                assert exchange["client_id"] == "orders-app"
            assert exchange["topics"] == ["orders"]
            records = exchange["request"]["topic_data"][0]["partition_data"][0]["records"]
            assert records["records"] == 1
            text = refusals.communicate(timeout=20)[0].decode()
            assert refusals.returncode == 0
            assert "UNKNOWN_TOPIC_OR_PARTITION: node 1 knows no topic 'missing'" in text
        finally:
            for each in (watching, refusals):
                each.send_signal(signal.SIGINT)
                each.communicate(timeout=10)
                assert each.returncode == 0
        (tmp_path / "other").write_text("x" * 40)
        other = "watch", "--metrics", url, "--token-file", str(tmp_path / "other")
        assert "needs the token of watch.token.file" in refusal_of(*other)
        done = run(*words, "--seconds", "1")
        assert done.returncode == 0
    finally:
        broker.stop()


def test_a_node_without_the_setting_cannot_be_watched(tmp_path: Path) -> None:
    port, token = free_port(), tmp_path / "token"
    token.write_text("x" * 40)
    broker = BrokerProcess(chosen_kind(), tmp_path / "broker", {"metrics.listener.port": str(port)})
    broker.start()
    try:
        words = "watch", "--metrics", f"http://127.0.0.1:{port}", "--token-file", str(token)
        assert "watch.token.file is not set" in refusal_of(*words)
    finally:
        broker.stop()
