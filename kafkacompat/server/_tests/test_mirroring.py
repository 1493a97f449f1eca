"""With whose credentials a broker connects to the source of a mirror."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.security.sasl_client import NO_SECURITY
from kafkacompat.server.mirroring import security_for

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
