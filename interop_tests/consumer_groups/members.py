"""Members of groups of the consumer protocol (KIP-848) on stock clients: one process a member, so that a kill is real. Members
that nobody kills may share a JVM (JavaMembers), because the start of a JVM costs more than all that a member does.

The programs of clients/ take their settings as a JSON object in the only argument: bootstrap, group, client (its id),
topic or regex, and perhaps assignor and instance. They subscribe and poll all the time, without automatic commits, from
the earliest offset if nothing is committed. The program on Kafka's own consumer also takes the protocol, the strategy of
the classic protocol, and commits: then it commits what it reads. A command is a line of JSON on standard input: state,
forget (what was read), commit (how: sync or async, offsets by partition) and close. The answer to each is a line: the
partitions that the member owns, the offsets that it read by partition, and its last error.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop_tests.harness.java_tools import HEAP, LOGGING
from interop_tests.harness.json_process import JsonProcess
from interop_tests.harness.kafka_jars import kafka_classpath, require_program
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.programs import build_once, franz_go_copier

CLIENTS = Path(__file__).resolve().parent / "clients"
COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"
JAVA, CONFLUENT, FRANZ_GO, PLATFORMATIC = "java", "confluent-kafka", "franz-go", "platformatic"


def java_member() -> list[str]:
    """The command of the member on Kafka's own consumer."""
    return java_program("java_member", CLIENTS / "java" / "JavaMember.java")


def java_program(name: str, program: Path) -> list[str]:
    """The command of a program with one source file, compiled with Kafka's jars."""
    classes = compiled(name, program)
    *options, classpath = kafka_java(HEAP, LOGGING)
    return [*options, f"{classpath}:{classes}", program.stem]


def compiled(name: str, program: Path) -> Path:
    """The folder with the classes of one source file, compiled with Kafka's jars."""
    java, maven = require_program("java"), require_program("mvn")
    compiler = ["-cp", "lib/*", COMPILER, "--release", "17", "-nowarn", "-proc:none"]
    folder = build_once(
        name,
        [program, CLIENTS / "java" / "pom.xml"],
        lambda folder: [
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"],
            [java, *compiler, "-classpath", kafka_classpath(), "-d", "classes", program.name],
        ],
    )
    return folder / "classes"


def platformatic_member() -> list[str]:
    """The command of the member on @platformatic/kafka."""
    node, npm = require_program("node"), require_program("npm")
    source = CLIENTS / "platformatic"
    folder = build_once(
        "platformatic",
        [source / name for name in ("main.mjs", "package.json", "package-lock.json")],
        lambda folder: [[npm, "ci", "--omit=dev", "--no-audit", "--no-fund", "--ignore-scripts"]],
    )
    return [node, str(folder / "main.mjs")]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    JAVA: java_member,
    CONFLUENT: lambda: [sys.executable, str(CLIENTS / "confluent_member.py")],
    FRANZ_GO: lambda: franz_go_copier(CLIENTS / "franz_go_member.go"),
    PLATFORMATIC: platformatic_member,
}


@dataclass(frozen=True)
class State:
    """What a member owns ("topic-partition"), what it read, and its last error."""

    owned: frozenset[str]
    read: dict[str, list[int]]
    error: str | None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> State:
        return cls(frozenset(answer["owned"]), answer["read"], answer["error"])


class JavaMembers(JsonProcess):
    """One JVM with members by their names. Their settings are those of the programs, see above."""

    def __init__(self, log: Path) -> None:
        super().__init__(java_member(), log, None)

    def start(self, name: str, **settings: str | None) -> None:
        self.tell("start", member=name, settings=settings)

    def ask_member(self, name: str, do: str, **more: Any) -> State:
        return State.of(self.ask(do, member=name, **more))


class Commands(ABC):
    """What every member can be told."""

    @abstractmethod
    def ask(self, do: str, **more: Any) -> State: ...

    @property
    def state(self) -> State:
        """The member's present state. An error fails the test."""
        state = self.ask("state")
        assert state.error is None, state.error
        return state

    def commit(self, how: str, offsets: Mapping[int, int]) -> None:
        """Commit these offsets by partition. Returns when the coordinator has answered."""
        self.ask("commit", how=how, offsets={str(partition): offset for partition, offset in offsets.items()})


class GuestMember(Commands):
    """A member in a JVM of several."""

    def __init__(self, members: JavaMembers, **settings: str | None) -> None:
        self._members = members
        self._name = f"{settings['group']} {settings['client']}"
        self._is_closed = False
        members.start(self._name, **settings)

    def ask(self, do: str, **more: Any) -> State:
        return self._members.ask_member(self._name, do, **more)

    def close(self) -> State:
        """Leave as the client leaves."""
        self._is_closed = True
        return self.ask("close")

    def end(self) -> None:
        """The test ends."""
        if not self._is_closed:
            self.close()


class Member(Commands):
    """One process. Its settings are those of the programs, see above."""

    def __init__(self, kind: str, log: Path, **settings: str | None) -> None:
        self._process = JsonProcess(COMMANDS[kind](), log, settings)

    def ask(self, do: str, **more: Any) -> State:
        return State.of(self._process.ask(do, **more))

    def close(self) -> State:
        """Leave as the client leaves. The process ends."""
        state = self.ask("close")
        self._process.wait()
        return state

    def kill(self) -> None:
        """kill -9: nobody hears of it."""
        self._process.kill()

    end = kill
    """The test ends."""
