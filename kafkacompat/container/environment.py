"""The settings of a node from the environment of a container, as the apache/kafka image (KIP-975) reads it.

Pure: it gets the environment, the text of a mounted server.properties and a reader of the secrets as arguments. It
returns the text of the final server.properties. Values become text of that file as they are, so that a backslash is an
escape, as in the apache/kafka image.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kafkacompat.config.properties import parse_properties
from kafkacompat.dataclass import dataclass

PREFIX: Final = "KAFKA_"
CLUSTER_ID: Final = "CLUSTER_ID"
DEFAULT_CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
ROOT_LOG_LEVEL: Final = "KAFKA_LOG4J_ROOT_LOGLEVEL"
LOGGERS: Final = "KAFKA_LOG4J_LOGGERS"
JVM_OPTIONS: Final = "KAFKA_OPTS"
JAAS_FILE: Final = "java.security.auth.login.config"
METRICS_PORT: Final = "KAFKA_METRICS_LISTENER_PORT"
METRICS_HOST: Final = "KAFKA_METRICS_LISTENER_HOST"
BROKERS: Final = "KAFKA_NUM_BROKERS"
ADVERTISED: Final = "KAFKA_ADVERTISED_LISTENERS"
LISTENERS: Final = "KAFKA_LISTENERS"

WITHOUT_EFFECT: Final = {
    "KAFKA_VERSION": "",
    "KAFKA_HEAP_OPTS": "there is no JVM",
    "KAFKA_JVM_PERFORMANCE_OPTS": "there is no JVM",
    "KAFKA_GC_LOG_OPTS": "there is no JVM",
    "KAFKA_LOG4J_OPTS": "there is no log4j",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL": "the tools write no log",
    "KAFKA_JMX_OPTS": "there is no JMX; KAFKA_METRICS_LISTENER_PORT serves the metrics to Prometheus",
    "KAFKA_JMX_PORT": "there is no JMX; KAFKA_METRICS_LISTENER_PORT serves the metrics to Prometheus",
    "KAFKA_JMX_HOSTNAME": "",
}
"""Variables that are no settings, with the reason that is printed. Compose files set those without a reason for every image."""

_SECRETS: Final = (
    "KAFKA_SSL_KEYSTORE_FILENAME",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS",
    "KAFKA_SSL_KEY_CREDENTIALS",
    "KAFKA_SSL_TRUSTSTORE_FILENAME",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS",
)
_NOT_SETTINGS: Final = frozenset((*WITHOUT_EFFECT, *_SECRETS, ROOT_LOG_LEVEL, LOGGERS, JVM_OPTIONS))
_JVM_ADVICE: Final = {
    "-javaagent": f"{METRICS_PORT} serves the metrics to Prometheus",
    "-Djava.security.krb5.conf": "KRB5_CONFIG names the file of Kerberos",
}
_OF_OTHER_IMAGES: Final = {
    "KAFKA_CFG_": "write KAFKA_NODE_ID in place of KAFKA_CFG_NODE_ID, and so on",
    "KAFKA_ZOOKEEPER_": "there is no ZooKeeper; KAFKA_PROCESS_ROLES and KAFKA_CONTROLLER_QUORUM_VOTERS make the quorum",
}
"""Beginnings of variables that other images of Kafka take, with what to do instead."""
_OF_KUBERNETES: Final = re.compile(
    r"KAFKA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|KAFKA_(\w+_)?PORT=(tcp|udp|sctp)://"
)
"""Kubernetes tells every container of a service whose name begins with `kafka` by such variables, with their values."""
_HOST: Final = re.compile(r"://[^:]*:")
_NOT_LATIN: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\?([^\x00-\xff])")
"""A character that .properties files have as an escape only, with the backslashes before it. The last one of an odd number
has no meaning there."""

LOG4J_LEVELS: Final = {
    "ALL": "DEBUG",
    "TRACE": "DEBUG",
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "WARN": "WARNING",
    "ERROR": "ERROR",
    "FATAL": "CRITICAL",
    "OFF": "CRITICAL",
}
DEFAULTS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""The settings of the apache/kafka image if neither the environment nor a mounted file has any."""
CONTROLLER_PORT_OF_SEVERAL: Final = 10092
BESIDE_DEFAULTS: Final = frozenset((METRICS_PORT, METRICS_HOST, BROKERS))
"""Variables of this image alone. With no other, the defaults apply."""


class EnvironmentRefused(Exception):
    """The environment cannot be used. The text names the variable."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The folder /etc/kafka/secrets."""

    folder: str
    read: Callable[[str], str | None]
    """The text of a file by its path, or None if there is none."""


