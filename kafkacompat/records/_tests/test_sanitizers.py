"""The compiled modules under AddressSanitizer and UndefinedBehaviorSanitizer: the tests of all run again in a process that
loads them so built. A read outside a buffer, an overflow or a leak of a buffer ends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from kafkacompat.records._tests.examples import FEWER

PACKAGE = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = PROJECT["tool"]["setuptools"]["ext-modules"]
TESTS = {
    "kafkacompat.records._scan": (
        "records/_tests/test_scan.py::test_the_compiled_gait_reads_what_the_other_reads",
    ),
    "kafkacompat.records._produce": ("records/_tests/test_plain_produce.py",),
    "kafkacompat.log._append": (
        "log/_tests/test_append_next.py::test_both_appends_leave_the_same_log[compiled]",
        "log/_tests/test_append_next.py::test_many_batches_fill_the_pages_of_the_indexes_and_the_memory_of_the_tail[compiled]",
        "log/_tests/test_append_next.py::test_a_batch_that_cannot_be_written_leaves_the_log_as_it_was",
        "log/_tests/test_append_next.py::test_what_cannot_be_a_batch_has_no_effect",
        "log/_tests/test_append_next.py::test_what_cannot_be_stamped_has_no_effect",
        "log/_tests/test_append_next.py::test_a_slot_with_something_else_has_no_effect",
        "log/_tests/test_append_next.py::test_a_file_of_the_real_disk_gets_the_same_bytes[compiled]",
        "log/_tests/test_append_next.py::test_a_full_disk_leaves_the_file_and_the_log_as_they_were[compiled]",
        "log/_tests/test_append_next.py::test_what_cannot_be_a_file_is_for_the_files_own_method",
        "log/_tests/test_append_next.py::test_both_gaits_move_the_high_watermark_alike",
        "log/_tests/test_append_next.py::test_both_gaits_say_the_same_of_a_high_watermark_that_is_none",
    ),
    "kafkacompat.partition._plain": ("partition/_tests/test_plain_appends.py",),
}
"""The tests of each module, below the package."""
RUN = """
import sys
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader

count = int(sys.argv[1])
for path in sys.argv[2 : 2 + count]:
    name = path.rsplit("/", 1)[1].removesuffix(".so")
    package, attribute = name.rsplit(".", 1)
    module = module_from_spec(spec_from_loader(name, ExtensionFileLoader(name, path)))
    module.__spec__.loader.exec_module(module)
    sys.modules[name] = module
    setattr(import_module(package), attribute, module)

import pytest

sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2 + count :]]))
"""


def test_each_compiled_module_has_its_tests_here() -> None:
    assert TESTS.keys() == {module["name"] for module in MODULES}


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
        built.append(str(tmp_path / f"{module['name']}.so"))
        sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
        sources = [str(PACKAGE.parent / source) for source in module["sources"]]
        command = [compiler, "-shared", "-fPIC", "-g", "-O1", *sanitizers, f"-I{include}", *sources]
        subprocess.run([*command, "-o", built[-1]], check=True)
    environment = os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter leaves its own memory to the end of the process
        "PYTHONMALLOC": "malloc",  # so that the end of each object's memory is seen
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "examples"),
    }
    if not os.environ.get("KAFKACOMPAT_SOAK"):
        environment[FEWER] = "1"
    tests = [str(PACKAGE / name) for names in TESTS.values() for name in names]
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(len(built)), *built, *tests],
        env=environment,
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
    )
    told = ran.stdout[-4000:] + ran.stderr[-4000:]
    assert ran.returncode == 0, told
    assert "skipped" not in ran.stdout, told
