"""Placeholders in settings: what they are replaced by, and what stays as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file, resolved
from kafkacompat.security.cluster_address import ClusterAddress

PACKAGE = "org.apache.kafka.common.config.provider."
NAMES = {"file": "FileConfigProvider", "dir": "DirectoryConfigProvider", "env": "EnvVarConfigProvider"}
PROVIDERS = {"config.providers": "file,dir, env"} | {
    f"config.providers.{name}.class": PACKAGE + of for name, of in NAMES.items()
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secrets.properties").write_text(
        "password = s3cret\nagain=${env:KAFKA_NAME}\n\u00e9=\u00fc\n", "utf-8"
    )
    (tmp_path / "token").write_text("a token\n")
    monkeypatch.setenv("KAFKA_NAME", "a name")
    monkeypatch.setenv("OTHER", "another")
    return tmp_path


def value(text: str, **more: str) -> str:
    return resolved(PROVIDERS | {"it": text} | {f"config.providers.{k}": v for k, v in more.items()})["it"]


def test_the_settings_of_providers_are_known() -> None:
    params = {"config.providers.dir.param.allowed.paths": "/"}
    config = ServerConfig.from_properties(defaults_without_file() | PROVIDERS | params)
    assert config.unknown == ()
    other = {"config.providers.other.class": PACKAGE + NAMES["env"]}
    assert ServerConfig.from_properties(defaults_without_file() | other).unknown == tuple(other)


def test_values_are_fetched(folder: Path) -> None:
    file = folder / "secrets.properties"
    assert value(f"<${{file:{file}:password}}>") == "<s3cret>"
    assert value(f"${{file:{file}:\u00e9}}") == "\u00fc"
    assert value(f"${{dir:{folder}:token}}") == "a token\n"
    assert value("${env:KAFKA_NAME}${env:OTHER}-${env:KAFKA_NAME}") == "a nameanother-a name"


def test_a_fetched_value_is_not_searched_for_placeholders(folder: Path) -> None:
    assert value(f"${{file:{folder / 'secrets.properties'}:again}}") == "${env:KAFKA_NAME}"


@pytest.mark.parametrize(
    "text",
    [
        "${env:NOT_THERE_AT_ALL}",
        "${nobody:KAFKA_NAME}",
        "${env}",
        "${env:KAFKA_NAME",
        "$${KAFKA_NAME}",
        "${file:secrets}",
        "${file::password}",
        "${dir:/no/such/directory:token}",
        "${file:FOLDER/secrets.properties:nothing}",
        "${dir:FOLDER:nothing}",
        "${dir:FOLDER/..:..}",
        "${dir:FOLDER:../secrets.properties}",
        "${dir:FOLDER:}",
    ],
)
def test_a_placeholder_of_no_provider_stays_as_it_is(text: str, folder: Path) -> None:
    text = text.replace("FOLDER", str(folder))
    assert value(text) == text


def test_a_file_of_passwords_that_cannot_be_parsed_is_named_without_them(folder: Path) -> None:
    file = folder / "secrets.properties"
    file.write_text("password=s3cret\\users\n")
    with pytest.raises(ConfigError) as refused:
        value(f"${{file:{file}:password}}")
    assert str(file) in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_provider_without_a_class_is_none(folder: Path) -> None:
    settings = {"config.providers": "env", "it": "${env:KAFKA_NAME}"}
    assert resolved(settings) == settings


def test_paths_and_names_can_be_kept_from_a_provider(folder: Path) -> None:
    inside = folder / "inside"
    inside.mkdir()
    (inside / "token").write_text("inner")
    (folder / "inside-too").mkdir()
    (folder / "inside-too" / "token").write_text("outer")
    allowed = {"dir.param.allowed.paths": f"/usr,{inside}/", "file.param.allowed.paths": f"{inside}"}
    assert value(f"${{dir:{inside}:token}}", **allowed) == "inner"
    assert value(f"${{dir:{inside}/../inside:token}}", **allowed) == "inner"
    for text in (
        f"${{dir:{inside}/..:token}}",
        f"${{dir:{folder}/inside-too:token}}",
        f"${{file:{folder}/secrets.properties:password}}",
    ):
        assert value(text, **allowed) == text
    pattern = {"env.param.allowlist.pattern": "KAFKA_.*"}
    assert value("${env:KAFKA_NAME}${env:OTHER}", **pattern) == "a name${env:OTHER}"


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        ("${file:/no/such/file:x}", {}, "/no/such/file.*cannot be read"),
        ("${env:path:KAFKA_NAME}", {}, "have no path"),
        (
            "",
            {"env.class": "com.example.Mine"},
            "com.example.Mine for configuration config.providers.env.class",
        ),
        ("", {"file.param.allowed.paths": "relative"}, "not absolute"),
        ("", {"dir.param.allowed.paths": "/no/such/path"}, "does not exist"),
        ("", {"env.param.allowlist.pattern": "("}, "no pattern"),
    ],
)
def test_a_provider_that_cannot_serve_is_told_of(
    text: str, more: dict[str, str], told: str, folder: Path
) -> None:
    with pytest.raises(ConfigError, match=told):
        value(text, **more)


def test_a_node_and_a_client_have_what_stands_elsewhere(folder: Path) -> None:
    config = ServerConfig.from_properties(
        defaults_without_file() | PROVIDERS | {"broker.rack": "${env:KAFKA_NAME}"}
    )
    assert config.get_string("broker.rack") == "a name"
    literal = ServerConfig.from_properties(defaults_without_file() | {"broker.rack": "${env:KAFKA_NAME}"})
    assert literal.get_string("broker.rack") == "${env:KAFKA_NAME}"
    path = folder / "client.properties"
    path.write_text(
        "".join(f"{name}={text}\n" for name, text in PROVIDERS.items())
        + f"client.id=${{file:{folder}/secrets.properties:password}}\n"
    )
    assert ClusterAddress.of_file("localhost:1", str(path)).properties["client.id"] == "s3cret"
