"""The pytest plugin, in separate runs of pytest as users have them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.testing.kafka import Kafka, KafkaCluster
from kafkacompat.testing.plugin import ARGUMENTS, Asked


class Pytest:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, source: str, *options: str, conftest: str = "") -> str:
        """Run a file of tests. Return what pytest says.

        It is no worker of the run that this test belongs to.
        """
        (self._folder / "test_user.py").write_text(source)
        (self._folder / "conftest.py").write_text(conftest)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_user.py"],
            cwd=self._folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout + done.stderr


@pytest.fixture
def run(tmp_path: Path) -> Pytest:
    return Pytest(tmp_path)


TWO = """
import pytest
seen = []
def test_first(kafka):
    seen.append(kafka)
    kafka.produce("t", ["x"])
    kafka.topic("own")
def test_second(kafka):
    %s
"""


def test_a_test_has_a_kafka_of_its_own(run: Pytest) -> None:
    assert "2 passed" in run(TWO % "assert kafka not in seen and kafka.topics() == {}")


@pytest.mark.parametrize("scope", ["module", "session"])
def test_an_option_lets_it_live_longer_but_not_a_tests_own_topics(run: Pytest, scope: str) -> None:
    said = run(TWO % "assert kafka in seen and kafka.topics() == {'t': 1}", f"--kafka-scope={scope}")
    assert "2 passed" in said


def test_so_does_a_marker(run: Pytest) -> None:
    source = TWO % "assert kafka in seen and kafka.topics() == {'t': 1}"
    assert "2 passed" in run(source + "pytestmark = pytest.mark.kafka(scope='module')\n")


def test_a_marker_has_settings_a_number_of_nodes_and_a_form(run: Pytest) -> None:
    said = run("""
import os
import pytest
@pytest.mark.kafka(settings={"num.partitions": 4, "auto.create.topics.enable": True})
def test_settings(kafka):
    kafka.produce("t", ["x"])
    assert kafka.topics() == {"t": 4}
@pytest.mark.kafka(nodes=2)
def test_nodes(kafka_cluster):
    assert len(kafka_cluster.nodes) == 2
@pytest.mark.kafka(process=True)
def test_process(kafka):
    kafka.kill_node(1)
    assert kafka.pid != os.getpid()
""")
    assert "3 passed" in said, said


def test_a_marker_has_a_release_or_a_flavor(run: Pytest) -> None:
    said = run("""
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
@pytest.mark.kafka(version="2.3")
def test_release(kafka):
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).describe_user_scram_credentials(["a"])["a"].result(5)
@pytest.mark.kafka(nodes=3, flavor="msk-express", settings={"auto.create.topics.enable": True})
def test_flavor(kafka):
    kafka.produce("t", ["x"])
    assert len(kafka.nodes) == 3
""")
    assert "2 passed" in said, said


@pytest.mark.parametrize(
    ("marker", "named"),
    [
        ("settings={'num.partition': 3}", "num.partition"),
        ("settings={'num.partitions': 'many'}", "num.partitions"),
        ("node=3", "node"),
        ("scope='class'", "class"),
        ("version='1.0'", "version='1.0'"),
        ("flavor='x'", "flavor='x'"),
    ],
)
def test_what_a_marker_cannot_mean_fails_with_its_name(run: Pytest, marker: str, named: str) -> None:
    said = run(f"""
import pytest
@pytest.mark.kafka({marker})
def test_it(kafka):
    pass
""")
    assert "1 error" in said
    assert named in said


def test_a_marker_without_effect_is_refused(run: Pytest) -> None:
    said = run(
        """
import pytest
@pytest.mark.kafka(settings={"num.partitions": 2})
def test_it(kafka):
    pass
