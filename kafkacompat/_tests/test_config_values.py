"""Definitions, value syntax, server.properties syntax, listeners and what a node may start with.

What is accepted and refused here is what a running Apache Kafka 4.3.0 accepted and refused.
"""

import string
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.config import (
    ConfigError,
    ConfigType,
    DynamicScope,
    EndPoint,
    ServerConfig,
    broker_keys,
    defaults_without_file,
    group_keys,
    load_properties,
    own_table,
    parse_properties,
    parse_value,
    render_value,
    topic_keys,
    without_effect_table,
)
from kafkacompat.config.keys import java_double, parse_typed

BASE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/tmp/x",
}


def start(**changes: str | None) -> ServerConfig:
    return start_with({name.replace("_", "."): text for name, text in changes.items()})


def start_with(changes: dict[str, str | None]) -> ServerConfig:
    merged: dict[str, str | None] = {**BASE, **changes}
    return ServerConfig.from_properties({name: text for name, text in merged.items() if text is not None})


def test_definitions_are_those_of_kafka() -> None:
    """test_config_described.py holds the names of all settings to those of Kafka."""
    assert broker_keys()["node.id"].required
    assert broker_keys()["log.retention.ms"].default is None
    assert broker_keys()["log.cleanup.policy"].default == ("delete",)
    assert broker_keys()["log.cleaner.io.max.bytes.per.second"].default == 1.7976931348623157e308
    assert broker_keys()["ssl.key.password"].sensitive
    assert broker_keys()["log.retention.ms"].dynamic is DynamicScope.CLUSTER
    assert broker_keys()["listeners"].dynamic is DynamicScope.PER_BROKER
    assert broker_keys()["num.partitions"].dynamic is DynamicScope.NONE
    assert topic_keys()["retention.ms"].type is ConfigType.LONG


def test_documentation_is_in_sentences_and_what_has_none_is_without_effect() -> None:
    tables = (broker_keys(), topic_keys(), group_keys())
    texts = [key.documentation for keys in tables for key in keys.values() if key.documentation is not None]
    assert texts
    assert all(text.endswith(".") for text in texts)
    table = without_effect_table()
    assert ("broker", "ssl.trustmanager.algorithm", "PKIX") in table
    assert ("broker", "num.partitions", "1") not in table


def test_the_broker_settings_that_a_row_names_exist() -> None:
    named = [
        name
        for keys in (topic_keys(), group_keys())
        for key in keys.values()
        for name in (key.broker, key.minimum, key.maximum)
        if name
    ]
    assert named
    assert set(named) <= broker_keys().keys()


def test_every_setting_that_kafka_does_not_have_is_explained() -> None:
    table = own_table()
    assert ("broker", "batch.max.unpacked.bytes", "268435456") in [each[:3] for each in table]
    assert all(meaning for *_, meaning in table)


