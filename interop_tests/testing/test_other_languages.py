"""Runs the tests of docs/how-to/test-from-any-language.md, each with a client of its language."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from interop_tests.cli.pages import blocks, section, text_of
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.programs import OTHERS, build_once, kafkajs_program
from interop_tests.harness.releases import COMPILER, JAVA_FLAGS

PAGE = text_of("docs/how-to/test-from-any-language.md")
TIME_LIMIT_S = 240

pytestmark = pytest.mark.needs_control


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With the command on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "kafkacompat"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kafkacompat "$@"\n')
    command.chmod(0o755)
    return os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}


def written(folder: Path, language: str, name: str) -> None:
    (program,) = blocks(PAGE, language)
    assert program.startswith(f"// {name}\n")
    (folder / name).write_text(program)


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_S
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_command(tmp_path: Path, environment: dict[str, str]) -> None:
    (line,) = blocks(section(PAGE, "## Start it"))
    (shown,) = blocks(section(PAGE, "## Start it"), "json")
    process = subprocess.Popen(
        shlex.split(line), cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        info = json.loads(process.stdout.readline())
        assert info.keys() == json.loads(shown).keys()
        bearer = {"Authorization": f"Bearer {info['token']}"}
        request = urllib.request.Request(f"{info['control']}/end_test", b"{}", bearer)
        assert json.loads(urllib.request.urlopen(request, timeout=20).read()) == {}
        rest, _ = process.communicate(timeout=TIME_LIMIT_S)
        assert (process.returncode, rest) == (0, b"")
    finally:
        process.kill()
        process.communicate()


def test_java(tmp_path: Path, environment: dict[str, str]) -> None:
    java, maven = require_program("java"), require_program("mvn")
    jars = build_once(
        "testserver_java",
        [Path(__file__).with_name("java") / "pom.xml"],
        lambda folder: [
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"]
        ],
    )
    written(tmp_path, "java", "OrdersTest.java")
    classpath = os.pathsep.join(map(str, sorted((jars / "lib").glob("*.jar"))))
    compiler = [java, *JAVA_FLAGS, "-cp", f"{jars}/lib/*", COMPILER]
    run(
        [*compiler, "-17", "-nowarn", "-proc:none", "-cp", classpath, "OrdersTest.java"],
        tmp_path,
        environment,
    )
    launcher = [java, *JAVA_FLAGS, "-cp", f"{jars}/lib/*", "org.junit.platform.console.ConsoleLauncher"]
    said = run(
        [*launcher, "execute", "--disable-banner", "-cp", ".", "--select-class", "OrdersTest"],
        tmp_path,
        environment,
    )
    assert "2 tests successful" in said


def test_javascript(tmp_path: Path, environment: dict[str, str]) -> None:
    node, main = kafkajs_program()
    (tmp_path / "node_modules").symlink_to(Path(main).with_name("node_modules"))
    written(tmp_path, "js", "orders.test.js")
    said = run([node, "--test", "--test-reporter=tap", "orders.test.js"], tmp_path, environment)
    assert "\n# pass 2\n# fail 0\n" in said


def test_go(tmp_path: Path, environment: dict[str, str]) -> None:
    go = require_program("go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(OTHERS / "franz_go" / name, tmp_path)
    written(tmp_path, "go", "orders_test.go")
    said = run([go, "test", "-trimpath", "-mod=mod", "-v", "."], tmp_path, environment)
    assert said.count("--- PASS") == 2