""",
        "--kafka-scope=session",
    )
    assert "1 error" in said
    assert "has no effect, because a Kafka lives for the session" in said


def test_a_users_own_fixture_wins(run: Pytest) -> None:
    own = "import pytest\n@pytest.fixture\ndef kafka():\n    return 'own'\n"
    said = run("def test_it(kafka):\n    assert kafka == 'own'\n", conftest=own)
    assert "1 passed" in said


def test_what_the_broker_logged_is_in_the_report_of_the_test_that_failed(run: Pytest) -> None:
    said = run("""
def test_good(kafka):
    kafka.create_topic("of-the-good-one")
def test_bad(kafka, kafka_broker):
    assert False
""")
    assert "1 failed, 1 passed" in said
    assert re.search(r"output of 127.*\n.*serving PLAINTEXT", said)
    assert "log of <Kafka 127.0.0.1:" in said
    assert "registered with broker epoch" in said


def test_each_worker_of_xdist_has_its_own(run: Pytest) -> None:
    source = """
import os
import pytest
@pytest.mark.parametrize("number", range(6))
def test_it(kafka, number):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    kafka.produce("t", [worker])
    assert {each.value for each in kafka.records("t")} == {worker.encode()}
"""
    assert "6 passed" in run(source, "-n", "2", "--kafka-scope=session")


def test_the_plugin_imports_nothing_before_it_is_used() -> None:
    asked = "import sys, kafkacompat.testing.plugin\n"
    asked += "print(*sorted(name for name in sys.modules if name.startswith(('kafkacompat', 'trio'))))"
    found = subprocess.run(
        [sys.executable, "-c", asked], check=True, capture_output=True, text=True
    ).stdout.split()
    assert found == ["kafkacompat", "kafkacompat.testing", "kafkacompat.testing.plugin"]


def test_an_import_is_not_stopped_by_passes_over_garbage() -> None:
    asked = "import gc\npasses = []\ngc.callbacks.append(lambda phase, _: passes.append(phase))\n"
    asked += "from kafkacompat.testing import Kafka\nprint(len(passes), gc.isenabled())"
    found = subprocess.run(
        [sys.executable, "-c", asked], check=True, capture_output=True, text=True
    ).stdout.split()
    assert int(found[0]) < 10
    assert found[1] == "True"


def test_a_fault_that_was_never_hit_fails_the_test_and_is_gone_for_the_next_one(run: Pytest) -> None:
    said = run(
        """
import pytest
pytestmark = pytest.mark.kafka(scope="module")
def test_passes_but_for_its_fault(kafka):
    kafka.faults.error("NOT_COORDINATOR", api="OffsetCommit", group="till")
def test_fails_anyway(kafka):
    kafka.faults.close()
    assert False, "for its own reason"
def test_may_miss(kafka):
    kafka.faults.close(optional=True)
def test_has_none(kafka):
    assert kafka.faults.active == ()
"""
    )
    assert "2 failed, 2 passed" in said
    assert (
        "NeverHit: never hit: error(NOT_COORDINATOR, applied=False, api='OffsetCommit', group='till'" in said
    )
    assert "for its own reason" in said


def test_the_last_requests_are_in_the_report_of_the_test_that_failed(run: Pytest) -> None:
    said = run(
        """
import pytest
from kafka import KafkaProducer
pytestmark = pytest.mark.kafka(scope="module")
def test_good(kafka):
    KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, client_id="good").send("t", b"x").get(20)
def test_bad(kafka):
    KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, client_id="bad").send("t", b"x").get(20)
    assert False
"""
    )
    _, _, told = said.partition("last requests of <Kafka")
    assert "Produce v" in told
    assert "from 'bad'" in told
    assert "from 'good'" not in told.replace("Metadata v13 from 'good'", "")


def test_the_last_requests_of_a_cluster_are_in_the_report_with_what_was_done_to_it(run: Pytest) -> None:
    said = run(
        """
from kafka import KafkaProducer
def test_bad(kafka_cluster):
    topic = kafka_cluster.topic("orders", replication_factor=3)
    kafka_cluster.move_leader(topic, to=1)
    producer = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers, client_id="bad")
    producer.send(topic, b"x").get(20)
    kafka_cluster.move_leader(topic, to=2)
    producer.send(topic, b"x").get(20)
    assert False
