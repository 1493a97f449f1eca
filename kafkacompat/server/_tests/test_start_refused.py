"""The configurations that a node refuses before it uses a directory or a port."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller.features import default_levels
from kafkacompat.log.disk import RealDisk
from kafkacompat.net.runtime import SystemRandom
from kafkacompat.security.authorizer import STANDARD_AUTHORIZER
from kafkacompat.security.jaas import SCRAM_LOGIN_MODULE
from kafkacompat.server.data_directories import format_node
from kafkacompat.server.process import StartRefused, serve_until_stopped
from kafkacompat.server.process_wide import StopSignals


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_listener_without_its_store_is_told_before_anything_is_touched(
    tmp_path: Path, protocol: str
) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CLIENTS:{protocol},CONTROLLER:PLAINTEXT",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{SCRAM_LOGIN_MODULE} required;",
        "listener.name.clients.ssl.keystore.location": str(tmp_path / "nowhere"),
        "ssl.keystore.password": "a secret",
        "log.dirs": str(tmp_path / "data"),
    }
    config = ServerConfig.from_properties(defaults_without_file(), settings)
    with pytest.raises(
        StartRefused, match=r"^listener\.name\.clients\.ssl\.keystore\.location: .*nowhere cannot be read"
    ):
        serve_until_stopped(config, format_if_empty=True, tell_ready=lambda _: None, signals=StopSignals())
    assert not (tmp_path / "data").exists()


def test_a_mechanism_that_cannot_be_had_is_told_before_anything_is_touched(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "log.dirs": str(tmp_path / "data"),
    }
    config = ServerConfig.from_properties(defaults_without_file(), settings)
    with pytest.raises(StartRefused, match=r"listener\.name\.safe\.plain\.sasl\.jaas\.config must be set"):
        serve_until_stopped(config, format_if_empty=True, tell_ready=lambda _: None, signals=StopSignals())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"principal.builder.class": "com.example.Mine"},
            r"com\.example\.Mine for .*principal\.builder\.class",
        ),
        (
            {"listener.name.plaintext.plain.sasl.server.callback.handler.class": "com.example.Mine"},
            r"listener\.name\.plaintext\.plain\.sasl\.server\.callback\.handler\.class",
        ),
        (
            {"authorizer.class.name": "com.example.Mine"},
            r"com\.example\.Mine for configuration authorizer\.class\.name",
        ),
        (
            {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "alice"},
            r"alice for configuration super\.users",
        ),
    ],
)
def test_an_authorizer_that_cannot_be_had_never_opens_a_cluster_to_everybody(
    tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    config = ServerConfig.from_properties(
        defaults_without_file(), settings | {"log.dirs": str(tmp_path / "data")}
    )
    with pytest.raises(StartRefused, match=told):
        serve_until_stopped(config, format_if_empty=True, tell_ready=lambda _: None, signals=StopSignals())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("damage", [b"", b"garbage", bytes(200)])
@pytest.mark.parametrize("level", [30, 33])
def test_a_broken_file_with_the_first_records_is_named(tmp_path: Path, damage: bytes, level: int) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "log.dirs": str(tmp_path)}
    config = ServerConfig.from_properties(defaults_without_file(), settings)
    cluster = "aW50ZXJvcC1jbHVzdGVyLQ"
    format_node(
        config,
        RealDisk(),
        SystemRandom(),
        0,
        cluster_id=cluster,
        standalone=False,
        feature_levels=default_levels(level),
    )
    (path,) = tmp_path.rglob("*.checkpoint")
    path.chmod(0o600)
    path.write_bytes(damage)
    with pytest.raises(StartRefused, match=re.escape(str(path))):
        serve_until_stopped(config, format_if_empty=True, tell_ready=lambda _: None, signals=StopSignals())


def test_a_metadata_log_that_the_disk_refuses_is_named_with_its_setting(tmp_path: Path) -> None:
    """The system's error alone names only a file, which appears in no setting."""
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "log.dirs": str(tmp_path)}
    config = ServerConfig.from_properties(defaults_without_file(), settings)
    cluster = "aW50ZXJvcC1jbHVzdGVyLQ"
    format_node(config, RealDisk(), SystemRandom(), 0, cluster_id=cluster, standalone=False)
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    (tmp_path / "__cluster_metadata-0").write_text("a file")
    expected = rf"the metadata log in {tmp_path} \(metadata\.log\.dir.*cannot be opened: .*File exists"
    with pytest.raises(StartRefused, match=expected):
        serve_until_stopped(config, format_if_empty=True, tell_ready=lambda _: None, signals=StopSignals())
