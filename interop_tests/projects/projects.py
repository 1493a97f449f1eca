"""Projects that test against a Kafka, and how their own tests are run from their packages, unmodified but for the address.

What the package of a project lacks of its tests is in `parts`. A project says which settings its own runs give to the broker.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from interop_tests.harness.kafka_jars import MissingTool, require_program
from interop_tests.harness.programs import build_once
from interop_tests.harness.releases import COMPILER, JAVA_FLAGS

PARTS = Path(__file__).with_name("parts")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
Outcomes = dict[str, str]
"""PASSED, FAILED or SKIPPED by the name of a test."""


@dataclass(frozen=True, slots=True)
class Project:
    name: str
    settings: Mapping[str, str]
    """Of the broker, as in the project's own runs."""
    run: Callable[[str, tuple[str, ...], Path], Outcomes]
    """Run tests at an address, all of them if no name is given, with a folder for what they write."""
    quick: tuple[str, ...]
    """The tests that run with ours. The others take minutes."""
    fails: Mapping[str, str]
    """Tests that fail on Apache Kafka 4.4 as well, and why."""
    starts_its_own: bool = False
    """Its tests start a cluster each, which is ours, by the control API. They are run with no address."""


def kafka_python_sources() -> Path:
    """The folder of the sources, with what the package lacks."""
    parts = [PARTS / "kafka_python" / name for name in ("requirement.txt", "service.py", "__init__.py")]
    name = "kafka_python-3.0.12"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    folder = build_once(
        "project-kafka-python",
        parts,
        lambda folder: [
            [*pip, "--no-binary", "kafka-python", "--require-hashes", "-r", "requirement.txt"],
            ["tar", "xzf", f"{name}.tar.gz"],
            ["cp", "service.py", "__init__.py", f"{name}/test"],
        ],
    )
    return folder / name


