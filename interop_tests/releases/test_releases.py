"""A Kafka of a test that shows itself as a release, beside that release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.kafka_jars import BEFORE, KAFKA_VERSION, OLDEST, kafka_classpath
from interop_tests.harness.schema import DecodeError, message
from interop_tests.harness.wire import Connection, ConnectionClosed
from interop_tests.releases.table import said_by, table_of
from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.testing import versions
from kafkacompat.testing.kafka import Kafka

SOFTWARE = {"ClientSoftwareName": "test", "ClientSoftwareVersion": "1"}
WAITED_FOR = {"FindCoordinator"}
"""Its answer depends on whether the internal topic exists already."""
UNANSWERED = {(OLDEST, "OffsetFetch", 8), (OLDEST, "OffsetFetch", 9)}
UNANSWERED |= {(each, "AddPartitionsToTxn", version) for each in (OLDEST, BEFORE) for version in (4, 5)}
"""The release never answers these requests if they name nothing."""
BODIES = {"ApiVersions": SOFTWARE, "Produce": {"Acks": -1}}


class Both(NamedTuple):
    version: str
    apache: str
    own: str


@pytest.fixture(scope="module", params=[OLDEST, BEFORE])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    version: str = request.param
    node = BrokerProcess(APACHE, tmp_path_factory.mktemp("release") / "node")
    node.version = version
    with Kafka(version=version) as kafka:
        try:
            node.start()
            yield Both(version, node.bootstrap, kafka.bootstrap_servers)
        finally:
            node.kill()


def outcome(address: str, api: str, version: int) -> Any:
    """What becomes of a request that names nothing."""
    with Connection(address) as connection:
        try:
            answer = connection.call(api, version, BODIES.get(api, {}))
        except ConnectionClosed:
            return "closed"
        except DecodeError:  # an ApiVersions of a version that the release has not is answered as version 0
            return "answered in another form"
        return answer.get("ErrorCode", "answered")


def is_defined(api: str) -> bool:
    """Whether the tests' own encoder knows the API."""
    try:
        message(api + "Request")
    except FileNotFoundError:
        return False
    return True


def test_each_version_of_each_api_is_served_or_refused_as_by_the_release(both: Both) -> None:
    differing = [
        (entry.name, version, theirs, ours)
        for entry in BROKER_APIS.entries
        if entry.name not in WAITED_FOR and is_defined(entry.name)
        for version in range(entry.min_version, entry.max_version + 1)
        if (both.version, entry.name, version) not in UNANSWERED
        and (theirs := outcome(both.apache, entry.name, version))
        != (ours := outcome(both.own, entry.name, version))
    ]
    assert not differing


@pytest.mark.parametrize("version", [0, 3, 4])
def test_api_versions_tells_the_highest_versions_and_the_features_of_the_release(
    both: Both, version: int
) -> None:
    answers: list[Any] = []
    for address in (both.apache, both.own):
        with Connection(address) as connection:
            answers.append(connection.call("ApiVersions", version, SOFTWARE))
    theirs, ours = ({each["ApiKey"]: each for each in answer["ApiKeys"]} for answer in answers)
    assert {key: theirs[key]["MaxVersion"] for key in ours} == {
        key: each["MaxVersion"] for key, each in ours.items()
    }
    assert set(theirs) & {entry.key for entry in BROKER_APIS.entries} == set(ours)
    if version:
        for name in ("SupportedFeatures", "FinalizedFeatures"):
            assert sorted(answers[0][name], key=str) == sorted(answers[1][name], key=str)


def test_the_table_is_what_the_releases_say_of_themselves() -> None:
    said = {
        version.rpartition(".")[0]: said_by(kafka_classpath(version))
        for version in (OLDEST, BEFORE, KAFKA_VERSION)
    }
    rows = Path(versions.__file__).with_name("releases.tsv").read_text().splitlines()
    columns = [0, 1, *(rows[0].split("\t").index(name) for name in said)]
    kept = ["\t".join(row.split("\t")[each] for each in columns) for row in rows]
    assert table_of(said).splitlines() == kept
