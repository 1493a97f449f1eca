"""sasl.kerberos.principal.to.local.rules: the name of a user from a Kerberos principal.

Pure. A rule is `DEFAULT`, which takes the first component of principals of the default realm, or
`RULE:[n:format](match)s/from/to/g` with L or U for lower or upper case. It applies to principals with n components: in
the format, $0 is the realm and $1 and $2 are the components. The first rule that applies decides. As in Apache Kafka,
a principal has two components at most, and the setting is cut at every comma.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kafkacompat.config import ConfigError
from kafkacompat.security.java_patterns import Replacement, compiled
from kafkacompat.security.sasl_server import Nameless

SETTING = "sasl.kerberos.principal.to.local.rules"
DEFAULT = "DEFAULT"
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"RULE:\[([0-9]*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?",
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE = re.compile("[/@]")
_INT_MAX = 2**31 - 1


class MalformedPrincipal(Nameless):
    """The text is no Kerberos principal with at most two components."""


class NoMatchingRule(Nameless):
    """No rule gives the principal a name, or a rule gives it one that is not simple."""


class KerberosPrincipal(NamedTuple):
    primary: str
    """The user, or the service."""
    host: str | None
    realm: str | None
    """None: the text had none. Such a principal is a name already."""

    @classmethod
    def parse(cls, text: str) -> KerberosPrincipal:
        """Raises MalformedPrincipal."""
        found = _PRINCIPAL.fullmatch(text)
        if found is not None:
            return cls(*found.groups())
        if "@" in text:
            raise MalformedPrincipal(f"Malformed Kerberos name: {text}")
        return cls(text, None, None)


class KerberosShortNamer:
    """The rules of one listener."""

    def __init__(self, rules: Sequence[str] = (DEFAULT,), default_realm: str = "") -> None:
        """Raises ConfigError for an invalid rule."""
        self._rules = [_parsed(rule) for rule in rules]
        self._default_realm = default_realm

    def name_of(self, text: str) -> str:
        """The name of a principal. Raises Nameless."""
        principal = KerberosPrincipal.parse(text)
        if principal.realm is None:
            return principal.primary
        hosts = () if principal.host is None else (principal.host,)
        parameters = (principal.realm, principal.primary, *hosts)
        for rule in self._rules:
            name = self._default(parameters) if rule is None else rule.apply(parameters)
            if name is not None:
                if _NOT_SIMPLE.search(name):
                    raise NoMatchingRule(f"Non-simple name {name} after a rule of {SETTING}")
                return name if rule is None else rule.in_case(name)
        raise NoMatchingRule(f"No rules apply to {text}")

    def _default(self, parameters: Sequence[str]) -> str | None:
        return parameters[1] if parameters[0] == self._default_realm else None


class _Rule:
    def __init__(self, text: str, found: re.Match[str]) -> None:
        count, self._format, match, pattern, replacement, repeats, self._case = found.groups()
        if not count or len(count) > 10 or int(count) > _INT_MAX:
            raise ConfigError(SETTING, text, "a rule begins with RULE:[, a number of components and a colon")
        self._count = int(count)
        self._match = None if match is None else compiled(SETTING, match)
        self._pattern = None if pattern is None else compiled(SETTING, pattern)
        if self._pattern is not None:
            self._replacement = Replacement(SETTING, replacement, self._pattern)
        self._replaced_at_most = 0 if repeats else 1

    def apply(self, parameters: Sequence[str]) -> str | None:
        """`parameters`: the realm, then the components."""
        if len(parameters) - 1 != self._count:
            return None
        base = _PARAMETER.sub(lambda found: self._parameter(found[1], parameters), self._format)
        if self._match is not None and not self._match.fullmatch(base):
            return None
        if self._pattern is None:
            return base
        return self._pattern.sub(self._replacement, base, count=self._replaced_at_most)

    def in_case(self, name: str) -> str:
        return name.lower() if self._case == "L" else name.upper() if self._case == "U" else name

    def _parameter(self, digits: str, parameters: Sequence[str]) -> str:
        if not digits or int(digits) >= len(parameters):
            raise NoMatchingRule(f"there is no parameter ${digits} for {self._format} of {SETTING}")
        return parameters[int(digits)]


def _parsed(text: str) -> _Rule | None:
    """None for DEFAULT."""
    if text == DEFAULT:
        return None
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(SETTING, text, "expected DEFAULT or RULE:[n:format](match)s/from/to/g with L or U")
    return _Rule(text, found)
