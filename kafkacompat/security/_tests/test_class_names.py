"""Names of Java classes in settings: recognised where their work is done here, for the mechanism that they belong to."""

from __future__ import annotations

import re

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.security.class_names import refuse_classes_of_others

OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer."
VALIDATOR = f"{OAUTHBEARER}OAuthBearerValidatorCallbackHandler"
LOGIN = f"{OAUTHBEARER}secured.OAuthBearerLoginCallbackHandler"
SERVER_HANDLER, LOGIN_HANDLER = "sasl.server.callback.handler.class", "sasl.login.callback.handler.class"


@pytest.mark.parametrize("prefix", ["", "listener.name.safe.", "listener.name.safe.oauthbearer."])
def test_the_handlers_of_oauthbearer_are_recognised(prefix: str) -> None:
    refuse_classes_of_others({prefix + SERVER_HANDLER: VALIDATOR, prefix + LOGIN_HANDLER: f" {LOGIN} "})


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "scram-sha-512", "gssapi"])
@pytest.mark.parametrize(("setting", "name"), [(SERVER_HANDLER, VALIDATOR), (LOGIN_HANDLER, LOGIN)])
def test_a_handler_of_oauthbearer_is_refused_under_another_mechanism(
    mechanism: str, setting: str, name: str
) -> None:
    """Ignored it would leave the mechanism with another check than the one that the setting names."""
    written = f"listener.name.safe.{mechanism}.{setting}"
    told = f"{name} for configuration {written}: this class is one of OAUTHBEARER, not of {mechanism.upper()}"
    with pytest.raises(ConfigError, match=re.escape(told)):
        refuse_classes_of_others({written: name})


def test_a_class_that_is_done_for_any_mechanism_stays_recognised() -> None:
    builder = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    refuse_classes_of_others({"listener.name.safe.principal.builder.class": builder})