@pytest.mark.parametrize(
    ("name", "text", "value", "rendered"),
    [
        ("num.partitions", " 3 ", 3, "3"),
        ("num.partitions", "+3", 3, "3"),
        ("auto.create.topics.enable", "TRUE", True, "true"),
        ("log.cleanup.policy", "delete , compact,delete", ("delete", "compact"), "delete,compact"),
        ("log.cleanup.policy", "", (), ""),
        ("log.cleaner.min.cleanable.ratio", "0.00001", 1e-5, "1.0E-5"),
        ("log.cleaner.min.cleanable.ratio", "1", 1.0, "1.0"),
        ("log.cleaner.io.max.bytes.per.second", "1.5e7d", 1.5e7, "1.5E7"),
        ("compression.gzip.level", "-1", -1, "-1"),
        ("ssl.key.password", " secret ", "secret", "secret"),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade", "Upgrade"),
        ("log.dirs", "/a, /b", ("/a", "/b"), "/a,/b"),
    ],
)
def test_values_parse_and_render(name: str, text: str, value: object, rendered: str) -> None:
    key = broker_keys()[name]
    assert parse_value(key, text) == value
    assert render_value(key, parse_value(key, text)) == rendered


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("num.partitions", "0", "0"),
        ("num.partitions", "abc", "abc"),
        ("num.partitions", "99999999999", "99999999999"),
        ("num.partitions", "1_0", "1_0"),
        ("num.partitions", "", ""),
        ("num.partitions", "9" * 5000, "9" * 5000),
        ("auto.create.topics.enable", "yes", "yes"),
        ("compression.type", "foo", "foo"),
        ("compression.gzip.level", "0", "0"),
        ("log.cleanup.policy", "delete,foo", "foo"),
        ("log.message.timestamp.type", "createtime", "createtime"),
        ("log.segment.bytes", "100", "100"),
        ("log.cleaner.min.cleanable.ratio", "2", "2.0"),
        ("log.cleaner.min.cleanable.ratio", "1_0", "1_0"),
        ("offsets.topic.replication.factor", "40000", "40000"),
    ],
)
def test_a_refused_value_is_named_with_its_setting(name: str, text: str, shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(broker_keys()[name], text)
    assert str(caught.value).startswith(f"Invalid value {shown} for configuration {name}: ")
    assert caught.value.setting == name


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_survive_rendering(number: int) -> None:
    key = broker_keys()["log.retention.bytes"]
    assert parse_value(key, render_value(key, number) or "") == number


@given(st.floats(allow_nan=False))
def test_doubles_survive_java_form(number: float) -> None:
    key = broker_keys()["log.cleaner.io.max.bytes.per.second"]
    assert parse_value(key, java_double(number)) == number


def test_doubles_as_java_writes_them() -> None:
    written = [java_double(x) for x in (0.0, -0.0, 0.001, 9999999.0, 1e7, 123456789.0, -1.5e-9, float("inf"))]
    assert written == ["0.0", "-0.0", "0.001", "9999999.0", "1.0E7", "1.23456789E8", "-1.5E-9", "Infinity"]


PROPERTIES = r"""
# a comment
  ! another, indented
a=1
b : 2
c 3
 d=  four\
     -and-more
e\=f = g=h
empty
path = C:\\data
#=no
uni = \u00e9\ud83d\ude00
tab\tname = x\ty
last = 1
last = 2 """


def test_properties_syntax(tmp_path: Path) -> None:
    expected = {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "four-and-more",
        "e=f": "g=h",
        "empty": "",
        "path": "C:\\data",
        "uni": "é😀",
        "tab\tname": "x\ty",
        "last": "2 ",
    }
    assert parse_properties(PROPERTIES) == expected
    path = tmp_path / "server.properties"
    path.write_bytes(PROPERTIES.replace("\n", "\r\n").encode())
    assert load_properties(path) == expected
    assert parse_properties("x=1\\") == {"x": "1"}
    assert parse_properties("# comment \\\nx=1") == {"x": "1"}


def test_a_malformed_escape_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"uXXXX escape in the line of a\.b$"):
        parse_properties("a.b = \\u12g4")


def test_the_refusal_of_a_malformed_escape_tells_no_password() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_properties("ssl.key.password=s3cret\\users")
    told = f"{refused.value} {refused.value!r} {refused.value.value}"
    assert "ssl.key.password" in told
    assert "s3cret" not in told
    assert "sers" not in told


@given(st.text())
def test_any_text_gives_properties_or_an_error(text: str) -> None:
    if "\\u" in text:
        with suppress(ConfigError):
            parse_properties(text)
    else:
        assert isinstance(parse_properties(text), dict)


@given(st.dictionaries(st.text(string.printable, min_size=1), st.text(string.printable), max_size=4))
def test_escaped_properties_come_back(wanted: dict[str, str]) -> None:
    def escape(text: str) -> str:
        return "".join(f"\\u{ord(character):04x}" for character in text)

    assert parse_properties("\n".join(f"{escape(k)}={escape(v)}" for k, v in wanted.items())) == wanted


