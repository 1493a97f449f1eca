"""Topic, group and dynamic broker settings: what may be set, and what is then in effect.

What is accepted and refused here is what a running Apache Kafka 4.3.0 accepted and refused.
"""

from collections.abc import Iterator, Mapping

import pytest

from kafkacompat.config import (
    ConfigError,
    ConfigSource,
    DynamicConfig,
    LogConfig,
    ServerConfig,
    apply_list_op,
    defaults_without_file,
    describe_group,
    effective,
    group_values,
    keys,
    log_config,
    validate_dynamic_broker,
    validate_group_configs,
    validate_topic_configs,
)
from kafkacompat.config.dynamic import check_thread_counts
from kafkacompat.config.group import GroupConfigManager
from kafkacompat.config.topic import TIERED


def server(**changes: str) -> ServerConfig:
    overrides = {name.replace("_", "."): text for name, text in changes.items()}
    return ServerConfig.from_properties(defaults_without_file(), overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {"cleanup.policy": ""},
        {"cleanup.policy": "delete , compact, delete"},
        {"leader.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": "0:1,1:2"},
        {"leader.replication.throttled.replicas": ""},
        {"min.cleanable.dirty.ratio": "NaN"},
        {"internal.segment.bytes": "100"},
        {"retention.ms": " 55 "},
        {"min.compaction.lag.ms": "9223372036854775807"},
        {"compression.zstd.level": "-131072"},
    ],
)
def test_a_topic_takes(overrides: dict[str, str]) -> None:
    validate_topic_configs(overrides)
    validate_topic_configs(overrides, server())


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms: "),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: "),
        ({"retention.ms": None}, "retention.ms "),
        ({"cleanup.policy": "compact,x"}, "Invalid value x for configuration cleanup.policy: "),
        ({"cleanup.policy": "Compact"}, "Invalid value Compact for configuration cleanup.policy: "),
        (
            {"cleanup.policy": "delete,,compact"},
            "Configuration 'cleanup.policy' values must not be empty",
        ),
        ({"segment.bytes": "14"}, "Invalid value 14 for configuration segment.bytes: "),
        ({"leader.replication.throttled.replicas": "x"}, "Invalid value x for configuration leader.repl"),
        (
            {"leader.replication.throttled.replicas": "0:1,*"},
            "Invalid value 0:1,* for configuration leader.repl",
        ),
        ({"compression.type": ""}, "Invalid value  for configuration compression.type: "),
        ({"compression.gzip.level": "0"}, "Invalid value 0 for configuration compression.gzip.level: "),
        ({"compression.zstd.level": "23"}, "Invalid value 23 for configuration compression.zstd.level: "),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        ),
        ({"preallocate": "maybe"}, "Invalid value maybe for configuration preallocate: "),
        (
            {"min.cleanable.dirty.ratio": "1.5"},
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: ",
        ),
        (
            {"message.timestamp.type": "createtime"},
            "Invalid value createtime for configuration message.timest",
        ),
        ({"max.message.bytes": "-1"}, "Invalid value -1 for configuration max.message.bytes: "),
        ({"segment.ms": "0"}, "Invalid value 0 for configuration segment.ms: "),
        ({"local.retention.ms": "-3"}, "Invalid value -3 for configuration local.retention.ms: "),
        ({"min.insync.replicas": "0"}, "Invalid value 0 for configuration min.insync.replicas: "),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
    ],
)
def test_a_topic_refuses(overrides: dict[str, str | None], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_configs(overrides, server())
    assert str(caught.value).startswith(text)


TIERING = {"remote_log_storage_system_enable": "true"}
COMPACTED = {"remote.storage.enable": "true", "cleanup.policy": "compact"}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_tiered_only_with_a_setting_of_our_own(policy: str) -> None:
    overrides: dict[str, str | None] = {**COMPACTED, "cleanup.policy": policy}
    validate_topic_configs(overrides, server(**TIERING, remote_storage_compacted_topics_enable="true"))
    with pytest.raises(
        ConfigError, match=r"Remote log storage only supports topics with cleanup\.policy=delete "
    ):
        validate_topic_configs(overrides, server(**TIERING))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"retention.bytes": "10", "local.retention.bytes": "11"},
            "Invalid value 11 for configuration local.retention.bytes: Value must not be more than retention.bytes property "
            "value: 10",
        ),
        (
            {"retention.ms": "10", "local.retention.ms": "-1"},
            "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as retention.ms value is set as 10.",
        ),
        (
            {"remote.log.copy.disable": "true", "retention.ms": "10", "local.retention.ms": "9"},
            "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and `retention.ms` must be set to the "
            "identical value because there will be no more logs copied to the remote storage.",
        ),
        (
            {TIERED: "false"},
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
            "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
            "remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`.",
        ),
    ],
)
def test_a_tiered_topic_refuses_with_kafkas_text(changes: dict[str, str], text: str) -> None:
    tiered = {TIERED: "true"}
    with pytest.raises(ConfigError) as caught:
        validate_topic_configs({**tiered, **changes}, server(**TIERING), tiered)
    assert str(caught.value) == text


