"""A broker starts quickly and stays small because it imports only what its first answer needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROBE = """
import json, os, socket, struct, sys, threading
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
    with open("/proc/self/status") as status:
        (resident,) = [int(row.split()[1]) for row in status if row.startswith("VmRSS")]
    print(json.dumps({"modules": sorted(sys.modules), "resident_kib": resident}), flush=True)
    os.kill(os.getpid(), 15)

import kafkacompat.cli.start as start
start.announce = lambda line: threading.Thread(target=ask, args=(line,)).start()
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
    # Compression codecs, until a batch with that codec arrives.
    *("snappy", "lz4", "zstandard"),
    # Modules of other commands.
    *("kafkacompat.cli.client", "kafkacompat.cli.dump", "kafkacompat.testing"),
    "kafkacompat.wire.constructs",
}
IDLE_KIB_MAX = 60 * 1024


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the modules and the memory of a broker that has just answered its first ApiVersions request."""
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


def test_an_idle_broker_is_small(started: dict[str, object]) -> None:
    """Measured about 35 MB. The goal is 60 MB."""
    assert int(str(started["resident_kib"])) < IDLE_KIB_MAX
