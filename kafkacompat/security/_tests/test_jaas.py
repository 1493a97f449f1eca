"""The syntax of sasl.jaas.config, as Apache Kafka's JaasConfig reads it."""

from __future__ import annotations

import pytest

from kafkacompat.security.jaas import JaasError, LoginModule, parse_jaas, sole_login_module


def options(text: str) -> dict[str, str]:
    return dict(sole_login_module(f"a.Module required {text};").options)


def test_an_entry_has_a_module_and_options() -> None:
    text = 'org.apache.kafka.common.security.plain.PlainLoginModule required\n username="a" user_b="c d";'
    assert sole_login_module(text) == LoginModule(
        "org.apache.kafka.common.security.plain.PlainLoginModule", {"username": "a", "user_b": "c d"}
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=word", "word"),
        ("k = 'it'", "it"),
        ('k="say \\"yes\\""', 'say "yes"'),
        ('k="a\\tb\\n"', "a\tb\n"),
        ('k="\\101\\60\\4012"', "A0 12"),
        ('k="a;b=c//d"', "a;b=c//d"),
        ('k="été"', "été"),
        ("k=ét$-_.9", "ét$-_.9"),
        ('k="not ended\n', "not ended"),
        ('k="twice" k="last"', "last"),
        ('k="" ', ""),
        ('/* a "comment" */ k=v // another\n', "v"),
        ("k=v / a comment as well\n", "v"),
        ("k=v /\nk=hidden\n", "v"),
        ("k=v //\nk=seen\n", "seen"),
    ],
)
def test_values(text: str, value: str) -> None:
    assert options(text) == {"k": value}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Login module not specified"),
        ("// nothing", "Login module not specified"),
        ("a.Module", "control flag not specified"),
        ("a.Module needed;", "Invalid login module control flag"),
        ("a.Module 'required' k=v", "not terminated"),
        ("a.Module required k=v // ;", "not terminated"),
        ("a.Module required k;", "Value not specified"),
        ("a.Module required k=;", "Value not specified"),
        ("a.Module required k=12secret;", "Value not specified"),
        ("a.Module required k=-x;", "Value not specified"),
        ("a.Module required k", "Value not specified"),
        ("a.M required; b.M required;", "contains 2 login modules"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "is not allowed"),
        ("12 required;", "Login module not specified"),
        ("a.Module ;", "control flag is not available"),
    ],
)
def test_a_text_that_is_no_jaas_configuration_is_refused(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason):
        sole_login_module(text)


@pytest.mark.parametrize(
    "text",
    [
        'a.Module required password="secret"',
        'a.Module required password=1 secret="secret";',
        'a.Module "secret" password="secret";',
        'a.M required password="secret"; b.M required password="secret";',
    ],
)
def test_no_error_tells_a_secret(text: str) -> None:
    with pytest.raises(JaasError) as caught:
        sole_login_module(text)
    assert "secret" not in str(caught.value)


def test_a_printed_jaas_entry_tells_no_secret() -> None:
    assert "secret" not in f"{parse_jaas('a.Module required password=secret;')}"
