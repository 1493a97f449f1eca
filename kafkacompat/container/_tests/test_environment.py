"""The environment of the apache/kafka image as settings of a node."""

from __future__ import annotations

import pytest

from kafkacompat.config import ServerConfig
from kafkacompat.container.environment import (
    DEFAULT_CLUSTER_ID,
    DEFAULTS,
    WITHOUT_EFFECT,
    EnvironmentRefused,
    Prepared,
    Secrets,
    as_latin,
    log_level,
    logger_levels,
    prepare,
    properties_of,
    setting_name,
)

FILES = {
    "/s/node.jks": "",
    "/s/store_creds": "of-the-store",
    "/s/key_creds": "of-the-key",
    "/s/trust.jks": "",
    "/s/trust_creds": "of-the-trust",
}
TLS = {
    "KAFKA_ADVERTISED_LISTENERS": "SSL://node:9093",
    "KAFKA_SSL_KEYSTORE_FILENAME": "node.jks",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store_creds",
    "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
}


def prepared(environment: dict[str, str], mounted: str | None = None) -> Prepared:
    return prepare(environment, mounted, Secrets("/s", FILES.get))


def settings(environment: dict[str, str], mounted: str | None = None) -> dict[str, str]:
    return properties_of(prepared(environment, mounted))


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_ABC_DEF", "abc.def"),
        ("KAFKA_ABC__DEF", "abc_def"),
        ("KAFKA_ABC___DEF", "abc-def"),
        ("KAFKA_A_B__C___D_E", "a.b_c-d.e"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_KAFKA_X", "kafka.x"),
        (
            "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
    ],
)
def test_a_variable_names_a_setting(variable: str, setting: str) -> None:
    assert setting_name(variable) == setting


def test_without_settings_the_node_has_those_of_the_image() -> None:
    found = prepared({"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1g"}, "\n  \n")
    config = ServerConfig.from_properties(properties_of(found), {})
    assert (config.node_id, sorted(config.roles)) == (1, ["broker", "controller"])
    assert [(each.listener_name, each.host, each.port) for each in config.listeners()] == [
        ("PLAINTEXT", "", 9092),
        ("CONTROLLER", "", 9093),
    ]
    (advertised,) = config.advertised_broker_listeners()
    assert (advertised.host, advertised.port) == ("localhost", 9092)
    assert found.cluster_id == DEFAULT_CLUSTER_ID
    assert not config.unknown


def test_one_setting_replaces_all_defaults() -> None:
    assert settings({"KAFKA_NODE_ID": "7"}) == {"node.id": "7"}


def test_the_environment_wins_over_a_mounted_file() -> None:
    mounted = "node.id=1\nlog.dirs=/mounted"
    assert settings({"KAFKA_NODE_ID": "7"}, mounted) == {"node.id": "7", "log.dirs": "/mounted"}
    assert settings({}, mounted) == {"node.id": "1", "log.dirs": "/mounted"}


def test_only_variables_of_settings_become_settings() -> None:
    others = dict.fromkeys(WITHOUT_EFFECT, "x")
    others |= {
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "DEBUG",
        "KAFKA_OPTS": "-Da=b",
        "CLUSTER_ID": "c",
        "MY_KAFKA_X": "x",
    }
    found = prepared({"KAFKA_NODE_ID": "7"} | others)
    assert properties_of(found) == {"node.id": "7"}
    assert found.cluster_id == "c"
    assert {note.split(" ")[0] for note in found.notes} == {
        name for name, reason in WITHOUT_EFFECT.items() if reason
    } | {"-Da"}


@pytest.mark.parametrize("service", ["KAFKA", "KAFKA_HEADLESS"])
def test_variables_of_kubernetes_services_are_no_settings(service: str) -> None:
    told = {
        f"{service}_SERVICE_HOST": "10.0.0.1",
        f"{service}_SERVICE_PORT": "9092",
        f"{service}_SERVICE_PORT_CLIENTS": "9092",
        f"{service}_PORT": "tcp://10.0.0.1:9092",
        f"{service}_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        f"{service}_PORT_9092_TCP_PROTO": "tcp",
    }
    assert settings(told) == DEFAULTS
    assert settings(told | {"KAFKA_NODE_ID": "7"}) == {"node.id": "7"}


