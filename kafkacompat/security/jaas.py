"""Parses `sasl.jaas.config`: login modules with their options, each as `Module required key="value" ...;`.

Pure. Words end as in java.io.StreamTokenizer, which Apache Kafka uses. Options may contain passwords, so no error and
no printed form has a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

CONTROL_FLAGS = frozenset(("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"))
NOT_ALLOWED = frozenset(
    ("com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule")
)
"""Classes that Apache Kafka refuses, because they load data from places that others control."""
PLAIN_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KERBEROS_LOGIN_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
OAUTHBEARER_LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_ESCAPES = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}
_OCTAL = frozenset("01234567")
_DIGITS = frozenset("0123456789")
_LINE_ENDS = frozenset("\r\n")


class JaasError(Exception):
    """The text is invalid. The message has the reason, but never an option's value."""


class LoginModule(NamedTuple):
    """One entry. Its options are not part of its printed form."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, {len(self.options)} options)"


class _Token(NamedTuple):
    """A word or a quoted string has text. Numbers and punctuation have none; `sign` is the character."""

    text: str | None
    sign: str = ""


def sole_login_module(text: str) -> LoginModule:
    """The only entry of a setting. Raises JaasError."""
    modules = parse_jaas(text)
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    module = modules[0]
    if module.name.strip() in NOT_ALLOWED:
        raise JaasError(f"{module.name.strip()} is not allowed")
    return module


def parse_jaas(text: str) -> tuple[LoginModule, ...]:
    """All entries, at least one. Raises JaasError."""
    tokens = _tokens(text)
    modules = tuple(_entry(first, tokens) for first in tokens)
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    return modules


def parse_jaas_file(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The sections of a JAAS file by name, each as `name { entries };`. Raises JaasError."""
    tokens = _tokens(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    for name in tokens:
        opening = next(tokens, None)
        if not name.text or opening is None or opening.sign != "{":
            raise JaasError("a section of a JAAS file begins with its name and {")
        modules: list[LoginModule] = []
        for first in tokens:
            if first.sign == "}":
                break
            modules.append(_entry(first, tokens))
        end = next(tokens, None)
        if end is None or end.sign != ";":
            raise JaasError(f"the section {name.text} of a JAAS file does not end with }};")
        sections[name.text] = tuple(modules)
    return sections


def _entry(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, None)
    if flag is None:
        raise JaasError("Login module control flag not specified in JAAS config")
    if flag.text is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.text.upper() not in CONTROL_FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    for token in tokens:
        if token.sign == ";":
            if not first.text:
                raise JaasError("Login module not specified in JAAS config")
            return LoginModule(first.text, options)
        equals, value = next(tokens, None), None
        if equals is not None and equals.sign == "=":
            value = next(tokens, None)
        if value is None or value.text is None:
            raise JaasError("Value not specified for a key in JAAS config")
        if token.text is not None:
            options[token.text] = value.text
    raise JaasError("JAAS config entry not terminated by semi-colon")


def _tokens(text: str) -> Iterator[_Token]:
    position, end = 0, len(text)
    while position < end:
        character = text[position]
        if character <= " ":
            position += 1
        elif character == "/":
            position = _after_comment(text, position)
        elif character in "\"'":
            token, position = _quoted(text, position)
            yield token
        elif character in _DIGITS or character in "-.":
            token, position = _number(text, position)
            yield token
        elif _is_in_word(character):
            start = position
            while position < end and _is_in_word(text[position]):
                position += 1
            yield _Token(text[start:position])
        else:
            position += 1
            yield _Token(None, character)


def _is_in_word(character: str) -> bool:
    return (
        "a" <= character <= "z"
        or "A" <= character <= "Z"
        or "0" <= character <= "9"
        or character in "-._$"
        or character >= "\xa0"
    )


def _after_comment(text: str, start: int) -> int:
    """The position after a comment. A single slash begins a comment like two do. The character after that slash
    belongs to it, even a line end."""
    if text.startswith("/*", start):
        closed = text.find("*/", start + 2)
        return len(text) if closed < 0 else closed + 2
    position = min(start + 2, len(text))
    while position < len(text) and text[position] not in _LINE_ENDS:
        position += 1
    return position


def _number(text: str, start: int) -> tuple[_Token, int]:
    """A number, which is not a word: a value that begins with a digit needs quotes."""
    position = start
    if text[position] == "-":
        position += 1
        if position == len(text) or not (text[position] in _DIGITS or text[position] == "."):
            return _Token(None, "-"), position
    seen_dot = False
    while position < len(text) and (text[position] in _DIGITS or (text[position] == "." and not seen_dot)):
        seen_dot = seen_dot or text[position] == "."
        position += 1
    return _Token(None), position


def _quoted(text: str, start: int) -> tuple[_Token, int]:
    """Text up to the same quote. A line end closes it if the quote is missing."""
    quote, position = text[start], start + 1
    found: list[str] = []
    while position < len(text):
        character = text[position]
        if character == quote:
            return _Token("".join(found)), position + 1
        if character in _LINE_ENDS:
            break
        if character == "\\" and position + 1 < len(text):
            character, position = _escaped(text, position + 1)
        else:
            position += 1
        found.append(character)
    return _Token("".join(found)), position


def _escaped(text: str, start: int) -> tuple[str, int]:
    """The character for a backslash escape, and the position after it."""
    character = text[start]
    if character not in _OCTAL:
        return _ESCAPES.get(character, character), start + 1
    most = 3 if character <= "3" else 2
    position = start
    while position < len(text) and position - start < most and text[position] in _OCTAL:
        position += 1
    return chr(int(text[start:position], 8)), position
