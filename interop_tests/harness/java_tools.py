"""Kafka's command-line tools, called as their shell scripts call them: a Java class, arguments, standard input.

`KafkaTools.run` sends a tool to one long-lived JVM (java_tools/ToolServer.java), because the start of a JVM takes
longer than most tools. If the installed Java has no compiler for that program, every tool gets a new JVM. If the program
does not start for another reason, the test fails, because a suite of new JVMs takes many minutes longer.
`KafkaTools.spawn` always starts a new JVM, for tools that run until they are stopped.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interop_tests.harness.kafka_jvm import kafka_java

HARNESS = Path(__file__).resolve().parent
TOOL_SERVER = HARNESS.parent / "java_tools" / "ToolServer.java"
LOGGING = f"-Dlog4j2.configurationFile={HARNESS / 'tools_log4j2.properties'}"
TOOLS = "org.apache.kafka.tools."
HEAP = "-Xmx256m"
TIMEOUT_S = 60.0
START_TIMEOUT_S = 60.0
NO_COMPILER = "jdk.compiler"
"""What Java names when it cannot run a source file."""


def class_name(tool: str) -> str:
    """The full class name of a tool. A name that does not start with kafka. is in org.apache.kafka.tools."""
    return tool if tool.startswith(("kafka.", "org.")) else TOOLS + tool


def encode(text: str) -> str:
    return "=" + base64.b64encode(text.encode()).decode()


def decode(word: str) -> str:
    return base64.b64decode(word[1:]).decode(errors="replace")


@dataclass(frozen=True)
class ToolOutput:
    """The output of a finished tool."""

    tool: str
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output that are not empty."""
        return [line for line in self.out.splitlines() if line.strip()]

    def rows(self, *header: str) -> list[dict[str, str]]:
        """The tables under headings that start with these columns: a dict for each row. Columns end at white space."""
        found: list[dict[str, str]] = []
        columns: list[str] | None = None
        for line in self.out.splitlines():
            words = line.split()
            if tuple(words[: len(header)]) == header:
                columns = words
            elif columns is not None and len(words) >= len(columns):
                found.append(dict(zip(columns, words, strict=False)))
            elif not words:
                continue
            else:
                columns = None
        return found

    def __str__(self) -> str:
        return f"{self.tool} ended with {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


# What DumpLogSegments prints for a damaged file. It also reports that the first record of a segment follows a gap
# after offset -1, even for Apache Kafka's segments. That is not a fault.
DUMP_FAULT = re.compile(
    r"mismatch|isvalid: false|Found timestamp|Non-consecutive|Could not|Index position|exception|\berror",
    re.I,
)
FIRST_RECORD_NOTE = re.compile(r"^Non-consecutive offsets in .*\n  -1 is followed by \d+\n(?!  \d)", re.M)


def dump_faults(output: ToolOutput) -> list[str]:
    """The lines of DumpLogSegments that report a fault."""
    lines = [
        line for text in (output.out, output.err) for line in FIRST_RECORD_NOTE.sub("", text).splitlines()
    ]
    return [line for line in lines if DUMP_FAULT.search(line) and not line.startswith(("|", "Dumping"))]


def java_command() -> list[str]:
    """The command `java` with Kafka's jars. Append a class or a source file."""
    return kafka_java(HEAP, LOGGING)


def tool_command(tool: str, *arguments: str) -> list[str]:
    """The command that runs a tool in a new JVM."""
    return [*java_command(), class_name(tool), *arguments]


class KafkaTools:
    """Runs tools. close() ends the JVM that it keeps."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._has_server = True
        self._lock = threading.Lock()

    def run(
        self,
        tool: str,
        *arguments: str,
        stdin: str = "",
        status: int | None = 0,
        timeout_s: float = TIMEOUT_S,
    ) -> ToolOutput:
        """Run a tool to its end. AssertionError if its exit status is different (None: any is accepted) or it takes
        too long."""
        name = class_name(tool)
        with self._lock:
            server = self._running_server()
            if server is None:
                output = self._run_alone(name, arguments, stdin, timeout_s)
            else:
                output = self._ask(server, name, arguments, stdin, timeout_s)
        assert status is None or output.status == status, str(output)
        return output

    @contextlib.contextmanager
    def spawn(self, tool: str, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Start a tool in a new JVM, with its output in a file. It is killed at the end of the block."""
        with open(log, "ab") as sink:
            process = subprocess.Popen(
                tool_command(tool, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End the JVM."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def _run_alone(self, name: str, arguments: tuple[str, ...], stdin: str, timeout_s: float) -> ToolOutput:
        done = subprocess.run(
            tool_command(name, *arguments), input=stdin, capture_output=True, text=True, timeout=timeout_s
        )
        return ToolOutput(name, done.returncode, done.stdout, done.stderr)

    def _running_server(self) -> subprocess.Popen[bytes] | None:
        if self._server is None and self._has_server:
            with tempfile.TemporaryFile() as said:
                process = subprocess.Popen(
                    [*java_command(), str(TOOL_SERVER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                )
                self._server = process
                if self._read_line(process, START_TIMEOUT_S).strip() != "ready":
                    self.close()
                    said.seek(0)
                    why = said.read().decode(errors="replace")
                    assert NO_COMPILER in why, f"{TOOL_SERVER.name} does not start:\n{why}"
                    self._has_server = False
        return self._server

    def _ask(
        self,
        server: subprocess.Popen[bytes],
        name: str,
        arguments: tuple[str, ...],
        stdin: str,
        timeout_s: float,
    ) -> ToolOutput:
        assert server.stdin is not None
        words = [encode(name), encode(stdin), *map(encode, arguments)]
        server.stdin.write(" ".join(words).encode() + b"\n")
        server.stdin.flush()
        reply = self._read_line(server, timeout_s).split()
        if len(reply) != 3:
            self.close()
            raise AssertionError(f"{name} {' '.join(arguments)} did not end within {timeout_s} s")
        return ToolOutput(name, int(reply[0]), decode(reply[1]), decode(reply[2]))

    @staticmethod
    def _read_line(process: subprocess.Popen[bytes], timeout_s: float) -> str:
        """A line of the tool's output. If the tool ends or prints nothing for too long: the part that has arrived."""
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        data = bytearray()
        descriptor = process.stdout.fileno()
        while not data.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left)[0]:
                return ""
            part = os.read(descriptor, 1 << 16)
            if not part:
                return ""
            data += part
        return data.decode()
