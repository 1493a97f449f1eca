"""Files that settings name, if something else is there: a named pipe, which would block, or a device, which may not end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from kafkacompat.cli.settings import load_settings
from kafkacompat.config import ConfigError, resolved
from kafkacompat.config.properties import NO_WRITER, NOT_REGULAR, load_properties, open_regular
from kafkacompat.container.__main__ import _secret
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.jaas import LoginModule
from kafkacompat.security.jwks import JwksFile
from kafkacompat.security.kerberos_login import login_of_client
from kafkacompat.security.oauthbearer_client import TokenFile
from kafkacompat.security.ssl_factory import load_stores, ssl_settings

PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


def _stores(kind: str, path: str) -> None:
    load_stores(ssl_settings({f"ssl.{kind}.type": "PEM", f"ssl.{kind}.location": path}))


def _login(option: str, path: str) -> None:
    switch = "useKeyTab" if option == "keyTab" else "useTicketCache"
    options = {switch: "true", option: path, "principal": "alice@EXAMPLE.COM", "serviceName": "kafka"}
    login_of_client(
        LoginModule("com.sun.security.auth.module.Krb5LoginModule", options), "sasl.jaas.config", None
    )


READERS: dict[str, Callable[[str], object]] = {
    "keystore": lambda path: _stores("keystore", path),
    "truststore": lambda path: _stores("truststore", path),
    "a store of Java": lambda path: load_stores(
        ssl_settings({"ssl.keystore.location": path, "ssl.keystore.password": "secret"})
    ),
    "keys of OAUTHBEARER": lambda path: JwksFile(path).keys(),
    "a token": lambda path: TokenFile(path, {}).token(),
    "keytab": lambda path: _login("keyTab", path),
    "keytab with its kind": lambda path: _login("keyTab", f"FILE:{path}"),
    "ticket cache": lambda path: _login("ticketCache", path),
    "FileConfigProvider": lambda path: resolved(
        {"config.providers": "f", "config.providers.f.class": PROVIDER, "it": f"${{f:{path}:key}}"}
    ),
    "a password of the image": _secret,
}


@pytest.fixture(autouse=True)
def _does_not_wait() -> Iterator[None]:
    def waited(signal_number: int, frame: FrameType | None) -> None:
        raise AssertionError("waits for a pipe or reads without end")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "device", "link to a pipe"])
@pytest.mark.parametrize("reader", READERS)
def test_a_setting_that_names_no_regular_file_is_refused_at_once(
    reader: str, kind: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    path = {"pipe": str(pipe), "device": "/dev/zero", "link to a pipe": str(tmp_path / "link")}[kind]
    with pytest.raises(Exception) as refused:  # each reader has an exception of its own
        READERS[reader](path)
    assert NOT_REGULAR in str(refused.value)
    assert path in str(refused.value)


def test_a_link_to_a_file_is_read_and_a_directory_keeps_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    with open(open_regular(tmp_path / "link"), "rb") as file:
        assert file.read() == b"text"
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(ConfigError, match="Is a directory"):
        READERS["keystore"](str(tmp_path))


# Arguments of commands, which may be pipes.


def test_a_pipe_to_which_nobody_writes_is_refused_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    with pytest.raises(CommandFailed, match=f"cannot read the settings file {path}: {NO_WRITER}"):
        load_settings(path, [])
    with pytest.raises(ConfigError, match=f"{path} of --command-config: {NO_WRITER}"):
        ClusterAddress.of_file("localhost:9092", path)


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(CommandFailed, match="cannot read the settings file /dev/zero: File too large"):
        load_settings("/dev/zero", [])
    assert load_properties("/dev/null") == {}


@pytest.mark.parametrize("writer", ["echo a=b; echo c=d", "sleep 0.2; echo a=b; sleep 0.2; echo c=d"])
def test_a_pipe_that_has_a_writer_is_read_to_its_end(writer: str) -> None:
    """Process substitution passes such a path."""
    with subprocess.Popen(["sh", "-c", writer], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert load_properties(f"/dev/fd/{process.stdout.fileno()}") == {"a": "b", "c": "d"}