@pytest.mark.parametrize(
    ("variable", "advice"),
    [("KAFKA_CFG_NODE_ID", "write KAFKA_NODE_ID"), ("KAFKA_ZOOKEEPER_CONNECT", "no ZooKeeper")],
)
def test_variables_of_other_images_are_told(variable: str, advice: str) -> None:
    (note,) = prepared({variable: "1", "KAFKA_NODE_ID": "1"}).notes
    assert advice in note


def test_listeners_are_those_that_are_advertised() -> None:
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "A://one:1,B://two.example:2"}
    assert settings(advertised)["listeners"] == "A://0.0.0.0:1,B://0.0.0.0:2"
    assert settings(advertised | {"KAFKA_LISTENERS": "A://:1"})["listeners"] == "A://:1"


def test_a_controller_advertises_nothing() -> None:
    role = {"KAFKA_PROCESS_ROLES": "controller"}
    assert settings(role | {"KAFKA_ADVERTISED_LISTENERS": ""}) == {"process.roles": "controller"}
    with pytest.raises(EnvironmentRefused, match="KAFKA_ADVERTISED_LISTENERS is not supported"):
        prepared(role | {"KAFKA_ADVERTISED_LISTENERS": "A://one:1"})


def test_stores_and_passwords_come_from_the_secrets() -> None:
    found = settings(TLS)
    assert found["ssl.keystore.location"] == "/s/node.jks"
    assert found["ssl.keystore.password"] == "of-the-store"
    assert found["ssl.key.password"] == "of-the-key"
    assert not [name for name in found if "truststore" in name or "credentials" in name or "filename" in name]


@pytest.mark.parametrize("wanted", ["required", "requested"])
def test_a_listener_that_asks_for_certificates_needs_a_trust_store(wanted: str) -> None:
    asking = TLS | {"KAFKA_SSL_CLIENT_AUTH": wanted}
    with pytest.raises(EnvironmentRefused, match="KAFKA_SSL_TRUSTSTORE_FILENAME"):
        prepared(asking)
    trust = {"KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.jks", "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "trust_creds"}
    found = settings(asking | trust)
    assert (found["ssl.truststore.location"], found["ssl.truststore.password"]) == (
        "/s/trust.jks",
        "of-the-trust",
    )


@pytest.mark.parametrize("missing", sorted(set(TLS) - {"KAFKA_ADVERTISED_LISTENERS"}))
def test_a_missing_secret_is_named(missing: str) -> None:
    with pytest.raises(EnvironmentRefused, match=f"{missing} is not set"):
        prepared({name: value for name, value in TLS.items() if name != missing})
    with pytest.raises(EnvironmentRefused, match=f"{missing}: there is no file /s/nothing"):
        prepared(TLS | {missing: "nothing"})


def test_stores_by_their_settings_need_no_secrets() -> None:
    pem = {"KAFKA_ADVERTISED_LISTENERS": "SASL_SSL://node:9093", "KAFKA_SSL_KEYSTORE_LOCATION": "/pem"}
    assert settings(pem)["ssl.keystore.location"] == "/pem"


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("KAFKA_SSL_KEYSTORE_FILENAME", "has no SSL://"),
        ("KAFKA_SSL_TRUSTSTORE_FILENAME", "has no SSL://"),
    ],
)
def test_secrets_that_are_not_used_are_told(missing: str, reason: str) -> None:
    """Where a listener with TLS has a name of its own, as in the apache/kafka image."""
    named = {"KAFKA_ADVERTISED_LISTENERS": "INSIDE://node:9093", missing: "x"}
    (note,) = prepared(named).notes
    assert note.startswith(f"{missing} has no effect: ")
    assert reason in note


def test_a_trust_store_that_nobody_asks_for_is_told() -> None:
    trust = {"KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.jks", "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "trust_creds"}
    assert [note.split(":")[0] for note in prepared(TLS | trust).notes] == [
        "KAFKA_SSL_TRUSTSTORE_FILENAME has no effect",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS has no effect",
    ]


def test_java_options_name_a_jaas_file() -> None:
    options = {"KAFKA_OPTS": "-Xss1m -Djava.security.auth.login.config=/etc/jaas.conf  -Dx=secret -Dy"}
    found = prepared(options)
    assert found.jaas_file == "/etc/jaas.conf"
    assert found.notes == tuple(
        f"{name} of KAFKA_OPTS has no effect: there is no JVM" for name in ("-Xss1m", "-Dx", "-Dy")
    )


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("-javaagent:/agent.jar=7071:/rules.yml", "KAFKA_METRICS_LISTENER_PORT serves"),
        ("-Djava.security.krb5.conf=/etc/krb5.conf", "KRB5_CONFIG names"),
    ],
)
def test_for_some_java_options_there_is_something_else(option: str, advice: str) -> None:
    (note,) = prepared({"KAFKA_OPTS": option}).notes
    assert advice in note