def run_kafka_python(bootstrap: str, names: tuple[str, ...], folder: Path) -> Outcomes:
    sources = kafka_python_sources()
    results = folder / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:kafkacompat"]
    # The options of the project need a plugin for time limits.
    command += ["-o", "addopts=", "--tb=short", f"--junitxml={results}"]
    environment = {
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": "4.3.1",  # the newest that it knows
        "KAFKA_ROOT": str(folder),  # must be there; its scripts would start a Kafka
        "PYTHONPATH": str(sources),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    _run([*command, *(names or ["test/integration"])], sources, environment)
    return {
        f"{case.get('classname')}::{case.get('name')}".replace(".", "/"): _outcome(case)
        for case in ElementTree.parse(results).iter("testcase")
    }


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return FAILED
    return PASSED if case.find("skipped") is None else SKIPPED


def _go_tests(module: str, version: str, checksum: str, package: str) -> tuple[Path, Path]:
    """The program with the tests of a package, and the package's folder. The module's own go.sum holds what it needs."""
    go = require_program("go")
    told = subprocess.run(
        [go, "mod", "download", "-json", f"{module}@{version}"], capture_output=True, text=True, check=False
    )
    if told.returncode:
        raise MissingTool(f"{module}: {told.stdout}{told.stderr}")
    found = json.loads(told.stdout)
    if found["Sum"] != checksum:
        raise MissingTool(f"{module} {version} is not what it was: {found['Sum']}")
    sources = Path(found["Dir"])
    name = f"project-{module.replace('/', '-')}-{version}"
    folder = build_once(
        name,
        [],
        lambda folder: [[go, "test", "-C", str(sources), "-c", "-o", str(folder / "tests"), f"./{package}"]],
    )
    return folder / "tests", sources / package


def run_franz_go(bootstrap: str, names: tuple[str, ...], folder: Path) -> Outcomes:
    environment = {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"}
    return _run_go(franz_go_tests(), names, environment)


def franz_go_tests() -> tuple[Path, Path]:
    checksum = "h1:RHe35s34pKefMLyL+ZYJ6mQVtfFZz4zHDHVkTyACur0="
    return _go_tests("github.com/twmb/franz-go", "v1.22.3", checksum, "pkg/kgo")


def run_watermill(bootstrap: str, names: tuple[str, ...], folder: Path) -> Outcomes:
    return _run_go(watermill_tests(), names, {"WATERMILL_TEST_KAFKA_BROKERS": bootstrap})


def watermill_tests() -> tuple[Path, Path]:
    checksum = "h1:xK+VLDjYvBrRZDaFZ7WSqiNmZ9lcDG5RIilFVDZOVyQ="
    return _go_tests("github.com/ThreeDotsLabs/watermill-kafka/v3", "v3.0.6", checksum, "pkg/kafka")


def _run_go(tests: tuple[Path, Path], names: tuple[str, ...], environment: dict[str, str]) -> Outcomes:
    program, folder = tests
    chosen = (
        ["-test.run", "|".join("/".join(f"^{part}$" for part in name.split("/")) for name in names)]
        if names
        else []
    )
    said = _run([str(program), "-test.v", "-test.timeout", f"{TIMEOUT_S}s", *chosen], folder, environment)
    words = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
    return {
        name: words[word] for word, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", said, re.MULTILINE)
    }


TIMEOUT_S = 1200


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What a command says. A failed test is no failure of the command."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S + 60,
    )
    if "panic: " in done.stdout or done.returncode > 1 or done.returncode < 0:
        raise AssertionError(done.stdout[-5000:])
    return done.stdout


STREAMS_TESTS = "org.apache.kafka.streams.integration."


def streams_tests() -> Path:
    """The folder with the tests of Kafka Streams and what they need, and in `own` the cluster that they start."""
    parts = [PARTS / "kafka_streams" / name for name in ("pom.xml", "EmbeddedKafkaCluster.java")]
    java, maven = require_program("java"), require_program("mvn")
    compiled = ["-d", "own", "EmbeddedKafkaCluster.java"]
    return build_once(
        "project-kafka-streams",
        parts,
        lambda folder: [
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"],
            [java, "-cp", "lib/*", COMPILER, "-8", "-nowarn", "-proc:none", "-extdirs", "lib", *compiled],
        ],
    )


def run_kafka_streams(bootstrap: str, names: tuple[str, ...], folder: Path) -> Outcomes:
    tests = streams_tests()
    chosen = [f"--select-class={STREAMS_TESTS}{name}" for name in names] or [
        f"--select-package={STREAMS_TESTS.removesuffix('.')}"
    ]
    # Its own cluster stands before the one of the published tests.
    launcher = [require_program("java"), *JAVA_FLAGS, "-cp", f"{tests}/own:{tests}/lib/*"]
    launcher += [
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--details=none",
    ]
    _run(
        [*launcher, f"--reports-dir={folder}", *chosen],
        folder,
        {"KAFKACOMPAT_COMMAND": f"{sys.executable} -m kafkacompat"},
    )
    return {
        f"{str(case.get('classname')).removeprefix(STREAMS_TESTS)}::{case.get('name')}": _outcome(case)
        for case in ElementTree.parse(folder / "TEST-junit-jupiter.xml").iter("testcase")
    }


OWN_KAFKA = "starts a Kafka of its own with the scripts of Kafka's release"
PROJECTS = {
    each.name: each
    for each in (
        Project(
            "kafka-python",
            {
                # The tests assign replicas to node 0.
                "node.id": "0",
                "num.partitions": "4",
                "group.min.session.timeout.ms": "1000",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "true",
                "super.users": "User:ANONYMOUS",
            },
            run_kafka_python,
            (
                "test/integration/test_producer_integration.py",
                "test/integration/test_consumer_integration.py::test_kafka_consumer",
                "test/integration/test_consumer_integration.py::test_kafka_consumer__offset_commit_resume",
                "test/integration/test_consumer_integration.py::test_kafka_consumer_offsets_for_time",
                "test/integration/test_admin_integration.py::test_create_partitions",
                "test/integration/test_admin_integration.py::test_create_describe_delete_acls",
            ),
            {
                "test/integration/test_ssl_integration/TestSSLConnection::test_ssl_handshake": OWN_KAFKA,
                "test/integration/test_ssl_integration/TestSSLConnection::test_legacy_kafka_client_ssl": OWN_KAFKA,
            },
        ),
        Project(
            "franz-go",
            {},
            run_franz_go,
            ("TestIssue769", "TestPauseIssueOct2023", "TestShareGroupOffsetsAdmin", "TestClient_Produce"),
            {},
        ),
        Project(
            "watermill-kafka",
            {},
            run_watermill,
            (
                "TestPublishSubscribe_ordered/TestPublishSubscribe",
                "TestPublishSubscribe_ordered/TestConsumerGroups",
                "TestPublishSubscribe_ordered/TestResendOnError",
                "TestPublishSubscribe_AutoCommitDisabled/TestConcurrentClose",
            ),
            {},
        ),
        Project(
            "kafka-streams",
            {},
            run_kafka_streams,
            ("GlobalKTableIntegrationTest", "InternalTopicIntegrationTest"),
            {},
            starts_its_own=True,
        ),
    )
}
