"""With whose credentials a broker connects to the source of a mirror."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import ConfigError
from kafkacompat.deferred import Deferred
from kafkacompat.mirror.source import SourceUnknown
from kafkacompat.ports import WorkersBusy
from kafkacompat.security.sasl_client import NO_SECURITY
from kafkacompat.server.mirroring import Mirroring, security_for
from kafkacompat.tasks import Tasks

SOURCE = "source:9092"
PROPERTIES = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="m" password="geheim";
"""


def test_without_a_file_a_source_is_reached_in_plain_text() -> None:
    assert security_for(SOURCE, None, is_guarded=False) is NO_SECURITY


def test_with_an_authorizer_only_the_source_that_a_file_names_is_reached() -> None:
    """Who may create topics names an address, and must not choose what the nodes connect to."""
    with pytest.raises(ConfigError, match="authorizer") as refusal:
        security_for(SOURCE, None, is_guarded=True)
    assert SOURCE in str(refusal.value)


def test_the_file_is_for_the_source_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "source.properties"
    path.write_text(f"bootstrap.servers={SOURCE}\n{PROPERTIES}")
    assert security_for(SOURCE, str(path), is_guarded=True).mechanism == "PLAIN"


@pytest.mark.parametrize("named", ["", "bootstrap.servers=other:9092\n"])
def test_credentials_are_not_shown_to_other_brokers(tmp_path: Path, named: str) -> None:
    path = tmp_path / "source.properties"
    path.write_text(named + PROPERTIES)
    with pytest.raises(ConfigError, match="the mirror's source is source:9092") as refusal:
        security_for(SOURCE, str(path), is_guarded=True)
    assert "geheim" not in str(refusal.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.properties: No such file"):
        security_for(SOURCE, str(tmp_path / "missing.properties"), is_guarded=True)


def test_a_source_is_not_known_while_all_threads_are_taken() -> None:
    """It passes, as a broken link does, so the mirror tries again."""
    time = HandTime()
    read: Deferred[Any] = Deferred()
    read.fail(WorkersBusy("10000 jobs wait for threads: cold reads"))
    services: Any = SimpleNamespace(
        config=SimpleNamespace(get_string=lambda name: ""),
        tasks=Tasks(time),
        workers=SimpleNamespace(reads=SimpleNamespace(submit=lambda job: read)),
    )
    unused: Any = None
    mirroring = Mirroring(services, unused, unused, unused, unused)
    with pytest.raises(SourceUnknown, match="10000 jobs wait for threads"):
        mirroring._connecting(SOURCE).result()
