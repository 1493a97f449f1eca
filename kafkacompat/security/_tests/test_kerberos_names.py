"""sasl.kerberos.principal.to.local.rules: which rule applies, and its result. Kafka 4.3's own class gives the same results
(interop_tests/security/test_kerberos_names.py asks it)."""

from __future__ import annotations

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.security._tests.kerberos_cases import INVALID, NAMED, NAMELESS, REALM
from kafkacompat.security.kerberos_names import KerberosPrincipal, KerberosShortNamer, MalformedPrincipal
from kafkacompat.security.sasl_server import Nameless


@pytest.mark.parametrize(("rules", "principal", "name"), NAMED)
def test_the_first_rule_that_applies_names_the_user(rules: list[str], principal: str, name: str) -> None:
    assert KerberosShortNamer(rules, REALM).name_of(principal) == name


@pytest.mark.parametrize(("rules", "principal"), NAMELESS)
def test_a_principal_that_fits_no_rule_has_no_name(rules: list[str], principal: str) -> None:
    with pytest.raises(Nameless):
        KerberosShortNamer(rules, REALM).name_of(principal)


@pytest.mark.parametrize("rule", INVALID)
def test_an_invalid_rule_is_refused_by_its_setting(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        KerberosShortNamer([rule], REALM)


def test_a_replacement_that_java_refuses_when_it_is_used_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="refers to no group"):
        KerberosShortNamer(["RULE:[1:$1](.*)s/a/$1/"], REALM)


def test_without_a_default_realm_the_default_rule_names_nobody() -> None:
    with pytest.raises(Nameless):
        KerberosShortNamer(["DEFAULT"]).name_of(f"alice@{REALM}")


def test_a_principal_is_taken_apart() -> None:
    assert KerberosPrincipal.parse("kafka/host@R") == ("kafka", "host", "R")
    assert KerberosPrincipal.parse("alice@R") == ("alice", None, "R")
    assert KerberosPrincipal.parse("alice") == ("alice", None, None)
    with pytest.raises(MalformedPrincipal):
        KerberosPrincipal.parse("a/b/c@R")
