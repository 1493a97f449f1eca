"""Rules of sasl.kerberos.principal.to.local.rules give the names that Kafka's own class gives."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

from interop_tests.harness.java_tools import java_command
from kafkacompat.config import ConfigError
from kafkacompat.security._tests.kerberos_cases import INVALID, NAMED, NAMELESS, REALM
from kafkacompat.security.kerberos_names import KerberosShortNamer
from kafkacompat.security.sasl_server import Nameless

SOURCE = Path(__file__).with_name("KerberosNames.java")
JAVA_S = 120
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
Case = tuple[Sequence[str], str]
FORMATS = ("$1", "$1@$0", "$2", "$1/$2", "$1-$2", "$0", "x", "", "$3", "$$1", "$1$")
MATCHES = ("", "", "(.*)", "(a.*)", "(.*@R.*)", "([a-z]+)", "(b|a)", "()", "(.*")
CHANGES = (
    "",
    "",
    "s/a/b/",
    "s/a/b/g",
    "s/(.)(.)/$2$1/",
    "s/@.*//",
    "s/.*/x/",
    "s/x*/-/g",
    "s/[a-c]//g",
    "s/a/",
)
ENDS = ("", "", "/L", "/U", "L", "U", "/", "//")
PRINCIPALS = (
    "alice@R",
    "alice@REALM.TEST",
    "bab/host@R",
    "kafka/h.example@REALM.TEST",
    "Alice",
    "a/b/c@R",
    "a@b@R",
    "@R",
)


def by_kafka(cases: Sequence[Case]) -> list[str]:
    lines = "".join("\t".join((REALM, principal, *rules)) + "\n" for rules, principal in cases)
    command = [*java_command(), str(SOURCE)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=JAVA_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def by_us(case: Case) -> str:
    rules, principal = case
    try:
        namer = KerberosShortNamer(rules, REALM)
    except ConfigError:
        return "invalid"
    try:
        return f"name {namer.name_of(principal)}"
    except Nameless:
        return "nameless"


def some_case(chance: random.Random) -> Case:
    rules = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        parts = (
            chance.choice(each)
            for each in (("0", "1", "1", "2", "2", "3", ""), FORMATS, MATCHES, CHANGES, ENDS)
        )
        count, form, match, change, end = parts
        rule = f"RULE:[{count}:{form}]{match}{change}{end}"
        rules.append("DEFAULT" if chance.random() < 0.2 else rule)
    return rules, chance.choice(PRINCIPALS)


def test_rules_name_whom_kafkas_class_names() -> None:
    seed, count = (random.randrange(1 << 30), 200_000) if SOAK else (1, 5_000)
    chance = random.Random(seed)
    cases: list[Case] = [(rules, principal) for rules, principal, _ in NAMED]
    cases += [*NAMELESS, *(([rule], "alice@R") for rule in INVALID)]
    cases += [some_case(chance) for _ in range(count)]
    theirs = by_kafka(cases)
    ours = [by_us(case) for case in cases]
    assert len(theirs) == len(cases)
    wrong = [
        f"{case}: ours {mine}, Kafka's {other}"
        for case, mine, other in zip(cases, ours, theirs, strict=True)
        if mine != other
    ]
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong[:20])
    assert {each.partition(" ")[0] for each in theirs} == {"name", "nameless", "invalid"}
