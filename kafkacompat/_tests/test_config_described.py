"""Every entry of DescribeConfigs against what a running Apache Kafka 4.4.0 answered to the same settings.

config_described_by_kafka.captured holds those answers: case `static` a file alone, case `layers` with dynamic layers,
topic and group overrides over it (for the broker only the entries that these changed).
"""

from pathlib import Path

import pytest

from kafkacompat.config import (
    ConfigEntry,
    ConfigSource,
    DynamicConfig,
    ServerConfig,
    describe,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
    own_names,
)
from kafkacompat.config.keys import names_shown_if_set

FILE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@127.0.0.1:29393",
    "listeners": "PLAINTEXT://127.0.0.1:29392,CONTROLLER://127.0.0.1:29393",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/data/kafka",
    "log.retention.hours": "100",
    "log.retention.minutes": "70",
    "log.roll.hours": "24",
    "offsets.topic.replication.factor": "1",
    "num.partitions": "3",
    "log.segment.bytes": "2097152",
    "ssl.key.password": "secret",
    "some.unknown.setting": "hello",
    "group.consumer.session.timeout.ms": "50000",
}
CLUSTER_ALWAYS = {"min.insync.replicas": "1"}  # Kafka sets it when eligible.leader.replicas.version is 1
CLUSTER = {
    **CLUSTER_ALWAYS,
    "log.retention.ms": "500000",
    "log.segment.bytes": "3000000",
    "num.io.threads": "10",
    "foo.bar": "9",
    "log.cleanup.policy": "delete,compact",
    "log.roll.ms": "1000000",
    "leader.replication.throttled.rate": "1000",
    "log.cleaner.max.compaction.lag.ms": "5",
    "log.cleaner.min.compaction.lag.ms": "10",
}
BROKER = {
    "log.retention.ms": "400000",
    "message.max.bytes": "2000000",
    "foo.baz": "9",
    "listener.name.plaintext.ssl.key.password": "x",
    "log.cleaner.min.cleanable.ratio": "0.00001",
}
TOPIC = {
    "cleanup.policy": "delete , compact, delete",
    "segment.bytes": "1048600",
    "leader.replication.throttled.replicas": "",
    "internal.segment.bytes": "100",
    "retention.ms": " 55 ",
    "min.cleanable.dirty.ratio": "NaN",
}
GROUP = {"consumer.session.timeout.ms": "46000", "share.auto.offset.reset": "by_duration:PT1H"}

SOURCE_TEXT = {
    ConfigSource.TOPIC_CONFIG: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.GROUP_CONFIG: "DYNAMIC_GROUP_CONFIG",
}
Row = tuple[str, ...]


def captured(case: str, resource: str, resource_name: str) -> dict[str, Row]:
    path = Path(__file__).with_name("config_described_by_kafka.captured")
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]
    return {row[3]: tuple(row[4:]) for row in rows if row[:3] == [case, resource, resource_name]}


def shown(entries: list[ConfigEntry], kind: str = "broker") -> dict[str, Row]:
    """But for the settings of the kind that Kafka does not have."""
    assert [entry.name for entry in entries] == sorted({entry.name for entry in entries})
    return {
        entry.name: (
            "null" if entry.value is None else entry.value,
            SOURCE_TEXT.get(entry.source, entry.source.name),
            str(entry.read_only).lower(),
            str(entry.sensitive).lower(),
            entry.type.name,
            " ".join(
                f"{s.name}={'null' if s.value is None else s.value}:{SOURCE_TEXT.get(s.source, s.source.name)}"
                for s in entry.synonyms
            ),
        )
        for entry in entries
        if entry.name not in own_names(kind)
    }


@pytest.fixture(scope="module")
def static() -> DynamicConfig:
    return DynamicConfig(ServerConfig.from_properties(FILE), CLUSTER_ALWAYS)


@pytest.fixture(scope="module")
def layers() -> DynamicConfig:
    return DynamicConfig(ServerConfig.from_properties(FILE), CLUSTER, BROKER)


def test_a_broker_under_its_file_alone(static: DynamicConfig) -> None:
    assert shown(describe_broker(static)) == captured("static", "BROKER", "1")


def test_a_broker_under_both_dynamic_layers(layers: DynamicConfig) -> None:
    changed = captured("layers", "BROKER", "1")
    assert len(changed) > 15
    assert shown(describe_broker(layers)) == captured("static", "BROKER", "1") | changed


def test_the_cluster_defaults_alone(layers: DynamicConfig) -> None:
    assert shown(describe_cluster_defaults(layers)) == captured("layers", "BROKER", "")


def test_a_topic_without_overrides(static: DynamicConfig) -> None:
    assert shown(describe_topic(static, {}), "topic") == captured("static", "TOPIC", "plain")


def test_a_topic_with_overrides_under_layers(layers: DynamicConfig) -> None:
    assert shown(describe_topic(layers, TOPIC), "topic") == captured("layers", "TOPIC", "t")


def test_a_group(layers: DynamicConfig) -> None:
    assert shown(describe_group(layers, GROUP), "group") == captured("layers", "GROUP", "g")


def test_secrets_and_unknown_settings_show_no_value(layers: DynamicConfig) -> None:
    for entry in [*describe_broker(layers), *describe_topic(layers, {"from.another.version": "hidden"})]:
        if entry.sensitive:
            assert entry.value is None
            assert all(synonym.value is None for synonym in entry.synonyms)
    names = {entry.name for entry in describe_broker(layers) if entry.sensitive}
    assert {"ssl.key.password", "sasl.jaas.config", "some.unknown.setting", "foo.bar"} <= names


def test_settings_of_mirrors_are_described_only_where_they_are_set(static: DynamicConfig) -> None:
    described = {entry.name for entry in describe_topic(static, {})}
    own, if_set = own_names("topic"), names_shown_if_set()
    assert if_set == {name for name in own if name.startswith("mirror.")}
    assert own & described == own - if_set
    (entry,) = [each for each in describe_topic(static, {"mirror.name": "m"}) if each.name == "mirror.name"]
    assert (entry.value, own_names("topic") >= {entry.name}) == ("m", True)
    # MirrorMaker copies to another cluster, which may not know them, all but what cannot be changed.
    assert entry.read_only


def test_a_setting_of_topics_that_kafka_does_not_have_is_described_unless_its_row_says_if_set(
    static: DynamicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe, "names_shown_if_set", lambda: names_shown_if_set() - {"mirror.name"})
    (entry,) = [each for each in describe_topic(static, {}) if each.name in own_names("topic")]
    assert (entry.name, entry.value, entry.source) == ("mirror.name", "", ConfigSource.DEFAULT_CONFIG)
    assert entry.read_only