def test_a_tiered_topic_keeps_being_compacted_or_not() -> None:
    node = server(**TIERING, remote_storage_compacted_topics_enable="true")
    plain = {"remote.storage.enable": "true"}
    validate_topic_configs({**COMPACTED, "cleanup.policy": "delete,compact"}, node, COMPACTED)
    validate_topic_configs({**plain, "retention.ms": "-1"}, node, plain)
    validate_topic_configs(COMPACTED, node, {"cleanup.policy": "delete"})
    for before, after in ((plain, COMPACTED), (COMPACTED, plain)):
        with pytest.raises(ConfigError, match="compaction of a tiered topic cannot begin or end"):
            validate_topic_configs(after, node, before)


@pytest.mark.parametrize("local", ["-1", "11"])
def test_a_broker_with_a_remote_storage_starts_with_no_local_retention_beyond_retention(local: str) -> None:
    settings = {"log_retention_ms": "10", "log_local_retention_ms": local}
    server(**settings)
    server(**TIERING, **{**settings, "log_retention_ms": "-1"})
    with pytest.raises(ConfigError, match=f"Invalid value {local} for configuration log.local.retention.ms"):
        server(**TIERING, **settings)


@pytest.mark.parametrize("unit", ["ms", "bytes"])
def test_a_tiered_topic_keeps_nothing_back_for_longer_than_local_retention(unit: str) -> None:
    node = server(**TIERING)
    lag, local, total = f"remote.copy.lag.{unit}", f"local.retention.{unit}", f"retention.{unit}"
    plain = {TIERED: "true"}
    text = rf"Invalid value 11 for configuration {lag}: Value must not exceed {local} \(effective value: 10\)"
    for kept in ({local: "10"}, {total: "10"}):
        validate_topic_configs({**plain, **kept, lag: "10"}, node)
        validate_topic_configs({**plain, **kept, lag: "-1"}, node)
        validate_topic_configs({**kept, lag: "11"}, node)
        with pytest.raises(ConfigError, match=text):
            validate_topic_configs({**plain, **kept, lag: "11"}, node)
    validate_topic_configs({**plain, total: "-1", lag: "11"}, node)
    with pytest.raises(ConfigError, match=text):
        validate_topic_configs(
            {**plain, local: "10"}, server(**TIERING, **{f"log_remote_copy_lag_{unit}": "11"})
        )


def test_the_other_half_of_a_pair_may_be_the_brokers() -> None:
    validate_topic_configs({"max.compaction.lag.ms": "5"}, server())
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        validate_topic_configs({"max.compaction.lag.ms": "5"}, server(log_cleaner_min_compaction_lag_ms="6"))


def test_lists_are_appended_to_and_subtracted_from() -> None:
    assert apply_list_op("cleanup.policy", "delete", "compact", subtract=False) == "delete,compact"
    assert (
        apply_list_op("cleanup.policy", "delete, compact", "compact,delete", subtract=False)
        == "delete,compact"
    )
    assert apply_list_op("cleanup.policy", "delete,compact", "delete", subtract=True) == "compact"
    assert apply_list_op("cleanup.policy", "compact", "delete", subtract=True) == "compact"
    assert apply_list_op("cleanup.policy", "compact", "compact", subtract=True) == ""
    assert apply_list_op("log.cleanup.policy", None, "compact", subtract=False) == "compact"
    for name in ("retention.ms", "consumer.session.timeout.ms", "nope"):
        with pytest.raises(ConfigError, match=name):
            apply_list_op(name, "5", "6", subtract=False)


