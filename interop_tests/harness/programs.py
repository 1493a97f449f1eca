"""Builds the programs of others/ once, into the checkout's cache, and runs them.

A program is built again when a source file has changed. A missing tool raises MissingTool.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interop_tests.harness.kafka_jars import CHECKOUT, download, require_program

OTHERS = CHECKOUT / "interop_tests" / "others"
CACHE_DIR = CHECKOUT / ".cache" / "others"
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 90


def build_once(name: str, sources: list[Path], build: Callable[[Path], list[list[str]]]) -> Path:
    """The folder .cache/others/<name> with the build of exactly these sources. build returns the commands."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    folder = CACHE_DIR / name
    mark = folder / "built-from"
    folder.mkdir(parents=True, exist_ok=True)
    with open(CACHE_DIR / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == digest:
            return folder
        shutil.rmtree(folder)
        folder.mkdir()
        for source in sources:
            shutil.copy(source, folder)
        for command in build(folder):
            download(command, name, BUILD_TIMEOUT_S, folder)
        mark.write_text(digest)
    return folder


def franz_go_program() -> list[str]:
    """The command of the franz-go program."""
    go = require_program("go")
    source = OTHERS / "franz_go"
    folder = build_once(
        "franz_go",
        [source / name for name in ("main.go", "go.mod", "go.sum")],
        lambda folder: [[go, "build", "-trimpath", "-o", str(folder / "franz_go"), "."]],
    )
    return [str(folder / "franz_go")]


def franz_go_copier(program: Path, modules: Path = OTHERS / "franz_go") -> list[str]:
    """The command of a program with one source file, built with the release of franz-go that the others use, or with
    the one in another folder."""
    go = require_program("go")
    folder = build_once(
        program.stem,
        [program, *(modules / name for name in ("go.mod", "go.sum"))],
        lambda folder: [[go, "build", "-trimpath", "-o", str(folder / "copier"), "."]],
    )
    return [str(folder / "copier")]


def registers_program() -> list[str]:
    """The command of the program that uses porcupine to check whether registers are linearizable."""
    go = require_program("go")
    source = CHECKOUT / "interop_tests" / "histories" / "registers"
    folder = build_once(
        "registers",
        [source / name for name in ("main.go", "go.mod", "go.sum")],
        lambda folder: [[go, "build", "-trimpath", "-o", str(folder / "registers"), "."]],
    )
    return [str(folder / "registers")]


def sarama_program(release: str) -> list[str]:
    """The command of the Sarama program, with the release in go.mod ("new") or in old.mod ("old")."""
    go = require_program("go")
    source = OTHERS / "sarama"
    modules = {"new": "go", "old": "old"}[release]
    folder = build_once(
        f"sarama_{release}",
        [
            source / name
            for name in ("main.go", "security.go", "go.mod", "go.sum", f"{modules}.mod", f"{modules}.sum")
        ],
        lambda folder: [
            [go, "build", "-trimpath", f"-modfile={modules}.mod", "-o", str(folder / "sarama"), "."]
        ],
    )
    return [str(folder / "sarama")]


def kafkajs_program() -> list[str]:
    """The command of the kafkajs program."""
    node, npm = require_program("node"), require_program("npm")
    source = OTHERS / "kafkajs"
    folder = build_once(
        "kafkajs",
        [source / name for name in ("main.js", "package.json", "package-lock.json")],
        lambda folder: [[npm, "ci", "--omit=dev", "--no-audit", "--no-fund", "--ignore-scripts"]],
    )
    return [node, str(folder / "main.js")]


def run_program(command: list[str], *arguments: str) -> dict[str, Any]:
    """Run a program to its end. Returns the last JSON object that it printed. AssertionError if it failed."""
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env=os.environ | {"KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def moto_server() -> tuple[list[str], dict[str, str]]:
    """The command of moto's server, and its environment. It is installed in a folder of its own, because its requirements are not
    those of this checkout."""
    lock = CHECKOUT / "requirements-moto.lock"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    folder = build_once(
        "moto",
        [lock],
        lambda folder: [
            [*pip, "--only-binary", ":all:", "--target", str(folder / "site"), "-r", str(folder / lock.name)]
        ],
    )
    return [sys.executable, "-m", "moto.server"], {**os.environ, "PYTHONPATH": str(folder / "site")}
