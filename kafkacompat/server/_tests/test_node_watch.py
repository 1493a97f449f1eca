"""The token that lets somebody watch a node."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.config import ServerConfig
from kafkacompat.exchanges.exchange import WatchedDispatcher
from kafkacompat.exchanges.watching import Selection, Waiting
from kafkacompat.server.node_watch import BadTokenFile, NodeWatch, token_of
from kafkacompat.server.process import StartRefused, serve_until_stopped
from kafkacompat.server.process_wide import StopSignals


def test_a_start_makes_the_token_and_finds_it_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = token_of(str(path))
    assert len(token) >= 40
    assert token_of(str(path)) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token_of(str(path))
    os.chmod(path, 0o640)
    with pytest.raises(BadTokenFile, match="chmod 600"):
        token_of(str(path))


def test_a_file_without_a_token_is_refused_and_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "token"
    for text in (b"", b"short", b"two words that are long enough", b"\xff" * 20):
        path.write_bytes(text)
        path.chmod(0o600)
        with pytest.raises(BadTokenFile) as refused:
            token_of(str(path))
        assert "words" not in str(refused.value)
    with pytest.raises(BadTokenFile, match="No such file"):
        token_of(str(tmp_path / "none" / "token"))


def test_what_is_no_file_is_refused_without_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "token"
    os.mkfifo(path, 0o600)
    with pytest.raises(BadTokenFile, match="no file"):
        token_of(str(path))
    with pytest.raises(BadTokenFile, match="no file"):
        token_of(str(tmp_path))


def test_a_start_that_was_killed_while_it_made_the_token_hinders_no_later_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    # In a container every start has the same process id.
    (tmp_path / f"token.{os.getpid()}").write_text("")
    assert len(token_of(str(path))) >= 40


def test_the_setting_needs_the_listener_for_metrics(tmp_path: Path) -> None:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9",
        "log.dirs": str(tmp_path / "data"),
        "watch.token.file": str(tmp_path / "token"),
    }
    with pytest.raises(StartRefused, match=r"it needs metrics\.listener\.port"):
        serve_until_stopped(
            ServerConfig.from_properties(settings, {}),
            format_if_empty=True,
            tell_ready=lambda line: None,
            signals=StopSignals(),
        )
    assert not (tmp_path / "token").exists()


def test_connections_call_the_nodes_own_dispatcher_while_nobody_watches() -> None:
    serving: list[object] = []
    own: Any = object()
    broker = SimpleNamespace(admitted=own, socket_server=SimpleNamespace(redirect=serving.append))
    node: Any = SimpleNamespace(broker=broker, controller=None)
    services: Any = SimpleNamespace(config=SimpleNamespace(node_id=1), clock=None)
    metrics: Any = SimpleNamespace(stalls=None)
    watch = NodeWatch(services, node, metrics)
    assert watch.why_not() == "the node starts"
    metrics.stalls = object()
    assert watch.why_not() is None
    assert not serving
    waiting = Waiting(Selection(), lambda: None)
    watch.watchers.add(waiting)
    assert [type(each) for each in serving] == [WatchedDispatcher]
    watch.watchers.remove(waiting)
    assert serving[-1] is own
