"""The settings of a node from the environment of a container, as the apache/kafka image (KIP-975) reads it.

Pure: it gets the environment, the text of a mounted server.properties and a reader of the secrets as arguments. It
returns the text of the final server.properties.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kafkacompat.config.properties import parse_properties

PREFIX: Final = "KAFKA_"
CLUSTER_ID: Final = "CLUSTER_ID"
DEFAULT_CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
ROOT_LOG_LEVEL: Final = "KAFKA_LOG4J_ROOT_LOGLEVEL"
JVM_OPTIONS: Final = "KAFKA_OPTS"
JAAS_FILE: Final = "java.security.auth.login.config"
ADVERTISED: Final = "KAFKA_ADVERTISED_LISTENERS"
LISTENERS: Final = "KAFKA_LISTENERS"

WITHOUT_EFFECT: Final = {
    "KAFKA_VERSION": "",
    "KAFKA_HEAP_OPTS": "there is no JVM",
    "KAFKA_JVM_PERFORMANCE_OPTS": "there is no JVM",
    "KAFKA_GC_LOG_OPTS": "there is no JVM",
    "KAFKA_LOG4J_OPTS": "there is no log4j",
    "KAFKA_LOG4J_LOGGERS": "the loggers have other names; KAFKA_LOG4J_ROOT_LOGLEVEL sets the level of all",
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
_NOT_SETTINGS: Final = frozenset((*WITHOUT_EFFECT, *_SECRETS, ROOT_LOG_LEVEL, JVM_OPTIONS))
_HOST: Final = re.compile(r"://[^:]*:")
_SYSTEM_PROPERTY: Final = re.compile(r"-D([^\s=]+)=(\S*)")

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
    variables = dict(environment)
    _check_controller(variables)
    if not variables.get(LISTENERS) and variables.get(ADVERTISED):
        variables[LISTENERS] = _HOST.sub("://0.0.0.0:", variables[ADVERTISED])
    if "SSL://" in variables.get(ADVERTISED, ""):
        _add_stores(variables, secrets)
    settings = {
        setting_name(variable): value
        for variable, value in variables.items()
        if variable.startswith(PREFIX) and variable not in _NOT_SETTINGS
    }
    text = (mounted or "") + "".join(f"\n{name}={value}" for name, value in settings.items()) + "\n"
    if not text.strip():
        text = "".join(f"{name}={value}\n" for name, value in DEFAULTS.items())
    options = dict(_SYSTEM_PROPERTY.findall(variables.get(JVM_OPTIONS, "")))
    jaas_file = options.pop(JAAS_FILE, None)
    notes = [
        f"{name} has no effect: {WITHOUT_EFFECT[name]}"
        for name in variables
        if WITHOUT_EFFECT.get(name) and variables[name]
    ]
    notes += [f"-D{name} of {JVM_OPTIONS} has no effect: there is no JVM" for name in options]
    return Prepared(text, variables.get(CLUSTER_ID) or DEFAULT_CLUSTER_ID, jaas_file, tuple(notes))


def _check_controller(variables: dict[str, str]) -> None:
    """A node that is only a controller has no advertised listeners. An empty variable counts as unset."""
    if variables.get("KAFKA_PROCESS_ROLES") == "controller" and not variables.pop(ADVERTISED, ""):
        return
    if variables.get("KAFKA_PROCESS_ROLES") == "controller":
        raise EnvironmentRefused(f"{ADVERTISED} is not supported on a KRaft controller")


def _add_stores(variables: dict[str, str], secrets: Secrets) -> None:
    """Set the paths and passwords of the key stores. The variables name files of the secrets."""
    if not (variables.get("KAFKA_SSL_KEYSTORE_LOCATION") or variables.get("KAFKA_SSL_KEYSTORE_KEY")):
        _add_location(variables, secrets, "KAFKA_SSL_KEYSTORE")
        _add_password(variables, secrets, "KAFKA_SSL_KEY")
        _add_password(variables, secrets, "KAFKA_SSL_KEYSTORE")
    has_trust = variables.get("KAFKA_SSL_TRUSTSTORE_LOCATION") or variables.get(
        "KAFKA_SSL_TRUSTSTORE_CERTIFICATES"
    )
    asks = any(word in variables.get("KAFKA_SSL_CLIENT_AUTH", "") for word in ("required", "requested"))
    if asks and not has_trust:
        _add_location(variables, secrets, "KAFKA_SSL_TRUSTSTORE")
        _add_password(variables, secrets, "KAFKA_SSL_TRUSTSTORE")


def _add_location(variables: dict[str, str], secrets: Secrets, store: str) -> None:
    path = _path_of(variables, secrets, f"{store}_FILENAME")
    variables[f"{store}_LOCATION"] = path


def _add_password(variables: dict[str, str], secrets: Secrets, store: str) -> None:
    path = _path_of(variables, secrets, f"{store}_CREDENTIALS")
    variables[f"{store}_PASSWORD"] = (secrets.read(path) or "").rstrip("\n")


def _path_of(variables: Mapping[str, str], secrets: Secrets, variable: str) -> str:
    if not variables.get(variable):
        raise EnvironmentRefused(f"{variable} is not set; {ADVERTISED} has a listener with TLS")
    path = f"{secrets.folder}/{variables[variable]}"
    if secrets.read(path) is None:
        raise EnvironmentRefused(f"{variable}: there is no file {path}")
    return path


def log_level(environment: Mapping[str, str]) -> str | None:
    """Return the level of all loggers by KAFKA_LOG4J_ROOT_LOGLEVEL, in the words of `kafkacompat start`."""
    level = environment.get(ROOT_LOG_LEVEL, "").strip().upper()
    return {"TRACE": "DEBUG", "ALL": "DEBUG", "OFF": "CRITICAL"}.get(level, level) or None


def properties_of(prepared: Prepared) -> dict[str, str]:
    return parse_properties(prepared.server_properties)
