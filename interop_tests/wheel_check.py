"""Builds the wheel, installs it into an empty environment, and checks that the broker there answers a client.

`make wheel` runs it. It checks four things: the wheel contains all its data files, and its compiled modules if there is a
compiler; it installs only the broker (neither Spark nor a client), and `kafkacompat.testing.broker()` gives a test a working
address.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIME_LIMIT_S = 300

PROBE = """
import importlib.util, socket, struct, sys
import trio
import kafkacompat.testing

for name in ("pyspark", "kafka", "confluent_kafka", "aiokafka", "starlette", "hypercorn", "prometheus_client", "pytest"):
    assert importlib.util.find_spec(name) is None, f"{name} came with the broker"

async def main() -> None:
    async with kafkacompat.testing.broker() as b:
        host, port = b.bootstrap_servers.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        body = struct.pack(">hhih", 18, 0, 77, -1)
        await stream.send_all(struct.pack(">i", len(body)) + body)
        head = await stream.receive_some(10)
        size, correlation, error = struct.unpack(">iih", head)
        assert correlation == 77 and error == 0 and size > 10, head
        await stream.aclose()
    assert b.process.returncode == 0, b.process.returncode

trio.run(main)
print("the wheel's broker answered and stopped cleanly")
"""


def run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, timeout=TIME_LIMIT_S)


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


def has_compiler() -> bool:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def modules_not_compiled(source: Path, brought: list[str]) -> list[str]:
    """The modules in C of which a wheel has no compiled form. The build goes on without one that cannot be compiled."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    modules = [
        path.relative_to(source).with_suffix("").as_posix() for path in (source / "kafkacompat").rglob("*.c")
    ]
    return sorted(module for module in modules if module + suffix not in brought)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kafkacompat-wheel-") as directory:
        work = Path(directory)
        source = work / "source"
        copy_sources(source)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", str(work / "dist"), str(source), cwd=work)
        (wheel,) = (work / "dist").glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            brought = archive.namelist()
        surplus = [name for name in brought if "_tests/" in name]
        assert not surplus, f"the wheel brings tests: {surplus[:5]}"
        missing = sorted(data_files(source) - set(brought))
        assert not missing, f"the wheel lacks files that its code reads: {missing[:5]}"
        if has_compiler():
            lacking = modules_not_compiled(source, brought)
            assert not lacking, f"the wheel lacks compiled modules: {lacking}"
        venv.create(work / "env", with_pip=True)
        python = str(work / "env" / "bin" / "python")
        install = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        run(*install, "-c", str(ROOT / "requirements.lock"), str(wheel), cwd=work)
        run(python, "-c", PROBE, cwd=work)


if __name__ == "__main__":
    main()
