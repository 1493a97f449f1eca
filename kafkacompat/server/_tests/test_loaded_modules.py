"""What a node loads in the background: everything that its requests may need, in small pieces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.server import provisions
from kafkacompat.server.provisions import check_package, modules_of

STARTED = Path(__file__).with_name("modules_of_a_start.txt")
AUDIT = """
import builtins, json, sys
from importlib import import_module
from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.server.provisions import modules_of

for name in open(sys.argv[1]).read().split():
    import_module(name)
pieces = []
for name in modules_of(ServerConfig.from_properties(json.loads(sys.argv[2]), {})):
    before = len(sys.modules)
    import_module(name)
    pieces.append((len(sys.modules) - before, name))
ready = {name for name in sys.modules if name.startswith("kafkacompat.")}

# What only the fuzzer needs, and a node that shows metrics.
from kafkacompat._tests.fuzz import __main__ as fuzzer, node
import kafkacompat.telemetry.client_metrics_manager

node.FuzzedNode(99).start()  # what a start reads is read

wanted, opened, at_work = set(), set(), False
ours = ("kafkacompat._tests", "kafkacompat.sim", "kafkacompat.log._tests")
real = builtins.__import__

def imported(name, globals=None, locals=None, fromlist=(), level=0):
    asker = (globals or {}).get("__name__", "")
    if at_work and name.startswith("kafkacompat") and not asker.startswith(ours):
        for each in (name, *(f"{name}.{part}" for part in fromlist or ())):
            if each in sys.modules and each not in ready:
                wanted.add(f"{asker}: {each}")
    return real(name, globals, locals, fromlist, level)

def heard(event, arguments):
    if at_work and event == "open" and "/kafkacompat/" in str(arguments[0]):
        opened.add(str(arguments[0]))
    if at_work and event == "import" and str(arguments[0]).startswith("kafkacompat"):
        opened.add(str(arguments[0]))

builtins.__import__ = imported
sys.addaudithook(heard)
at_work = True
tally = fuzzer.Tally()
for seed in range(4):
    fuzzer.run_seed(seed, tally, requests=500)
    fuzzer.run_seed(seed, tally, requests=200, shares=True)
at_work = False
seen = {api for api, _ in tally.by_code}
print(json.dumps({"wanted": sorted(wanted), "opened": sorted(opened), "apis": sorted(seen), "pieces": max(pieces)}))
"""
PIECE_MAX = 30
"""Modules that come with one: of a half to one and a half milliseconds each, in a worker's thread."""


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    script = tmp_path_factory.mktemp("audit") / "audit.py"
    script.write_text(AUDIT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    words = [sys.executable, str(script), str(STARTED), json.dumps(defaults_without_file())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_no_request_opens_a_file_of_the_package(audited: dict[str, list[str]]) -> None:
    assert not audited["opened"]


def test_no_request_needs_a_module_that_is_not_loaded(audited: dict[str, list[str]]) -> None:
    """Also if the fuzzer's own parts have loaded it."""
    assert not audited["wanted"]


def test_the_requests_were_of_most_apis(audited: dict[str, list[str]]) -> None:
    assert len(audited["apis"]) > 60, audited["apis"]


def test_modules_come_in_small_pieces(audited: dict[str, list[str]]) -> None:
    number, name = audited["pieces"]
    assert int(number) <= PIECE_MAX, name


def settings(**changed: str) -> ServerConfig:
    renamed = {name.replace("_", "."): value for name, value in changed.items()}
    return ServerConfig.from_properties({**defaults_without_file(), **renamed}, {})


SECURED_BROKER = {
    "process_roles": "broker",
    "controller_quorum_voters": "9@127.0.0.1:9",
    "listeners": "SASL_SSL://127.0.0.1:0",
    "advertised_listeners": "SASL_SSL://127.0.0.1:9",
    "security_inter_broker_protocol": "SASL_SSL",
    "listener_security_protocol_map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN,OAUTHBEARER",
    "metrics_listener_port": "0",
}


def test_a_node_loads_what_its_roles_and_settings_need() -> None:
    both = modules_of(settings())
    assert len(both) == len(set(both))
    assert "kafkacompat.controller.topics" in both
    assert "kafkacompat.api.txn_offset_commit" in both
    assert not any(name.startswith(("cryptography", "jwt", "kafkacompat.security")) for name in both)
    telemetry = "kafkacompat.api.push_telemetry"
    assert telemetry not in both
    assert telemetry in modules_of(settings(metrics_listener_port="0"))
    broker = modules_of(settings(**SECURED_BROKER))
    assert not any(name == "kafkacompat.controller.topics" for name in broker)
    assert {"cryptography.x509", "jwt.api_jws", "kafkacompat.net.tls_connection"} <= set(broker)


def test_every_name_is_a_module_that_can_be_imported() -> None:
    every = [*provisions.OF_PYTHON, *provisions.CODECS, *provisions.CERTIFICATES, *provisions.TOKENS]
    every += [f"{provisions.ROOT}.{name}" for name in provisions.NOT_OF_A_NODE]
    named = {*modules_of(settings()), *modules_of(settings(**SECURED_BROKER))}
    every += sorted(name for name in named if name.startswith(provisions.ROOT))
    script = f"import importlib.util as util; print([n for n in {every!r} if util.find_spec(n) is None])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_another_version_in_the_same_place_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_package()
    monkeypatch.setattr(provisions, "_folder", lambda package: str(tmp_path))
    with pytest.raises(FileNotFoundError):
        check_package()
    (tmp_path / "__init__.py").write_text('__version__ = "99.9"\n')
    with pytest.raises(OSError, match="restart this node"):
        check_package()
