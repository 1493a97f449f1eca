"""What the image's command reads and writes before the node starts."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from kafkacompat.cli.settings import load_settings
from kafkacompat.config import load_properties
from kafkacompat.container.__main__ import _format_once, main, prepared_settings, set_levels
from kafkacompat.container.folders import Folders
from kafkacompat.failure import CommandFailed
from kafkacompat.security.jaas import parse_jaas

SASL = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "9@localhost:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "SASL_PLAINTEXT://:9092",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "SASL_PLAINTEXT",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
    "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
}


def written(variables: dict[str, str], root: Path) -> dict[str, str]:
    """The settings that the node reads again from the file."""
    config, _ = prepared_settings(variables, Folders(root))
    final = Folders(root).final_file
    assert stat.S_IMODE(final.stat().st_mode) == 0o600
    assert load_properties(final).items() <= config.originals.items()
    return load_properties(final)


def test_a_mounted_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    """ISO 8859-1: two bytes of UTF-8 are two characters."""
    mounted = Folders(tmp_path).mounted_file
    mounted.parent.mkdir(parents=True)
    mounted.write_bytes("node.id=1\nbroker.rack=\xe4\\u20ac\n".encode())
    found = written({**SASL, "KAFKA_X": "\u20ac"}, tmp_path)
    assert (found["broker.rack"], found["x"]) == ("\xc3\xa4\u20ac", "\u20ac")


def test_passwords_in_files_are_utf_8(tmp_path: Path) -> None:
    secrets = Folders(tmp_path).secrets
    secrets.mkdir(parents=True)
    (secrets / "store.jks").write_bytes(b"\0")
    (secrets / "password").write_bytes("p\xe4ss\u20ac\n\n".encode())
    (secrets / "of-the-key").write_bytes(b"\xe4")
    found = written(
        {
            **SASL,
            "KAFKA_LISTENERS": "SSL://:9092",
            "KAFKA_ADVERTISED_LISTENERS": "SSL://here:9092",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "SSL",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "KAFKA_SSL_KEYSTORE_FILENAME": "store.jks",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "password",
            "KAFKA_SSL_KEY_CREDENTIALS": "of-the-key",
        },
        tmp_path,
    )
    assert (found["ssl.keystore.password"], found["ssl.key.password"]) == ("p\xe4ss\u20ac", "\xe4")


def test_login_modules_of_a_file_are_utf_8(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    text = f'KafkaServer {{ {module} required username="a" password="p\xe4\u20ac\\\\"; }};'
    jaas.write_text(text, encoding="utf-8")
    found = written({**SASL, "KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"}, tmp_path)
    (parsed,) = parse_jaas(found["listener.name.sasl_plaintext.plain.sasl.jaas.config"])
    assert parsed.options["password"] == "p\xe4\u20ac\\"


def test_files_for_log4j_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mounted = Folders(tmp_path).mounted_file
    mounted.parent.mkdir(parents=True)
    (mounted.parent / "log4j2.yaml").touch()
    written(SASL, tmp_path)
    assert "log4j2.yaml has no effect" in caplog.text


def test_levels_are_set_where_the_logger_is_here(caplog: pytest.LogCaptureFixture) -> None:
    audit = logging.getLogger("kafka.authorizer.logger")
    before = audit.level
    try:
        set_levels({audit.name: "INFO", "kafka.controller": "DEBUG"})
        assert audit.level == logging.INFO
    finally:
        audit.setLevel(before)
    assert "KAFKA_LOG4J_LOGGERS has no effect on kafka.controller" in caplog.text
    assert audit.name not in caplog.text


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """As in a container with a file system that is only read."""
    (tmp_path / "opt").touch()
    with pytest.raises(CommandFailed, match=r"cannot write .*server\.properties: Not a directory"):
        written(SASL, tmp_path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["KAFKA_NODE_ID"], "an argument of the image has the form VARIABLE=VALUE"),
        (["KAFKA_LOG4J_ROOT_LOGLEVEL=loud"], "KAFKA_LOG4J_ROOT_LOGLEVEL takes"),
        (["KAFKACOMPAT_LOG_FORMAT=xml"], "KAFKACOMPAT_LOG_FORMAT takes"),
        (["KAFKA_PROCESS_ROLES=controller", "KAFKA_ADVERTISED_LISTENERS=A://b:1"], "is not supported"),
        (["KAFKA_NODE_ID=one"], "Invalid value one"),
        (
            [
                *(f"{name}={value}" for name, value in SASL.items()),
                "CLUSTER_ID=no\udcffid",
                "KAFKA_NUM_IO_THREADS=3",
            ],
            "cannot be formatted for CLUSTER_ID",
        ),
        (["KAFKA_OPTS=-Djava.security.auth.login.config=/nothing"], "there is no file /nothing"),
    ],
)
def test_a_wrong_environment_is_one_line(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(tmp_path), f"KAFKA_LOG_DIRS={tmp_path}/data", *words]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kafkacompat: ")
    assert told in line


def test_a_first_format_that_has_ended_half_way_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """A volume was full or not writable. A directory beside one that was used is not formatted: its volume may not be mounted."""
    directories = [tmp_path / "one", tmp_path / "two"]
    written({**SASL, "KAFKA_LOG_DIRS": ",".join(map(str, directories))}, tmp_path)
    path = Folders(tmp_path).final_file
    config = load_settings(str(path), [])
    _format_once(config, path, "AAAAAAAAAAAAAAAAAAAAAQ")
    first, second = (directory / "meta.properties" for directory in directories)
    before = first.read_bytes()
    second.unlink()
    _format_once(config, path, "AAAAAAAAAAAAAAAAAAAAAg")
    assert first.read_bytes() == before
    assert b"cluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n" in second.read_bytes()
    second.unlink()
    (directories[0] / "orders-0").mkdir()
    _format_once(config, path, "AAAAAAAAAAAAAAAAAAAAAg")
    assert not second.exists()


@pytest.mark.parametrize("metadata", ["metadata", "two"])
def test_no_controller_is_formatted_whose_metadata_is_not_there(tmp_path: Path, metadata: str) -> None:
    """It writes nothing to its other directories, so only the metadata says whether it has run. That volume may not be mounted."""
    directories = [tmp_path / "one", tmp_path / "two"]
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "controller",
        "KAFKA_LISTENERS": "CONTROLLER://localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_LOG_DIRS": ",".join(map(str, directories)),
        "KAFKA_METADATA_LOG_DIR": str(tmp_path / metadata),
    }
    written(environment, tmp_path)
    path = Folders(tmp_path).final_file
    config = load_settings(str(path), [])
    _format_once(config, path, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert (tmp_path / metadata / "meta.properties").exists()
    (tmp_path / "one" / ".lock").touch()
    (tmp_path / metadata).rename(tmp_path / "aside")
    _format_once(config, path, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert not (tmp_path / metadata).exists()