def test_a_start_without_a_file() -> None:
    config = ServerConfig.from_properties(defaults_without_file())
    assert config.node_id == 1
    assert config.roles == {"broker", "controller"}
    assert config.broker_listeners() == (EndPoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.controller_listeners() == (EndPoint("CONTROLLER", "127.0.0.1", 9093, "PLAINTEXT"),)
    assert config.log_dirs == ("./kafkacompat-data",)
    assert config.metadata_log_dir == "./kafkacompat-data"
    assert config.get_int("offsets.topic.replication.factor") == 1
    assert config.get_int("transaction.state.log.min.isr") == 1
    assert (config.unknown, config.without_effect, config.warnings) == ((), (), ())


def test_overrides_win_and_odd_names_are_reported() -> None:
    config = ServerConfig.from_properties(
        {**BASE, "num.partitions": "3", "no.such.setting": "x", "ssl.keymanager.algorithm": "x"},
        {"num.partitions": "5"},
    )
    assert config.get_int("num.partitions") == 5
    assert config.unknown == ("no.such.setting",)
    assert config.without_effect == ("ssl.keymanager.algorithm",)


def test_settings_of_the_authorizer_have_an_effect_where_there_is_one() -> None:
    odd = {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"}
    without = ServerConfig.from_properties(BASE, odd)
    assert (without.unknown, set(without.without_effect)) == ((), set(odd))
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    secured = ServerConfig.from_properties(BASE, odd | {"authorizer.class.name": authorizer})
    assert (secured.unknown, secured.without_effect) == ((), ())


def test_settings_that_stand_for_one_another() -> None:
    config = start()
    assert config.get_int("log.retention.ms") == 604800000
    assert config.get_int("log.roll.ms") == 604800000
    assert config.get_int("log.roll.jitter.ms") == 0
    assert config.get_int("log.flush.interval.ms") == 2**63 - 1
    config = start(log_retention_hours="5", log_roll_hours="2", log_roll_jitter_hours="1")
    assert [config.get_int(f"log.{x}.ms") for x in ("retention", "roll", "roll.jitter")] == [
        18000000,
        7200000,
        3600000,
    ]
    config = start(log_retention_hours="5", log_retention_minutes="7", log_roll_hours="2", log_roll_ms="9")
    assert [config.get_int(f"log.{x}.ms") for x in ("retention", "roll")] == [420000, 9]
    assert start(log_retention_minutes="-5").get_int("log.retention.ms") == -1
    assert start(log_flush_scheduler_interval_ms="77").get_int("log.flush.interval.ms") == 77
    assert start(log_dirs=None, log_dir="/a, /b").log_dirs == ("/a", "/b")
    assert start(log_dirs="/a,/b", metadata_log_dir="/m").metadata_log_dir == "/m"
    assert start(node_id=None, broker_id="1").node_id == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": "PLAINTEXT://:0,CONTROLLER://:0"},
        {"listeners": "plaintext://:9092,CONTROLLER://:9093"},
        {"listeners": "PLAINTEXT://[::1]:9092,CONTROLLER://127.0.0.1:9092"},
        {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,PLAINTEXT://:9092"},
        {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "h:1"},
        {"process.roles": "broker", "listeners": "PLAINTEXT://:9092", "controller.quorum.voters": "2@h:1"},
        {"process.roles": "controller", "listeners": "CONTROLLER://:9093"},
        {
            "process.roles": "controller",
            "listeners": "CONTROLLER://:9093",
            "cordoned.log.dirs": "/of/brokers",
        },
        {
            "process.roles": "controller",
            "listeners": "CONTROLLER://:9093",
            "remote.log.storage.system.enable": "true",
            "log.local.retention.ms": "604800001",
        },
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
        {"replica.fetch.wait.max.ms": "30000"},
        {"log.cleanup.policy": ""},
        {"early.start.listeners": "CONTROLLER"},
        {"advertised.listeners": "PLAINTEXT://h:1"},
        {"cordoned.log.dirs": "/tmp/x"},
    ],
)
def test_a_node_starts(changes: dict[str, str | None]) -> None:
    assert start_with(changes).warnings == ()


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"node.id": None}, "node.id"),
        ({"node.id": "-1"}, "node.id"),
        ({"broker.id": "2"}, "node.id"),
        ({"process.roles": None}, "process.roles"),
        ({"process.roles": ""}, "process.roles"),
        ({"process.roles": "foo"}, "process.roles"),
        ({"listeners": ""}, "listeners"),
        ({"listeners": "junk"}, "listeners"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9095,CONTROLLER://:9093"}, "listeners"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://:9092,FOO://:9094,CONTROLLER://:9093"}, "listeners"),
        ({"listeners": "PLAINTEXT://h:70000,CONTROLLER://:9093"}, "listeners"),
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093"}, "advertised.listeners"),
        ({"advertised.listeners": "FOO://a:1"}, "advertised.listeners"),
        ({"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "advertised.listeners"),
        ({"advertised.listeners": "CONTROLLER://h:1"}, "advertised.listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT:FOO"}, "listener.security.protocol.map"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "listener.security.protocol.map"),
        ({"controller.listener.names": None}, "controller.listener.names"),
        ({"controller.listener.names": "CONTROLLER,FOO"}, "controller.listener.names"),
        ({"controller.quorum.voters": None}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "2@h:1"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "x"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "1@h:65536"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "4294967297@h:1"}, "controller.quorum.voters"),
        ({"controller.quorum.voters": "1@h:" + "9" * 5000}, "controller.quorum.voters"),
        ({"listeners": "PLAINTEXT://h:" + "9" * 5000}, "listeners"),
        ({"controller.quorum.bootstrap.servers": "h"}, "controller.quorum.bootstrap.servers"),
        ({"process.roles": "broker"}, "controller.quorum.voters"),
        ({"process.roles": "controller"}, "listeners"),
        (
            {
                "process.roles": "broker",
                "listeners": "PLAINTEXT://:9092",
                "controller.quorum.voters": "2@h:1",
                "controller.quorum.auto.join.enable": "true",
            },
            "controller.quorum.auto.join.enable",
        ),
        ({"inter.broker.listener.name": "FOO"}, "inter.broker.listener.name"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name"),
        ({"security.inter.broker.protocol": "SSL"}, "inter.broker.listener.name"),
        ({"early.start.listeners": "FOO"}, "early.start.listeners"),
        ({"log.roll.ms": "0"}, "log.roll.ms"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"log.retention.hours": "0"}, "log.retention.ms"),
        ({"log.dirs": ""}, "log.dirs"),
        (
            {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"},
            "log.cleaner.min.compaction.lag.ms",
        ),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads"),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "log.cleaner.dedupe.buffer.size"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.fetch.wait.max.ms"),
        ({"queued.max.request.bytes": "100"}, "queued.max.request.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        ({"max.connections.per.ip.overrides": "a b:5"}, "max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "h"}, "max.connections.per.ip.overrides"),
        (
            {"connection.failed.authentication.delay.ms": "600000"},
            "connection.failed.authentication.delay.ms",
        ),
        ({"group.consumer.heartbeat.interval.ms": "4000"}, "group.consumer.heartbeat.interval.ms"),
        ({"group.consumer.max.session.timeout.ms": "1000"}, "group.consumer.max.session.timeout.ms"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols"),
        ({"offsets.topic.compression.codec": "9"}, "offsets.topic.compression.codec"),
        (
            {"share.coordinator.state.topic.compression.codec": "9"},
            "share.coordinator.state.topic.compression.codec",
        ),
        ({"cordoned.log.dirs": "/nope"}, "cordoned.log.dirs"),
        ({"cordoned.log.dirs": "*,/tmp/kafka-logs"}, "cordoned.log.dirs"),
        ({"group.streams.task.offset.interval.ms": "14999"}, "group.streams.task.offset.interval.ms"),
        ({"group.streams.num.warmup.replicas": "21"}, "group.streams.num.warmup.replicas"),
    ],
)
def test_a_node_does_not_start(changes: dict[str, str | None], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start_with(changes)
    assert caught.value.setting == setting
    assert setting in str(caught.value)


def test_a_heartbeat_too_slow_for_the_session_is_a_warning() -> None:
    (warning,) = start(broker_heartbeat_interval_ms="4501").warnings
    assert "broker.heartbeat.interval.ms (4501)" in warning


@given(st.text(alphabet="PLAINTEXT:/,[]0.19@-", max_size=40))
def test_any_listeners_text_is_taken_or_refused(text: str) -> None:
    with suppress(ConfigError):
        assert start(listeners=text).listeners()


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a,b", ("a", "b")),
        (" a\t, \n,b ,, c d ,a", ("a", "", "b", "c d")),
        (",", ("",)),
        ("", ()),
        (f"a{' ' * 1_000_000}b", (f"a{' ' * 1_000_000}b",)),
    ],
)
def test_a_list_is_cut_at_its_commas(text: str, entries: tuple[str, ...]) -> None:
    """In one pass: a client may send a value with many blanks."""
    assert parse_typed("some.list", ConfigType.LIST, text) == entries


@pytest.mark.parametrize("text", ["1.", ".5", "1.5e-3", "+7d", "NaN", "-Infinity", "1" * 300])
def test_a_double_is_read(text: str) -> None:
    assert isinstance(parse_typed("some.double", ConfigType.DOUBLE, text), float)


@pytest.mark.parametrize("text", ["1.5.", ".", "1e", "x", "1" * 1_000_000 + "x"])
def test_what_is_no_double_is_refused_in_one_pass(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_typed("some.double", ConfigType.DOUBLE, text)