"""
    )
    _, _, told = said.partition("last requests of <Kafka")
    assert "NOT_LEADER_OR_FOLLOWER: orders-" in told
    assert "which began after move_leader made node 2 the leader of orders-" in told


def test_a_marker_has_racks(run: Pytest) -> None:
    said = run(
        """
import pytest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
@pytest.mark.kafka(nodes=2, racks=["a", "b"])
def test_racks(kafka):
    brokers = kafka.ask(1, MetadataRequest(topics=[])).brokers
    assert sorted((each.node_id, each.rack) for each in brokers) == [(1, "a"), (2, "b")]
"""
    )
    assert "1 passed" in said


def test_a_clock_goes_on_when_the_test_ends_that_has_stopped_it(run: Pytest) -> None:
    source = """
import pytest
pytestmark = pytest.mark.kafka(scope="module")
def test_first(kafka):
    kafka.clock.freeze()
def test_second(kafka):
    assert not kafka.clock.is_frozen
"""
    assert "2 passed" in run(source)


def test_a_node_that_stands_still_goes_on_before_clients_are_closed(run: Pytest) -> None:
    source = """
import pytest
@pytest.fixture
def client(kafka):
    yield
    assert kafka.topics() == {}
def test_it(kafka, client):
    kafka.pause_node(1)
"""
    said = run(source)
    assert "1 passed" in said
    assert "error" not in said


def test_a_test_whose_fixture_cannot_be_closed_leaves_nothing_to_the_next_one(run: Pytest) -> None:
    source = """
import pytest
pytestmark = pytest.mark.kafka(scope="module")
@pytest.fixture
def client(kafka):
    yield
    raise OSError("it cannot be closed")
def test_first(kafka, client):
    kafka.topic()
    kafka.kill_node(1)
def test_second(kafka):
    assert kafka.topics() == {}
"""
    said = run(source)
    assert "2 passed, 1 error" in said
    assert "OSError: it cannot be closed" in said


def test_a_kafka_that_cannot_be_made_ready_keeps_no_other_from_it(run: Pytest) -> None:
    source = """
import pytest
pytestmark = pytest.mark.kafka(scope="module")
def test_first(kafka, kafka_cluster, monkeypatch):
    kafka_cluster.topic()
    def end_test():
        raise TimeoutError("node 1 does not serve")
    kafka.end_test = end_test
def test_second(kafka_cluster):
    assert kafka_cluster.topics() == {}
"""
    said = run(source)
    assert "2 passed, 1 error" in said
    assert "TimeoutError: node 1 does not serve" in said


def test_a_marker_has_each_argument_of_a_kafka() -> None:
    """So a new one of `Kafka` is an argument of the marker, and of what tells Kafkas apart."""
    of_kafka = set(signature(Kafka.__init__).parameters) - {"self"}
    assert set(ARGUMENTS) == of_kafka | {"scope"}
    assert Asked().of_kafka(1).keys() == of_kafka


def test_a_fork_and_a_cluster_have_each_argument_of_a_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork, and the process of a Kafka, are made with `_arguments`: what it lacks would be lost there."""
    of_kafka = set(signature(Kafka.__init__).parameters) - {"self"}
    # The class says whether it has a process, and `secure` is the security with its users.
    kafka = Kafka()
    assert kafka._arguments().keys() == of_kafka - {"process", "users"}
    kafka.stop()
    of_cluster = {name: f"the {name}" for name in signature(KafkaCluster).parameters}
    assert of_cluster.keys() == of_kafka

    def made(settings: Any, **named: Any) -> dict[str, Any]:
        return {"settings": settings, **named}

    monkeypatch.setattr("kafkacompat.testing.kafka.Kafka", made)
    assert KafkaCluster(**of_cluster) == of_cluster  # type: ignore[arg-type]
