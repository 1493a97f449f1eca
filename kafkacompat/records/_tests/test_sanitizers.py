"""The compiled modules under AddressSanitizer and UndefinedBehaviorSanitizer: the tests of both run again in a process that
loads them so built. A read outside a buffer, an overflow or a leak of a buffer ends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

RECORDS = Path(__file__).resolve().parents[1]
MODULES = ("_scan", "_produce")
TESTS = ("test_plain_produce.py", "test_scan.py::test_the_compiled_gait_reads_what_the_other_reads")
RUN = """
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader

import kafkacompat.records

for path in sys.argv[1:3]:
    name = "kafkacompat.records." + path.rsplit("/", 1)[1].split(".")[0]
    module = module_from_spec(spec_from_loader(name, ExtensionFileLoader(name, path)))
    module.__spec__.loader.exec_module(module)
    sys.modules[name] = module
    setattr(kafkacompat.records, name.rsplit(".", 1)[1], module)

import pytest

sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[3:]]))
"""


@pytest.mark.costly
def test_hostile_bytes_under_sanitizers(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    include = sysconfig.get_paths()["include"]
    if compiler is None or not Path(include, "Python.h").exists():
        pytest.skip("no gcc, or no headers of Python")
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("gcc has no libasan")
    built = []
    for module in MODULES:
        built.append(str(tmp_path / f"{module}.so"))
        sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
        source = str(RECORDS / f"{module}.c")
        command = [compiler, "-shared", "-fPIC", "-g", "-O1", *sanitizers, f"-I{include}", source]
        subprocess.run([*command, "-o", built[-1]], check=True)
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter leaves its own memory to the end of the process
        "PYTHONMALLOC": "malloc",  # so that the end of each object's memory is seen
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "examples"),
    }
    tests = [str(RECORDS / "_tests" / name) for name in TESTS]
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *built, *tests],
        env=environment,
        cwd=RECORDS.parents[1],
        capture_output=True,
        text=True,
    )
    told = ran.stdout[-4000:] + ran.stderr[-4000:]
    assert ran.returncode == 0, told
    assert "skipped" not in ran.stdout, told