def test_metrics_are_served_outside_the_container_and_keep_the_defaults() -> None:
    found = settings({"KAFKA_METRICS_LISTENER_PORT": "9404"})
    assert found.items() >= DEFAULTS.items()
    assert (found["metrics.listener.port"], found["metrics.listener.host"]) == ("9404", "0.0.0.0")
    chosen = settings({"KAFKA_METRICS_LISTENER_PORT": "9404", "KAFKA_METRICS_LISTENER_HOST": "::1"})
    assert chosen["metrics.listener.host"] == "::1"
    assert "node.id" not in settings({"KAFKA_METRICS_LISTENER_PORT": "9404"}, "broker.rack=a\n")


def test_several_brokers_are_the_images_default_node_and_others() -> None:
    assert settings({"KAFKA_NUM_BROKERS": "1"}) == {**settings({}), "num.brokers": "1"}
    found = settings({"KAFKA_NUM_BROKERS": "auto"})
    assert (found["num.brokers"], found["listeners"]) == ("auto", "PLAINTEXT://:9092,CONTROLLER://:10092")
    assert found["controller.quorum.voters"] == "1@localhost:10092"
    assert not [name for name in found if "replication" in name or "isr" in name]
    assert "listeners" not in settings({"KAFKA_NUM_BROKERS": "2", "KAFKA_NODE_ID": "1"})


PEM = "-----BEGIN CERTIFICATE-----\nMIIB==\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        ("", ""),
        ("a b = c # d ! e : f", "a b = c # d ! e : f"),
        ("a\\b\\\\c", "ab\\c"),
        (PEM, PEM.rstrip("\n")),
        ("first \\\n   second", "first second"),
        ("first\\\\\nsecond", "first\\\nsecond"),
        ("a\nnode.id=9", "a\nnode.id=9"),
        ("ends with \\", "ends with "),
        ("a\r\nnode.id=9\rb\r\n", "a\nnode.id=9\nb"),
        ("p\xe4ss\u20ac\U0001f511", "p\xe4ss\u20ac\U0001f511"),
        ("\\\u20ac\\\\\u20ac", "\u20ac\\\u20ac"),
        ("\udce4", "\xe4"),
    ],
)
def test_a_value_is_text_of_a_properties_file(value: str, setting: str) -> None:
    """A backslash is an escape there. A line end is a part of the value, and never begins another setting."""
    assert settings({"KAFKA_X": value, "KAFKA_NODE_ID": "1"}, "a=b\\") == {
        "a": "b",
        "node.id": "1",
        "x": setting,
    }
    as_latin(prepared({"KAFKA_X": value}).server_properties).encode("latin-1")


@pytest.mark.parametrize(
    ("said", "level"),
    [("", None), ("trace", "DEBUG"), ("INFO", "INFO"), ("OFF", "CRITICAL"), ("Warn", "WARNING")],
)
def test_log_levels_of_log4j(said: str, level: str | None) -> None:
    assert log_level({"KAFKA_LOG4J_ROOT_LOGLEVEL": said}) == level


def test_levels_of_single_loggers() -> None:
    told = {"KAFKA_LOG4J_LOGGERS": "kafka.authorizer.logger=INFO, kafkacompat.raft = trace,"}
    assert logger_levels(told) == {"kafka.authorizer.logger": "INFO", "kafkacompat.raft": "DEBUG"}
    assert logger_levels({"KAFKA_LOG4J_LOGGERS": ""}) == {}
    assert settings({**told, "KAFKA_NODE_ID": "1"}) == {"node.id": "1"}
    with pytest.raises(EnvironmentRefused, match=r"KAFKA_LOG4J_LOGGERS takes ALL, .*, not ''"):
        logger_levels({"KAFKA_LOG4J_LOGGERS": "kafka.controller"})


def test_another_log_level_is_refused_by_its_variable() -> None:
    with pytest.raises(EnvironmentRefused, match=r"KAFKA_LOG4J_ROOT_LOGLEVEL takes ALL, .*, not 'loud'"):
        log_level({"KAFKA_LOG4J_ROOT_LOGLEVEL": "loud"})