@dataclass(frozen=True, slots=True)
class Prepared:
    server_properties: str
    """The text of the final file. It may contain passwords."""
    cluster_id: str
    jaas_file: str | None
    """The file with the login modules of the listeners, if KAFKA_OPTS names one."""
    notes: tuple[str, ...]
    """Variables without effect, each with the reason."""


def setting_name(variable: str) -> str:
    """KAFKA_ABC_DEF is abc.def, KAFKA_ABC__DEF is abc_def, KAFKA_ABC___DEF is abc-def."""
    name = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return name.replace("...", "-").replace("..", "_")


def prepare(environment: Mapping[str, str], mounted: str | None, secrets: Secrets) -> Prepared:
    """Return the node's settings. Raises EnvironmentRefused.

    `mounted`: the text of a mounted server.properties. The settings of the environment come after it, so they win.
    """
    variables = {
        name: value for name, value in environment.items() if not _OF_KUBERNETES.match(f"{name}={value}")
    }
    _check_controller(variables)
    if not variables.get(LISTENERS) and variables.get(ADVERTISED):
        variables[LISTENERS] = _HOST.sub("://0.0.0.0:", variables[ADVERTISED])
    if variables.get(METRICS_PORT) and not variables.get(METRICS_HOST):
        # Nobody reaches the loopback interface of a container.
        variables[METRICS_HOST] = "0.0.0.0"
    used = _add_stores(variables, secrets) if "SSL://" in variables.get(ADVERTISED, "") else set()
    settings = {
        variable: f"\n{setting_name(variable)}={on_one_line(value)}"
        for variable, value in variables.items()
        if variable.startswith(PREFIX) and variable not in _NOT_SETTINGS
    }
    # The empty line ends a last line that a backslash continues.
    text = (mounted or "") + "\n" + "".join(settings.values()) + "\n"
    if not (mounted or "").strip() and settings.keys() <= BESIDE_DEFAULTS:
        defaults = DEFAULTS if variables.get(BROKERS, "1") == "1" else _defaults_of_several()
        text = "".join(f"{name}={value}\n" for name, value in defaults.items()) + text
    options = variables.get(JVM_OPTIONS, "").split()
    jaas_file, notes = None, _notes_of_variables(variables, used)
    for name, separator, value in (_option(each) for each in options):
        if name == f"-D{JAAS_FILE}" and separator:
            jaas_file = value
        else:
            advice = _JVM_ADVICE.get(name)
            notes.append(
                f"{name} of {JVM_OPTIONS} has no effect: there is no JVM" + (f"; {advice}" if advice else "")
            )
    return Prepared(text, variables.get(CLUSTER_ID) or DEFAULT_CLUSTER_ID, jaas_file, tuple(notes))


def _defaults_of_several() -> dict[str, str]:
    """The ports of the brokers are in a row, and their number decides about the replicas of internal topics."""
    kept = {
        name: value
        for name, value in DEFAULTS.items()
        if not name.endswith((".replication.factor", ".min.isr"))
    }
    return kept | {
        "controller.quorum.voters": f"1@localhost:{CONTROLLER_PORT_OF_SEVERAL}",
        "listeners": f"PLAINTEXT://:9092,CONTROLLER://:{CONTROLLER_PORT_OF_SEVERAL}",
    }


def _option(word: str) -> tuple[str, str, str]:
    """The name of a JVM's option, what separates it from its value, and the value, which may be a password."""
    found = re.match("([^=:]*)([=:]?)(.*)", word)
    assert found is not None
    return found[1], found[2], found[3]


def _notes_of_variables(variables: Mapping[str, str], used: set[str]) -> list[str]:
    notes = [
        f"{name} has no effect: {WITHOUT_EFFECT[name]}"
        for name in variables
        if WITHOUT_EFFECT.get(name) and variables[name]
    ]
    notes += [
        f"{beginning}* are variables of other images: {advice}"
        for beginning, advice in _OF_OTHER_IMAGES.items()
        if any(name.startswith(beginning) for name in variables)
    ]
    notes += [
        f"{name} has no effect: "
        + (
            "KAFKA_SSL_CLIENT_AUTH asks for no certificates, or the settings have a trust store"
            if used and "TRUSTSTORE" in name
            else f"{ADVERTISED} has no SSL://, or the settings have a key store"
        )
        for name in _SECRETS
        if variables.get(name) and name not in used
    ]
    return notes