def test_a_topic_without_anything_set_has_kafkas_defaults() -> None:
    assert log_config(server(), {}, {}, {}) == LogConfig()
    assert (LogConfig().retention_ms, LogConfig().segment_bytes) == (604800000, 1073741824)
    assert LogConfig().delete
    assert not LogConfig().compact


def test_each_layer_wins_over_the_one_below() -> None:
    static = server(log_retention_hours="1", message_max_bytes="100", log_roll_hours="2")
    assert log_config(static, {}, {}, {}).retention_ms == 3600000
    assert log_config(static, {}, {}, {}).segment_ms == 7200000
    assert log_config(static, {"log.retention.ms": "5"}, {}, {}).retention_ms == 5
    assert log_config(static, {"log.retention.ms": "5"}, {"log.retention.ms": "6"}, {}).retention_ms == 6
    layered: tuple[Mapping[str, str], Mapping[str, str]] = (
        {"log.retention.ms": "5"},
        {"log.retention.ms": "6"},
    )
    assert log_config(static, *layered, {"retention.ms": "7"}).retention_ms == 7
    topic = log_config(
        static, *layered, {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "1"}
    )
    assert topic.compact
    assert topic.delete
    assert topic.min_cleanable_dirty_ratio == 1.0
    assert topic.max_message_bytes == 100
    assert log_config(static, {}, {}, {"foo": "1", "retention.ms": "x"}) == log_config(static, {}, {}, {})


