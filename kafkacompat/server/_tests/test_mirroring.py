"""With whose credentials a broker connects to the source of a mirror."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from kafkacompat._tests.certificates import Authority
from kafkacompat._tests.doubles import HandTime, HandWorkers
from kafkacompat.config import ConfigError
from kafkacompat.deferred import Deferred
from kafkacompat.mirror.source import SourceUnknown
from kafkacompat.ports import WorkersBusy
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity
from kafkacompat.server.mirroring import Mirroring, SourceChannels, SourceTerms, terms_for
from kafkacompat.tasks import Tasks

SOURCE = "source:9092"
PROPERTIES = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="m" password="geheim";
"""


def terms(path: Path | None, before: SourceTerms | None = None, *, is_guarded: bool = True) -> Any:
    return terms_for(SOURCE, None if path is None else str(path), before, is_guarded=is_guarded)


def test_without_a_file_a_source_is_reached_in_plain_text() -> None:
    assert terms(None, is_guarded=False).security is NO_SECURITY


def test_with_an_authorizer_only_the_source_that_a_file_names_is_reached() -> None:
    """Who may create topics names an address, and must not choose what the nodes connect to."""
    with pytest.raises(ConfigError, match="authorizer") as refusal:
        terms(None)
    assert SOURCE in str(refusal.value)


def test_the_file_is_for_the_source_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "source.properties"
    path.write_text(f"bootstrap.servers={SOURCE}\n{PROPERTIES}")
    assert terms(path).security.mechanism == "PLAIN"


@pytest.mark.parametrize("named", ["", "bootstrap.servers=other:9092\n"])
def test_credentials_are_not_shown_to_other_brokers(tmp_path: Path, named: str) -> None:
    path = tmp_path / "source.properties"
    path.write_text(named + PROPERTIES)
    with pytest.raises(ConfigError, match="the mirror's source is source:9092") as refusal:
        terms(path)
    assert "geheim" not in str(refusal.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.properties: No such file"):
        terms(tmp_path / "missing.properties")


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


class Connected:
    """A source that is connected, whose properties are in a file that the test writes."""

    def __init__(self, path: Path) -> None:
        time = HandTime()
        self.workers = HandWorkers()
        services: Any = SimpleNamespace(
            config=SimpleNamespace(get_string={"mirror.client.properties": str(path)}.get),
            tasks=Tasks(time),
            workers=SimpleNamespace(reads=self.workers),
        )
        unused: Any = None
        mirroring = Mirroring(services, unused, self._channels, unused, unused)
        connecting = mirroring._connecting(SOURCE)
        self.workers.run_all()
        self.channels: SourceChannels = connecting.result()

    def _channels(self, security: ClientSecurity) -> Any:
        self.security = security
        return SimpleNamespace(get=None, close_all=None)

    def renew(self) -> None:
        renewal = self.channels.renew()
        self.workers.run_all()
        renewal.result()

    def first_message(self) -> bytes:
        assert self.security.begin is not None
        return self.security.begin("host").initial_response()


def test_credentials_of_the_file_count_as_they_are_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "source.properties"
    path.write_text(f"bootstrap.servers={SOURCE}\n{PROPERTIES}")
    connected = Connected(path)
    assert connected.first_message() == b"\0m\0geheim"
    path.write_text(path.read_text().replace("geheim", "anders"))
    connected.renew()
    assert connected.first_message() == b"\0m\0anders"
    path.rename(tmp_path / "away")
    for _ in range(3):
        connected.renew()
    assert connected.first_message() == b"\0m\0anders"
    assert [each.getMessage() for each in caplog.records] == [
        f"[Mirror source={SOURCE}] mirror.client.properties: {path}: No such file or directory; "
        "connections are made as before"
    ]
    path.write_text(f"bootstrap.servers={SOURCE}\n")
    connected.renew()
    assert connected.security.begin is None


def test_stores_count_as_they_lie_in_their_files(tmp_path: Path) -> None:
    store, path = tmp_path / "ca.pem", tmp_path / "source.properties"
    authority = Authority()

    def write(one: Authority, at_s: int) -> None:
        store.write_text(one.pem())
        os.utime(store, (at_s, at_s))

    tls = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(store)}
    settings = {"bootstrap.servers": SOURCE, **tls}
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    write(authority, 1)
    connected = Connected(path)
    first = connected.security.context
    connected.renew()
    assert connected.security.context is first
    other = Authority("Other")
    write(other, 2)
    connected.renew()
    assert connected.security.context is not None
    (trusted,) = connected.security.context.get_ca_certs(binary_form=True)
    assert trusted == other.certificate.public_bytes(Encoding.DER)
    store.write_text("half of")
    connected.renew()
    assert connected.security.context.get_ca_certs(binary_form=True) == [trusted]
