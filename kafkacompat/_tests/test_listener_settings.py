"""Settings that one listener, or one SASL mechanism of it, has of its own."""

from __future__ import annotations

import pytest

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.config.of_listeners import is_of_listener
from kafkacompat.security.ssl_factory import NAMES as SSL_SETTINGS


def config(**settings: str) -> ServerConfig:
    named = {name.replace("__", "."): text for name, text in settings.items()}
    return ServerConfig.from_properties(defaults_without_file(), named)


def test_the_narrowest_value_counts() -> None:
    of = config(
        connections__max__reauth__ms="10",
        listener__name__safe__connections__max__reauth__ms="20",
        listener__name__safe__plain__connections__max__reauth__ms="30",
    )
    name = "connections.max.reauth.ms"
    assert of.of_listener("OTHER", name) == 10
    assert of.of_listener("SAFE", name) == 20
    assert of.of_listener("SAFE", name, "PLAIN") == 30
    assert of.of_listener("OTHER", name, "PLAIN") == 10
    assert of.of_listener("SAFE", name, "SCRAM-SHA-256") == 20


def test_a_listeners_setting_is_typed_and_checked_under_its_whole_name() -> None:
    of = config(listener__name__safe__sasl__enabled__mechanisms="PLAIN, SCRAM-SHA-512")
    assert of.of_listener("SAFE", "sasl.enabled.mechanisms") == ("PLAIN", "SCRAM-SHA-512")
    assert of.of_listener("OTHER", "sasl.enabled.mechanisms") == ("GSSAPI",)
    with pytest.raises(ConfigError, match=r"listener\.name\.safe\.connections\.max\.reauth\.ms"):
        config(listener__name__safe__connections__max__reauth__ms="soon")


def test_a_secret_of_a_mechanism_is_not_taken_from_the_node_by_another() -> None:
    of = config(listener__name__safe__plain__sasl__jaas__config="a")
    assert of.of_listener("SAFE", "sasl.jaas.config", "PLAIN") == "a"
    assert of.of_listener("SAFE", "sasl.jaas.config", "SCRAM-SHA-256") is None
    assert of.of_listener("OTHER", "sasl.jaas.config", "PLAIN") is None


def test_a_setting_that_is_not_read_for_a_listener_is_told_to_have_no_effect_there() -> None:
    of = config(
        listener__name__safe__connections__max__idle__ms="5000",
        listener__name__safe__num__io__threads="5",
        listener__name__safe__max__connections="5",
        listener__name__safe__plain__connections__max__reauth__ms="5",
        connections__max__idle__ms="5000",
    )
    assert of.without_effect == (
        "listener.name.safe.connections.max.idle.ms",
        "listener.name.safe.num.io.threads",
    )
    with pytest.raises(KeyError, match="OF_LISTENERS"):
        of.of_listener("SAFE", "connections.max.idle.ms")
    assert all(map(is_of_listener, SSL_SETTINGS))
