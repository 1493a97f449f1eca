"""The client of a schema registry against a small one on loopback: what it asks, and what it says when that fails."""

from __future__ import annotations

import json
import os
import pkgutil
import socket
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kafkacompat._tests.certificates import Authority
from kafkacompat._tests.http_server import serving
from kafkacompat.config import ConfigError
from kafkacompat.pipeline import schemas
from kafkacompat.pipeline._tests.registry_kit import RegistryKit, a_registry
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.schemas.avro import Unusable
from kafkacompat.pipeline.schemas.client import (
    REFERENCES_MAX,
    RegistrySettings,
    SchemaRegistry,
    SchemaText,
    UnknownSchema,
)
from kafkacompat.pipeline.schemas.wire_format import Malformed, NotRead, Unshown

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}]}


@pytest.fixture
def registry() -> Iterator[RegistryKit]:
    with a_registry() as kit:
        yield kit


class Clock:
    """Time that passes only while the client waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds


def client(kit: RegistryKit | str, *properties: tuple[str, str], patience_s: float = 0) -> SchemaRegistry:
    clock = Clock()
    url = kit if isinstance(kit, str) else kit.url
    return SchemaRegistry(RegistrySettings(url, properties), patience_s, clock.now, clock.wait)


def reference(name: str, subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": version}


def test_a_schema_is_asked_for_by_its_id(registry: RegistryKit) -> None:
    registry.register(7, ORDER)
    registry.register(8, 'syntax = "proto3";', "PROTOBUF")
    asked = client(registry.url + "/")
    asked.check()
    assert asked.schema(7) == SchemaText("AVRO", json.dumps(ORDER))
    assert asked.schema(8) == SchemaText("PROTOBUF", 'syntax = "proto3";')
    assert registry.asked == ["/schemas/types", "/schemas/ids/7", "/schemas/ids/8"]


def test_the_address_may_have_a_path(registry: RegistryKit) -> None:
    with pytest.raises(PipelineFailed, match="the answer is not that of a schema registry"):
        client(registry.url + "/apis/ccompat/v7").check()
    assert registry.asked == ["/apis/ccompat/v7/schemas/types"]


def test_schemas_that_it_refers_to_come_before_it(registry: RegistryKit) -> None:
    registry.register_version("b/c", 2, "inner", "PROTOBUF")
    registry.register_version("a", 1, "outer", "PROTOBUF", [reference("c.proto", "b/c", 2)])
    both = [reference("a.proto", "a"), reference("c.proto", "b/c", 2)]
    registry.register(7, "text", "PROTOBUF", both)
    found = client(registry).schema(7)
    assert found.references == (("c.proto", "inner"), ("a.proto", "outer"))
    assert "/subjects/b%2Fc/versions/2" in registry.asked


def test_what_the_registry_lacks_is_named(registry: RegistryKit) -> None:
    with pytest.raises(UnknownSchema, match=r"^the registry has no schema with id 7$"):
        client(registry).schema(7)
    registry.register(8, "text", "PROTOBUF", [reference("a.proto", "a", 3)])
    with pytest.raises(UnknownSchema, match="no version 3 of subject a, to which schema id 8 refers"):
        client(registry).schema(8)


def test_schemas_that_refer_to_themselves_are_bounded(registry: RegistryKit) -> None:
    registry.register(7, "text", "PROTOBUF", [reference("a.proto", "a")])
    registry.register_version("a", 1, "text", "PROTOBUF", [reference("b.proto", "b")])
    registry.register_version("b", 1, "text", "PROTOBUF", [reference("a.proto", "a")])
    with pytest.raises(UnknownSchema, match="refers to itself"):
        client(registry).schema(7)
    for number in range(REFERENCES_MAX + 2):
        registry.register_version(
            f"s{number}", 1, "text", "PROTOBUF", [reference(f"{number}.proto", f"s{number + 1}")]
        )
    registry.register(8, "text", "PROTOBUF", [reference("s.proto", "s0")])
    registry.asked.clear()
    with pytest.raises(UnknownSchema, match=f"more than {REFERENCES_MAX} others"):
        client(registry).schema(8)
    assert len(registry.asked) <= REFERENCES_MAX + 2


def test_a_registry_that_fails_for_a_while_is_asked_again(registry: RegistryKit) -> None:
    registry.register(7, ORDER)
    registry.failures = 3
    assert client(registry, patience_s=60).schema(7).kind == "AVRO"
    assert registry.asked == ["/schemas/ids/7"] * 4


def test_what_a_proxy_does_not_find_is_no_unknown_schema(registry: RegistryKit) -> None:
    """While the registry behind it starts. Records with an unknown schema are rejected for good."""
    registry.register(3, ORDER)
    registry.failure, registry.failures = 404, 4
    assert client(registry, patience_s=60).schema(3).kind == "AVRO"
    registry.failures = 4
    with pytest.raises(PipelineFailed, match=r"schema id 3 of the schema registry .*404"):
        client(registry, patience_s=0).schema(3)


def test_a_registry_out_of_reach_is_said_with_the_place() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PipelineFailed) as failed:
            client(url, patience_s=3).schema(7)
    assert str(failed.value).startswith(
        f"schema id 7 of the schema registry {url}: no answer of {url}: Connection refused"
    )


def test_credentials_are_sent_and_never_shown(registry: RegistryKit, tmp_path: Path) -> None:
    registry.authorization = "Basic YW5uOnMzY3JldA=="
    registry.register(7, ORDER)
    file = tmp_path / "registry.properties"
    file.write_text(f"schema.registry.url={registry.url}\nbasic.auth.user.info=ann:s3cret\nother=1\n")
    settings = RegistrySettings.given(None, str(file))
    assert settings is not None
    assert "s3cret" not in repr(settings)
    assert SchemaRegistry(settings).schema(7).kind == "AVRO"
    for wrong in (("basic.auth.user.info", "ann:wr0ng"), ("bearer.auth.token", "wr0ng")):
        with pytest.raises(PipelineFailed) as failed:
            client(registry, wrong).check()
        assert "status 401: it does not accept the credentials of --registry-config" in str(failed.value)
        assert "wr0ng" not in str(failed.value)
    registry.authorization = "Bearer t0ken"
    client(registry, ("bearer.auth.token", "t0ken")).check()


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ("basic.auth.user.info=s3cret", "basic.auth.user.info: it is not USER:PASSWORD"),
        (
            "basic.auth.user.info=a:s3cret\nbearer.auth.token=s3cret",
            "bearer.auth.token: basic.auth.user.info is set too",
        ),
        ("bearer.auth.token=s3cret\\n", "bearer.auth.token: it has characters that no header may have"),
        ("schema.registry.url=ftp://h/", "schema.registry.url: it is not http://HOST:PORT/PATH"),
        (
            "schema.registry.url=http://ann:s3cret@h/",
            "schema.registry.url: a URL with a user is not supported",
        ),
        (
            "bearer.auth.client.secret=s3cret",
            "bearer.auth.client.secret is not supported",
        ),
        ("basic.auth.credentials.source=URL", "basic.auth.credentials.source: it is not USER_INFO"),
        (
            "bearer.auth.credentials.source=OAUTHBEARER",
            "bearer.auth.credentials.source: it is not STATIC_TOKEN",
        ),
        (
            "schema.registry.basic.auth.user.info=a:s3cret",
            "schema.registry.basic.auth.user.info is not supported",
        ),
        (
            "schema.registry.ssl.keystore.pasword=s3cret",
            "schema.registry.ssl.keystore.pasword is not supported",
        ),
    ],
)
def test_a_wrong_setting_is_named_without_its_value(tmp_path: Path, properties: str, why: str) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(f"schema.registry.url=http://127.0.0.1:1\n{properties}\n")
    with pytest.raises(ConfigError) as refused:
        RegistrySettings.given(None, str(file))
    assert why in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_what_is_about_something_else_may_be_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    others = "bootstrap.servers=h:1\nssl.truststore.type=PEM\nauto.register.schemas=false\n"
    sources = "basic.auth.credentials.source=USER_INFO\nbearer.auth.credentials.source=STATIC_TOKEN\n"
    file.write_text(f"{others}{sources}basic.auth.user.info=a:b\n")
    settings = RegistrySettings.given("http://127.0.0.1:1", str(file))
    assert settings is not None
    assert settings.headers()["Authorization"] == "Basic YTpi"


def test_another_process_gets_each_of_the_settings() -> None:
    settings = RegistrySettings(
        "http://h:1", (("bearer.auth.token", "a"), ("basic.auth.user.info", "b")), "/f"
    )
    defaults = RegistrySettings("")
    for each in fields(RegistrySettings):
        assert getattr(settings, each.name) != getattr(defaults, each.name), f"{each.name} is not tried here"
    assert RegistrySettings.decoded(settings.encoded()) == settings


def test_credentials_are_asked_for_at_each_request(
    registry: RegistryKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register(7, ORDER)
    asking = client(registry, ("bearer.auth.token", "a"))
    registry.authorization = "Bearer later"
    monkeypatch.setattr(RegistrySettings, "headers", lambda _: {"Authorization": "Bearer later"})
    assert asking.schema(7).kind == "AVRO"


def test_a_token_is_as_its_file_has_it_now(registry: RegistryKit, tmp_path: Path) -> None:
    """As in Kubernetes, which replaces the file of a token before it ends."""
    token, file = tmp_path / "token", tmp_path / "registry.properties"
    provider = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    file.write_text(
        f"config.providers=here\nconfig.providers.here.class={provider}\n"
        f"bearer.auth.token=${{here:{tmp_path}:token}}\n"
    )
    token.write_text("one")
    settings = RegistrySettings.given(registry.url, str(file))
    assert settings is not None
    asked = SchemaRegistry(RegistrySettings.decoded(settings.encoded()), 0)
    registry.authorization = "Bearer one"
    asked.check()
    token.write_text("two")
    registry.authorization = "Bearer two"
    asked.check()
    file.rename(tmp_path / "away")
    asked.check()
    registry.authorization = "Bearer three"
    with pytest.raises(
        PipelineFailed, match=r"401: .*; cannot read the file .*registry\.properties"
    ) as failure:
        asked.check()
    assert "two" not in str(failure.value)


def test_the_stores_for_a_registry_with_tls_are_as_their_files_are_now(tmp_path: Path) -> None:
    authority, store, file = Authority(), tmp_path / "ca.pem", tmp_path / "registry.properties"

    def write(one: Authority, place: Path, at_s: int) -> None:
        place.write_text(one.pem())
        os.utime(place, (at_s, at_s))
        file.write_text(
            f"schema.registry.ssl.truststore.type=PEM\nschema.registry.ssl.truststore.location={place}\n"
        )

    write(Authority("Before"), store, 1)
    with serving(tmp_path, authority.issue()) as server:
        server.answer = lambda asked: (200, b'["AVRO"]')
        settings = RegistrySettings.given(server.base, str(file))
        assert settings is not None
        asked = SchemaRegistry(settings, 0)
        with pytest.raises(PipelineFailed, match="certificate verify failed"):
            asked.check()
        write(authority, store, 2)
        asked.check()
        write(authority, tmp_path / "other.pem", 3)
        store.unlink()
        asked.check()


def test_without_an_address_there_is_no_registry(tmp_path: Path) -> None:
    assert RegistrySettings.given(None, None) is None
    file = tmp_path / "registry.properties"
    file.write_text("bearer.auth.token=a\n")
    with pytest.raises(ConfigError, match=r"schema\.registry\.url is not set"):
        RegistrySettings.given(None, str(file))
    with pytest.raises(ConfigError, match="cannot read the file"):
        RegistrySettings.given(None, str(tmp_path / "absent"))


def test_whatever_can_be_wrong_is_a_kind_that_each_reader_catches() -> None:
    """The jobs, `pipeline try` and the console catch these two. A new exception beside them would end the console's decoder."""
    raised = {
        value
        for module in pkgutil.iter_modules(schemas.__path__)
        for value in vars(import_module(f"{schemas.__name__}.{module.name}")).values()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__.startswith(schemas.__name__)
        and not value.__name__.startswith("_")
    }
    assert raised >= {NotRead, UnknownSchema, Unusable, Malformed, Unshown}
    assert [value for value in raised if not issubclass(value, (NotRead, PipelineFailed))] == []
