"""Builds wheels, installs each into an empty environment, and checks that a client can write to the broker there and read.

`make wheel` runs it, for this interpreter with a compiler and without one, and for each newer CPython of the machine. It checks
four things: the wheel contains all its data files, and its compiled modules if there is a compiler; they can be loaded; it
installs only the broker (neither Spark nor a client), and `kafkacompat.testing.broker()` gives a test a working address.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIME_LIMIT_S = 300
NEWEST_MINOR = 20
COMPILER = """
import pathlib, shutil, sysconfig
compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
print(shutil.which(compiler) is not None and pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())
"""
CLIENT = """
import sys
from confluent_kafka import Consumer, Producer

values = [b"line %d of a log" % number for number in range(1000)]
for codec in ("none", "lz4"):
    producer = Producer({"bootstrap.servers": sys.argv[1], "compression.type": codec})
    for value in values:
        producer.produce(codec, value)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": codec, "auto.offset.reset": "earliest"})
    consumer.subscribe([codec])
    found = []
    while len(found) < len(values):
        batch = consumer.consume(1000, 60)
        assert batch, f"{len(found)} records came"
        found += [each.value() for each in batch if each.error() is None]
    consumer.close()
    assert found == values
"""
PROBE = """
import importlib, importlib.util, json, subprocess, sys
import trio
import kafkacompat.testing

other, client, modules, are_compiled = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4] == "True"
for name in ("pyspark", "kafka", "confluent_kafka", "aiokafka", "starlette", "hypercorn", "prometheus_client", "pytest"):
    assert importlib.util.find_spec(name) is None, f"{name} came with the broker"
for name in modules:
    assert (importlib.util.find_spec(name) is not None) == are_compiled, f"{name}: compiled is not {are_compiled}"
    if are_compiled:
        importlib.import_module(name)

async def main() -> None:
    async with kafkacompat.testing.broker() as b:
        await trio.run_process([other, "-c", client, b.bootstrap_servers])
    assert b.process.returncode == 0, b.process.returncode

trio.run(main)
form = "with compiled modules" if are_compiled else "without compiled modules"
print(f"CPython {sys.version.split()[0]}, {form}: the wheel's broker served a client and stopped cleanly")
"""


def run(*command: str, cwd: Path, **environment: str) -> None:
    # The package is that of the wheel, whatever the environment says.
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=cwd, check=True, timeout=TIME_LIMIT_S, env=ours | environment)


def said_by(python: str, program: str) -> str | None:
    """None if there is no such interpreter, as behind a name of pyenv for a version that is not chosen."""
    done = subprocess.run((python, "-c", program), capture_output=True, text=True, timeout=TIME_LIMIT_S)
    return done.stdout.strip() if done.returncode == 0 else None


def newer_interpreters() -> Iterator[str]:
    """One of each minor version above this one's, on the PATH or of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(sys.version_info.minor + 1, NEWEST_MINOR):
        named = f"python3.{minor}"
        found = [
            shutil.which(named),
            *(str(path) for path in sorted(versions.glob(f"3.{minor}.*/bin/{named}"))),
        ]
        usable = (
            each for each in found if each is not None and said_by(each, "import ensurepip, venv") is not None
        )
        if (python := next(usable, None)) is not None:
            yield python


def copy_sources(target: Path) -> None:
    """The files from which a wheel is built, in a separate folder. Otherwise setuptools would include leftovers of
    earlier builds."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "kafkacompat", target / "kafkacompat", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, target)


def data_files(source: Path) -> set[str]:
    """The data files beside the code: tables, definitions, the files of the web console."""
    code = (".py", ".c", ".h")
    files = (
        path for path in (source / "kafkacompat").rglob("*") if path.is_file() and path.suffix not in code
    )
    return {path.relative_to(source).as_posix() for path in files if "_tests" not in path.parts}


def compiled_modules(source: Path) -> list[str]:
    """The modules in C."""
    found = (path.relative_to(source).with_suffix("") for path in (source / "kafkacompat").rglob("*.c"))
    return sorted(".".join(path.parts) for path in found)


def modules_not_compiled(modules: list[str], brought: list[str]) -> list[str]:
    """Those of which a wheel has no compiled form. The build goes on without one that cannot be compiled."""
    return [
        name
        for name in modules
        if not any(
            each.startswith(name.replace(".", "/") + ".") and each.endswith((".so", ".pyd"))
            for each in brought
        )
    ]


def check(interpreter: str, source: Path, work: Path, *, with_compiler: bool) -> None:
    """`work` is made. AssertionError or CalledProcessError."""
    work.mkdir()
    built = work / "source"
    shutil.copytree(source, built)
    run(interpreter, "-m", "venv", str(work / "env"), cwd=work)
    python = str(work / "env" / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "-q")
    environment = {} if with_compiler else {"CC": "false"}
    run(*pip, "wheel", "--no-deps", "-w", str(work / "dist"), str(built), cwd=work, **environment)
    (wheel,) = (work / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        brought = archive.namelist()
    surplus = [name for name in brought if "_tests/" in name]
    assert not surplus, f"the wheel brings tests: {surplus[:5]}"
    missing = sorted(data_files(source) - set(brought))
    assert not missing, f"the wheel lacks files that its code reads: {missing[:5]}"
    modules = compiled_modules(source)
    lacking = modules_not_compiled(modules, brought)
    expected = [] if with_compiler and said_by(python, COMPILER) == "True" else modules
    assert lacking == expected, f"the wheel lacks compiled modules: {lacking}"
    lock = str(ROOT / "requirements.lock")
    if interpreter != sys.executable:
        try:
            run(*pip, "install", "--only-binary", ":all:", "-r", lock, cwd=work)
        except subprocess.CalledProcessError:
            print(f"{interpreter}: the wheel is built and not tried, because the libraries have none for it")
            return
    run(*pip, "install", "-c", lock, str(wheel), cwd=work)
    run(python, "-c", PROBE, sys.executable, CLIENT, json.dumps(modules), str(not lacking), cwd=work)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kafkacompat-wheel-") as directory:
        work = Path(directory)
        source = work / "source"
        copy_sources(source)
        check(sys.executable, source, work / "compiled", with_compiler=True)
        check(sys.executable, source, work / "plain", with_compiler=False)
        for interpreter in newer_interpreters():
            check(interpreter, source, work / Path(interpreter).name, with_compiler=True)


if __name__ == "__main__":
    main()