@pytest.mark.parametrize(
    ("changes", "per_broker"),
    [
        ({"foo.bar": "3"}, True),
        ({"listener.name.plaintext.ssl.key.password": "x"}, True),
        ({"log.retention.ms": "100"}, True),
        ({"log.local.retention.ms": "100", "log.local.retention.bytes": "100"}, False),
        ({"leader.replication.throttled.rate": "100"}, False),
        ({"listener.name.x.max.connections": "5"}, False),
        ({"listener.name.x.plain.sasl.jaas.config": "x"}, True),
        ({"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "10"}, False),
    ],
)
def test_a_broker_takes_while_running(changes: dict[str, str], per_broker: bool) -> None:
    validate_dynamic_broker(changes, per_broker=per_broker, current=DynamicConfig(server()))


@pytest.mark.parametrize("setting", ["log.local.retention.ms", "log.remote.copy.lag.ms"])
def test_what_the_file_keeps_for_longer_than_retention_refuses_no_change_of_something_else(
    setting: str,
) -> None:
    current = DynamicConfig(ServerConfig.from_properties(defaults_without_file(), {setting: "604800001"}))
    validate_dynamic_broker({"max.connections": "5"}, per_broker=True, current=current)
    with pytest.raises(ConfigError, match=setting):
        validate_dynamic_broker({"log.retention.ms": "1000"}, per_broker=True, current=current)


STATIC = "Cannot update these configs dynamically: "
UNPREFIXED = "These security configs can be dynamically updated only per-listener using the listener prefix: "
ONE_BROKER = "Cannot update these configs at default cluster level, broker id must be specified: "


@pytest.mark.parametrize(
    ("changes", "per_broker", "text"),
    [
        ({"num.partitions": "3"}, True, STATIC + "[num.partitions]"),
        ({"node.id": "3", "num.partitions": "1"}, True, STATIC + "[node.id, num.partitions]"),
        ({"log.retention.hours": "3"}, False, STATIC + "[log.retention.hours]"),
        ({"advertised.listeners": "PLAINTEXT://h:1"}, True, STATIC + "[advertised.listeners]"),
        ({"ssl.key.password": "x"}, True, UNPREFIXED + "[ssl.key.password]"),
        ({"listeners": "PLAINTEXT://:1"}, False, ONE_BROKER + "[listeners]"),
        ({"sasl.jaas.config": "x"}, False, ONE_BROKER + "[sasl.jaas.config]"),
        (
            {"listener.name.plaintext.ssl.key.password": "x"},
            False,
            ONE_BROKER + "[listener.name.plaintext.ssl.key.password]",
        ),
        ({"log.retention.ms": "x"}, True, "Invalid value x for configuration log.retention.ms: "),
        ({"log.retention.ms": ""}, False, "Invalid value  for configuration log.retention.ms: "),
        ({"log.segment.bytes": "5"}, False, "Invalid value 5 for configuration log.segment.bytes: "),
        ({"leader.replication.throttled.rate": "-5"}, True, "Invalid value -5 for configuration leader."),
        ({"log.retention.ms": "0"}, True, "log.retention.ms "),
        ({"max.connections.per.ip": "0"}, True, "max.connections.per.ip "),
        ({"max.connections": "0"}, False, "Invalid value 0 for configuration max.connections: "),
        (
            {"log.local.retention.ms": "-1"},
            True,
            "Invalid value -1 for configuration log.local.retention.ms: Value must not be -1 as log.retention.ms",
        ),
        (
            {"log.local.retention.bytes": "11", "log.retention.bytes": "10"},
            False,
            "Invalid value 11 for configuration log.local.retention.bytes: Value must not be more than log.reten",
        ),
        (
            {"log.remote.copy.lag.ms": "604800001"},
            True,
            "Invalid value 604800001 for configuration log.remote.copy.lag.ms: Value must not exceed log.local.",
        ),
        (
            {
                "log.remote.copy.lag.bytes": "11",
                "log.local.retention.bytes": "10",
                "log.retention.bytes": "20",
            },
            False,
            "Invalid value 11 for configuration log.remote.copy.lag.bytes: Value must not exceed log.local.rete",
        ),
        ({"max.connection.creation.rate": "0"}, True, "Invalid value 0 for configuration max.connection."),
        (
            {"listener.name.x.max.connections": "0"},
            False,
            "Invalid value 0 for configuration listener.name.x.",
        ),
    ],
)
def test_a_broker_refuses_while_running(changes: dict[str, str], per_broker: bool, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_dynamic_broker(changes, per_broker=per_broker, current=DynamicConfig(server()))
    assert str(caught.value).startswith(text)


TWENTY = {
    "background.threads": "20",
    "log.cleaner.threads": "4",
    "listener.name.plaintext.num.network.threads": "10",
}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"background.threads": "10"}, ""),
        ({"background.threads": "40", "log.cleaner.threads": "8"}, ""),
        (
            {"background.threads": "9"},
            "background.threads=9, value should be at least half the current value 20",
        ),
        (
            {"background.threads": "41"},
            "threads=41, value should not be greater than double the current value 20",
        ),
        (
            {"background.threads": "100000"},
            "Dynamic thread count update validation failed for background.threads=100000",
        ),
        (
            {"num.io.threads": "17"},
            "num.io.threads=17, value should not be greater than double the current value 8",
        ),
        ({"num.replica.fetchers": "3"}, "num.replica.fetchers=3, value should not be greater than double"),
        ({"num.recovery.threads.per.data.dir": "5"}, "num.recovery.threads.per.data.dir=5, value should not"),
        ({"remote.log.reader.threads": "21"}, "remote.log.reader.threads=21, value should not"),
        (
            {"log.cleaner.threads": "9"},
            "Log cleaner threads cannot be increased to more than double the current value 4",
        ),
        (
            {"log.cleaner.threads": "1"},
            "Log cleaner threads cannot be reduced to less than half the current value 4",
        ),
        (
            {"listener.name.plaintext.num.network.threads": "4"},
            "num.network.threads=4, value should be at least half the current value 10",
        ),
        ({"log.retention.ms": "5"}, ""),
    ],
)
def test_a_pool_of_threads_at_most_doubles_and_at_most_halves(changes: dict[str, str], text: str) -> None:
    current = DynamicConfig(server(), {}, TWENTY)
    layer = {**TWENTY, **changes}
    if not text:
        check_thread_counts(layer, per_broker=True, current=current)
        return
    with pytest.raises(ConfigError) as refused:
        check_thread_counts(layer, per_broker=True, current=current)
    assert text in str(refused.value)


