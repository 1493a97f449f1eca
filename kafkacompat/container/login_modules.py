"""Login modules from a JAAS file, as settings of the listeners. Apache Kafka reads the file where a listener has no
`sasl.jaas.config` of its own.

Pure. The section of a listener is `<listener>.KafkaServer`, otherwise `KafkaServer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkacompat.security.jaas import LoginModule, parse_jaas_file
from kafkacompat.security.mechanisms import LOGIN_MODULES

SECTION: Final = "KafkaServer"


def jaas_settings(properties: Mapping[str, str], text: str) -> dict[str, str]:
    """Return a `sasl.jaas.config` for each listener and mechanism that has none. Raises JaasError."""
    sections = parse_jaas_file(text)
    found: dict[str, str] = {}
    for listener in _sasl_listeners(properties):
        modules = sections.get(f"{listener}.{SECTION}") or sections.get(SECTION, ())
        for mechanism in _mechanisms(properties, listener):
            setting = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            class_name = LOGIN_MODULES.get(mechanism, "").rpartition(".")[2]
            module = next((each for each in modules if each.name.endswith(f".{class_name}")), None)
            if module is not None and setting not in properties:
                found[setting] = _text_of(module)
    return found


def _sasl_listeners(properties: Mapping[str, str]) -> list[str]:
    """Return the names in lower case of the listeners with SASL, also of those of other nodes."""
    pairs = [each.partition(":") for each in _words(properties.get("listener.security.protocol.map", ""))]
    protocols = {name.strip().lower(): protocol.strip() for name, _, protocol in pairs}
    for each in _words(properties.get("listeners", "")):
        name = each.partition("://")[0]
        protocols.setdefault(name.lower(), name)
    return [name for name, protocol in protocols.items() if protocol.upper().startswith("SASL_")]


def _mechanisms(properties: Mapping[str, str], listener: str) -> list[str]:
    enabled = properties.get(f"listener.name.{listener}.sasl.enabled.mechanisms")
    enabled = properties.get("sasl.enabled.mechanisms", "") if enabled is None else enabled
    between = [
        properties.get(name, "")
        for name in ("sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol")
    ]
    return list(dict.fromkeys(filter(None, (*_words(enabled), *between))))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _text_of(module: LoginModule) -> str:
    options = "".join(f" {name}={_quoted(value)}" for name, value in module.options.items())
    return f"{module.name} required{options};"


def _quoted(value: str) -> str:
    escaped = "".join(
        f"\\{character}"
        if character in '"\\'
        else f"\\{ord(character):03o}"
        if character < " "
        else character
        for character in value
    )
    return f'"{escaped}"'
