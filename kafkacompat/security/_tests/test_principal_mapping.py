"""ssl.principal.mapping.rules: which rule applies, and its result. Kafka 4.3's own class gives the same results."""

from __future__ import annotations

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.security.principal_mapping import NoMatchingRule, SslPrincipalMapper

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_fits_decides(subject: str, name: str) -> None:
    assert SslPrincipalMapper(RULES).name(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("RULE:CN=(.*),O=(.*)/$1$4@$2/", "CN=a,O=b", "a$4@b"),
        ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
        ("RULE:CN=(.*)/$0!/", "CN=a", "CN=a!"),
        (r"RULE:CN=(.*)/\$1/", "CN=a", "$1"),
        (r"RULE:CN=(\w+)\/(\w+)/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:CN=(a)?(b)/$1$2/", "CN=b", "b"),
        ("RULE:CN=(?<who>.*)/$1/U", "CN=a", "A"),
        ("RULE:CN=(?<who>.*)/${who}/", "CN=a", "a"),
        ("RULE:CN=(.*)/$9$1/", "CN=a", "$9a"),
        ("RULE:CN=(.*)/a$01b/", "CN=A", "aAb"),
        (r"RULE:CN=(.*)/$1\\/", "CN=a", "a\\"),
        ("RULE:a,b/x/", "a,b", "x"),
        ("RULE:/x/", "", "x"),
        (",, DEFAULT ,", "CN=a", "CN=a"),
        ("RULE:CN=a/b/L,DEFAULT", "CN=A", "CN=A"),
    ],
)
def test_replacements_are_made_as_java_makes_them(rules: str, subject: str, name: str) -> None:
    assert SslPrincipalMapper(rules).name(subject) == name


@pytest.mark.parametrize("rules", ["", "RULE:CN=b/$0/", "RULE:CN=/$0/"])
def test_a_certificate_that_fits_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(NoMatchingRule):
        SslPrincipalMapper(rules).name("CN=a")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULTS",
        "RULE:",
        "RULE:CN=a/b",
        "RULE:(/b/",
        "RULE:a/b/X",
        "RULE:a/b/L/",
        "DEFAULT RULE:a/b/",
    ],
)
def test_text_that_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        SslPrincipalMapper(rules)


@pytest.mark.parametrize("replacement", ["${who}", "$x", "$", "$1"])
def test_a_reference_to_nothing_is_refused_at_once(replacement: str) -> None:
    """Kafka accepts it, and then refuses all clients."""
    rules = f"RULE:CN=.*/{replacement}/"
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        SslPrincipalMapper(rules)
