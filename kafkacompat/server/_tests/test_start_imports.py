"""A broker starts quickly because it imports only what its first answer needs. The rest comes in the background."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROBE = """
import json, os, socket, struct, sys, threading, time
from kafkacompat.__main__ import main

def ask(line):
    port = int(line.split("PLAINTEXT://127.0.0.1:")[1].split()[0].rstrip(","))
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        body = struct.pack(">hhih", 18, 0, 7, -1)
        client.sendall(struct.pack(">i", len(body)) + body)
        head = b""
        while len(head) < 10:
            head += client.recv(10 - len(head))
        assert struct.unpack(">ih", head[4:10]) == (7, 0), head
    modules, first = sorted(sys.modules), resident_kib()
    begin()
    while not loading.is_complete:
        time.sleep(0.05)
    time.sleep(0.5)
    print(json.dumps({"modules": modules, "resident_kib": first, "loaded_kib": resident_kib()}), flush=True)
    os.kill(os.getpid(), 15)

def resident_kib():
    with open("/proc/self/status") as status:
        (resident,) = [int(row.split()[1]) for row in status if row.startswith("VmRSS")]
    return resident

import kafkacompat.cli.start as start
import trio
from kafkacompat.late import Provisions

def hold(provisions):
    # What comes in the background is not part of the start.
    global loading, token
    loading, token = provisions, trio.lowlevel.current_trio_token()
    held.set()

def begin():
    held.wait()
    token.run_sync_soon(begin_now, loading)

held, begin_now, Provisions.begin = threading.Event(), Provisions.begin, hold
start.print_line = lambda line: threading.Thread(target=ask, args=(line,)).start()
sys.exit(main(sys.argv[1:]))
"""

NOT_NEEDED = {
    # Libraries of other packages, of clients and of tools.
    *("construct", "hypercorn", "starlette", "rich", "prometheus_client"),
    *("pyspark", "pyarrow", "pandas", "numpy", "py4j"),
    *("kafka", "confluent_kafka", "aiokafka"),
    *("pytest", "hypothesis", "psutil", "setuptools", "pkg_resources"),
    # Large modules of the standard library that the broker does not use.
    *("asyncio", "multiprocessing", "unittest", "pdb", "http", "xml", "sqlite3", "tkinter"),
    *("email", "zipfile", "importlib.metadata", "importlib.resources", "crc32c"),
    # Compression codecs, until a batch with that codec arrives.
    *("snappy", "lz4", "zstandard"),
    # What checks tokens and certificates.
    *("cryptography", "jwt", "gssapi"),
    # Modules of other commands.
    *("kafkacompat.client", "kafkacompat.cli.dump", "kafkacompat.testing"),
    "kafkacompat.wire.constructs",
    # What is made when somebody asks for it, and what only a setting needs.
    *("kafkacompat.server.broker_coordinators", "kafkacompat.coordinator", "kafkacompat.group"),
    *("kafkacompat.txn", "kafkacompat.share", "kafkacompat.share.state"),
    *("kafkacompat.server.authentication", "kafkacompat.security.mechanisms"),
    *("kafkacompat.security.client_settings", "kafkacompat.security.ssl_factory"),
    *("kafkacompat.metrics", "kafkacompat.telemetry"),
}
EXPECTED = Path(__file__).with_name("modules_of_a_start.txt")
"""The modules of the product that a plain node imports, one a line."""
PACKAGE = Path(__file__).resolve().parents[2]
ROOM = 20
"""So many more may come: modules that are parted add little."""
OTHERS_MAX = 280
"""Modules of Python and of trio with what it imports: 240 with CPython 3.11. They take more than half of a start."""
PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
COMPILED = {each["name"] for each in PROJECT["tool"]["setuptools"]["ext-modules"]}
"""Where they are built."""
WHAT_TO_DO = """
A node without groups, transactions, security or metrics now imports these modules as well. On average one takes a third of
a millisecond of every start, and 25 KB of every node.
- Is it only for types? Import it under TYPE_CHECKING.
- Does only a setting, a kind of request or a failure need it? Import it there (a function's import, api/registry.py), or
  make the part late (kafkacompat/late.py) if that takes more than 20 ms. See that server/provisions.py loads it later.
- Does every node need them? Write modules_of_a_start.txt anew, and say in the commit what they cost.
"""
IDLE_KIB_MAX = 48 * 1024
LOADED_KIB_MAX = 50 * 1024
"""What the start leaves free is given back, so it differs little from run to run. The rest is room for other builds of Python."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the modules and the memory of a broker that has just answered its first ApiVersions request."""
    # pip compiles what it installs. A start that compiles its modules itself has a few MiB more for good.
    compileall.compile_dir(PACKAGE, quiet=2)
    data = tmp_path_factory.mktemp("imports")
    words = ["start", "--override", f"log.dirs={data}"]
    words += ["--override", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_first_answer_needs_none_of_these(started: dict[str, object]) -> None:
    loaded = set(map(str, started["modules"]))  # type: ignore[call-overload]
    surplus = sorted(
        name for name in loaded if any(name == root or name.startswith(f"{root}.") for root in NOT_NEEDED)
    )
    assert not surplus
    assert "trio" in loaded, "the probe looks into the broker's own process"


def test_a_plain_node_imports_what_every_node_needs(started: dict[str, object]) -> None:
    loaded = {name for name in map(str, started["modules"]) if name.startswith("kafkacompat.")}  # type: ignore[call-overload]
    surplus = sorted(loaded - set(EXPECTED.read_text().split()) - COMPILED)
    assert len(surplus) <= ROOM, "\n".join([WHAT_TO_DO, *surplus])


def test_a_plain_node_imports_few_modules_of_others(started: dict[str, object]) -> None:
    others = [name for name in map(str, started["modules"]) if name.split(".")[0] != "kafkacompat"]  # type: ignore[call-overload]
    assert len(others) <= OTHERS_MAX, "\n".join(others)


def test_the_list_is_of_this_start(started: dict[str, object]) -> None:
    """Modules that are gone from it would make room for others."""
    names = EXPECTED.read_text().split()
    assert names == sorted(set(names))
    assert len(set(names) - set(map(str, started["modules"]))) <= ROOM  # type: ignore[call-overload]


def test_a_broker_that_has_loaded_everything_is_small(started: dict[str, object]) -> None:
    """Measured about 47 MiB. What takes megabytes and few nodes need is left to the first who needs it (provisions.py)."""
    first, loaded = int(str(started["resident_kib"])), int(str(started["loaded_kib"]))
    assert first + 5 * 1024 < loaded < LOADED_KIB_MAX


def test_an_idle_broker_is_small(started: dict[str, object]) -> None:
    """Measured about 37 MiB. The rest is room for other builds of Python."""
    assert int(str(started["resident_kib"])) < IDLE_KIB_MAX