def test_a_removed_count_of_threads_goes_back_in_steps_too() -> None:
    current = DynamicConfig(server(), {"num.io.threads": "17"}, {})
    with pytest.raises(ConfigError, match=r"num\.io\.threads=8, value should be at least half"):
        check_thread_counts(
            {}, per_broker=False, current=DynamicConfig(server(), {"num.io.threads": "18"}, {})
        )
    check_thread_counts({}, per_broker=False, current=current)  # 17 // 2 as in Java


def test_the_clusters_default_does_not_count_where_this_broker_has_its_own() -> None:
    current = DynamicConfig(server(), {}, {"background.threads": "20"})
    check_thread_counts({"background.threads": "1"}, per_broker=False, current=current)
    with pytest.raises(
        ConfigError, match=r"num\.network\.threads=7, value should not be greater than double"
    ):
        check_thread_counts({"num.network.threads": "7"}, per_broker=False, current=current)


def test_what_the_metadata_already_has_is_in_effect_whatever_the_file_says() -> None:
    """A broker that starts with 40 threads from the metadata and 10 in its file has 40."""
    assert DynamicConfig(server(), {"background.threads": "400"}, {}).get_int("background.threads") == 400


def test_a_layer_replaces_all_settings_of_the_same_meaning() -> None:
    static = server(log_retention_minutes="7", log_retention_hours="9")
    layered = effective(static, {"log.retention.ms": "5"}, {})
    assert layered.get_int("log.retention.ms") == 5
    assert (layered.value("log.retention.minutes"), layered.value("log.retention.hours")) == (None, 168)
    assert static.get_int("log.retention.ms") == 420000


def test_what_may_not_be_in_a_layer_is_left_out_with_a_reason() -> None:
    config = DynamicConfig(
        server(),
        {
            "log.retention.ms": "x",
            "num.partitions": "9",
            "listeners": "PLAINTEXT://:1",
            "message.max.bytes": "7",
        },
        {"max.connections.per.ip": "0", "log.roll.ms": "8", "max.connections": "4"},
    )
    assert set(config.refused) == {
        "log.retention.ms",
        "num.partitions",
        "listeners",
        "max.connections.per.ip",
    }
    assert (
        config.get_int("message.max.bytes"),
        config.get_int("max.connections"),
        config.get_int("num.partitions"),
    ) == (
        7,
        4,
        1,
    )
    assert config.log_config() is config.log_config({})
    assert config.log_config().segment_ms == 8
    assert config.log_config({"segment.ms": "9"}).segment_ms == 9


@pytest.mark.parametrize(
    "overrides",
    [
        {"consumer.session.timeout.ms": "46000"},
        {"share.auto.offset.reset": "by_duration:PT1H"},
        {"share.auto.offset.reset": "by_duration:P2DT3H4.5S"},
        {"share.auto.offset.reset": f"by_duration:PT{2**63 - 1}S"},
        {"share.auto.offset.reset": "earliest"},
        {"share.isolation.level": "read_committed"},
    ],
)
def test_a_group_takes(overrides: dict[str, str | None]) -> None:
    validate_group_configs(overrides)
    validate_group_configs(overrides, server())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nope", "1"),
        ("consumer.session.timeout.ms", "100"),
        ("consumer.session.timeout.ms", "x"),
        ("consumer.heartbeat.interval.ms", "100000"),
        ("consumer.assignment.interval.ms", "20000"),
        ("share.auto.offset.reset", "LATEST"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:PT"),
        ("share.auto.offset.reset", f"by_duration:P{2**63 // 86_400 + 1}D"),
        ("share.auto.offset.reset", f"by_duration:P1DT{2**63 - 1}S"),
        ("share.auto.offset.reset", f"by_duration:PT{'9' * 5_000}H"),
        ("share.isolation.level", "x"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.partition.max.record.locks", "5000"),
        ("share.delivery.count.limit", "20"),
        ("share.session.timeout.ms", "70000"),
        ("streams.num.standby.replicas", "3"),
        ("streams.session.timeout.ms", "1"),
        ("streams.initial.rebalance.delay.ms", "-1"),
        ("streams.rack.aware.assignment.tags", "zone, zone"),
        ("streams.task.offset.interval.ms", "14999"),
        ("streams.num.warmup.replicas", "21"),
        ("streams.acceptable.recovery.lag", "-1"),
        ("share.assignor.offload.enable", "maybe"),
    ],
)
def test_a_group_refuses(name: str, text: str) -> None:
    for config in (None, server()):
        with pytest.raises(ConfigError, match=name):
            validate_group_configs({name: text}, config)