def on_one_line(value: str) -> str:
    """A value as one line of a .properties file. Line ends inside it are escaped, unless a backslash before each continues
    the line. The apache/kafka image makes a setting of each line, so it takes no PEM text here."""
    lines = re.sub("\r\n?", "\n", value).rstrip("\n").split("\n")
    if _goes_on(lines[-1]):
        # Otherwise the next setting would be a part of this value.
        lines[-1] = lines[-1][:-1]
    return ("\n" if all(map(_goes_on, lines[:-1])) else "\\n").join(lines)


def _goes_on(line: str) -> bool:
    """Whether a backslash at its end continues the line."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def as_latin(text: str) -> str:
    """The text with escapes for all characters beyond ISO 8859-1, the encoding of .properties files. A byte of the
    environment that is not UTF-8 is taken for a character of that encoding."""
    return _NOT_LATIN.sub(lambda found: found[1] + _escaped(found[2]), text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return chr(ord(character) - 0xDC00)
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _check_controller(variables: dict[str, str]) -> None:
    """A node that is only a controller has no advertised listeners. An empty variable counts as unset."""
    if variables.get("KAFKA_PROCESS_ROLES") == "controller" and not variables.pop(ADVERTISED, ""):
        return
    if variables.get("KAFKA_PROCESS_ROLES") == "controller":
        raise EnvironmentRefused(f"{ADVERTISED} is not supported on a KRaft controller")


def _add_stores(variables: dict[str, str], secrets: Secrets) -> set[str]:
    """Set the paths and passwords of the key stores. The variables name files of the secrets. Return those that were used."""
    used: set[str] = set()
    if not (variables.get("KAFKA_SSL_KEYSTORE_LOCATION") or variables.get("KAFKA_SSL_KEYSTORE_KEY")):
        used.add(_add_location(variables, secrets, "KAFKA_SSL_KEYSTORE"))
        used.add(_add_password(variables, secrets, "KAFKA_SSL_KEY"))
        used.add(_add_password(variables, secrets, "KAFKA_SSL_KEYSTORE"))
    has_trust = variables.get("KAFKA_SSL_TRUSTSTORE_LOCATION") or variables.get(
        "KAFKA_SSL_TRUSTSTORE_CERTIFICATES"
    )
    asks = any(word in variables.get("KAFKA_SSL_CLIENT_AUTH", "") for word in ("required", "requested"))
    if asks and not has_trust:
        used.add(_add_location(variables, secrets, "KAFKA_SSL_TRUSTSTORE"))
        used.add(_add_password(variables, secrets, "KAFKA_SSL_TRUSTSTORE"))
    return used


def _add_location(variables: dict[str, str], secrets: Secrets, store: str) -> str:
    variables[f"{store}_LOCATION"] = _path_of(variables, secrets, f"{store}_FILENAME")
    return f"{store}_FILENAME"


def _add_password(variables: dict[str, str], secrets: Secrets, store: str) -> str:
    path = _path_of(variables, secrets, f"{store}_CREDENTIALS")
    variables[f"{store}_PASSWORD"] = secrets.read(path) or ""
    return f"{store}_CREDENTIALS"


def _path_of(variables: Mapping[str, str], secrets: Secrets, variable: str) -> str:
    if not variables.get(variable):
        raise EnvironmentRefused(f"{variable} is not set; {ADVERTISED} has a listener with TLS")
    path = f"{secrets.folder}/{variables[variable]}"
    if secrets.read(path) is None:
        raise EnvironmentRefused(f"{variable}: there is no file {path}")
    return path


def log_level(environment: Mapping[str, str]) -> str | None:
    """Return the level of all loggers by KAFKA_LOG4J_ROOT_LOGLEVEL, in the words of `kafkacompat start`. Raises
    EnvironmentRefused."""
    level = environment.get(ROOT_LOG_LEVEL, "").strip()
    return _level(ROOT_LOG_LEVEL, level) if level else None


def logger_levels(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the levels of single loggers by KAFKA_LOG4J_LOGGERS, `NAME=LEVEL,...`. Raises EnvironmentRefused."""
    pairs = [each.partition("=") for each in environment.get(LOGGERS, "").split(",") if each.strip()]
    return {name.strip(): _level(LOGGERS, level.strip()) for name, _, level in pairs}


def _level(variable: str, text: str) -> str:
    if text.upper() not in LOG4J_LEVELS:
        raise EnvironmentRefused(f"{variable} takes {', '.join(LOG4J_LEVELS)}, not {text!r}")
    return LOG4J_LEVELS[text.upper()]


def properties_of(prepared: Prepared) -> dict[str, str]:
    return parse_properties(as_latin(prepared.server_properties))