def test_a_groups_values_come_from_the_broker_where_not_its_own() -> None:
    config = server(group_consumer_session_timeout_ms="50000")
    values = group_values(config, {"consumer.heartbeat.interval.ms": "6000", "share.isolation.level": "x"})
    assert values["consumer.session.timeout.ms"] == 50000
    assert values["consumer.heartbeat.interval.ms"] == 6000
    assert values["share.isolation.level"] == "read_uncommitted"


def test_a_groups_values_stay_within_the_brokers_bounds() -> None:
    config = server(group_share_max_record_lock_duration_ms="40000")
    own = {
        "share.record.lock.duration.ms": "60000",
        "consumer.session.timeout.ms": "1",
        "streams.num.standby.replicas": "1000",
    }
    values = group_values(config, own)
    assert values["share.record.lock.duration.ms"] == 40000
    assert values["consumer.session.timeout.ms"] == 45000
    assert values["streams.num.standby.replicas"] == 2


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"consumer.session.timeout.ms": "1", "consumer.heartbeat.interval.ms": "1"},
            "consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
        ),
        (
            {"consumer.session.timeout.ms": "90000"},
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            {"share.delivery.count.limit": "1000", "share.partition.max.record.locks": "1000000"},
            "share.delivery.count.limit must be in the range 2 to 10 inclusive.",
        ),
    ],
)
def test_the_first_bound_that_a_group_exceeds_is_told(own: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_group_configs(own, server())
    assert str(refused.value) == message


@pytest.fixture
def new_setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a group setting of which nothing but its row is added."""
    row = {
        "name": "consumer.patience.ms",
        "type": "INT",
        "default": "6000",
        "valid": "[1,...]",
        "importance": "LOW",
        "broker": "group.consumer.heartbeat.interval.ms",
        "minimum": "group.consumer.min.heartbeat.interval.ms",
        "maximum": "group.consumer.max.heartbeat.interval.ms",
        "documentation": "For this test.",
    }
    of_kafka = keys._table
    monkeypatch.setattr(
        keys, "_table", lambda name: of_kafka(name) + ([row] if name == "group-configs.tsv" else [])
    )
    keys.group_keys.cache_clear()
    yield row["name"]
    monkeypatch.undo()
    keys.group_keys.cache_clear()


def test_one_row_declares_a_setting_of_groups(new_setting: str) -> None:
    config = server(group_consumer_heartbeat_interval_ms="7000")
    with pytest.raises(ConfigError, match="must be in the range 5000 to 15000 inclusive"):
        validate_group_configs({new_setting: "20000"}, config)
    with pytest.raises(ConfigError, match="Value must be at least 1"):
        validate_group_configs({new_setting: "0"}, config)
    validate_group_configs({new_setting: "8000"}, config)
    described = {each.name: each for each in describe_group(DynamicConfig(config), {new_setting: "8000"})}
    shown = described[new_setting]
    assert (shown.value, shown.source, shown.documentation) == (
        "8000",
        ConfigSource.GROUP_CONFIG,
        "For this test.",
    )
    own: dict[str, Mapping[str, str]] = {"a": {new_setting: "8000"}, "b": {new_setting: "20000"}, "c": {}}
    manager = GroupConfigManager(lambda: config, own.__getitem__)
    assert [manager.get_int(group_id, new_setting) for group_id in "abc"] == [8_000, 15_000, 7_000]
