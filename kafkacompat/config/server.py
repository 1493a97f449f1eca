"""A node's settings from server.properties and a command line, with dynamic layers over them (KafkaConfig)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafkacompat.addresses import host_and_port
from kafkacompat.config.abstract import AbstractServerConfig
from kafkacompat.config.constraints import check_constraints
from kafkacompat.config.errors import ConfigError
from kafkacompat.config.keys import broker_keys, parse_value
from kafkacompat.config.providers import resolved
from kafkacompat.config.synonyms import broker_synonyms, listener_base
from kafkacompat.config.validators import ConfigValue


def defaults_without_file(
    node_id: int = 1, host: str = "127.0.0.1", port: int = 9092, controller_port: int = 9093
) -> dict[str, str]:
    """The settings for a start without a file: one node with both roles. Also valid for Apache Kafka."""
    return {
        "node.id": f"{node_id}",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{host_and_port(host, port)},CONTROLLER://{host_and_port(host, controller_port)}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": f"{node_id}@{host_and_port(host, controller_port)}",
        "log.dirs": "./kafkacompat-data",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


class ServerConfig(AbstractServerConfig):
    """The settings of one node, created by `from_properties`."""

    __slots__ = ()

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> ServerConfig:
        """Settings from a file's properties and from the command line's overrides, which have precedence.

        Raises ConfigError for a value out of bounds, a missing setting, or settings that do not fit together.
        """
        originals = resolved({**properties, **(overrides or {})})
        if "node.id" in originals:
            originals.setdefault("broker.id", originals["node.id"])
        elif "broker.id" in originals:
            originals["node.id"] = originals["broker.id"]
        config = cls(originals, _parse(originals))
        config.warnings = check_constraints(config)
        return config

    def with_overrides(
        self, layers: Iterable[Mapping[str, str]]
    ) -> tuple[ServerConfig, dict[str, ConfigError]]:
        """These settings with dynamic layers over them, of which later ones have precedence, and the refused values by
        name.

        A setting in a layer replaces all settings of the same meaning. As in Kafka, an invalid value is left out.
        """
        keys = broker_keys()
        originals, values = dict(self.originals), dict(self._values)
        refused: dict[str, ConfigError] = {}
        for layer in layers:
            for name, text in layer.items():
                key = keys.get(name)
                try:
                    value = None if key is None else parse_value(key, text)
                except ConfigError as error:
                    refused[name] = error
                    continue
                for synonym in broker_synonyms(name, with_listener_base=False):
                    if originals.pop(synonym, None) is not None:
                        values[synonym] = keys[synonym].default if synonym in keys else None
                originals[name] = text
                if key is not None:
                    values[name] = value
        return ServerConfig(originals, values), refused


def _parse(originals: Mapping[str, str]) -> dict[str, ConfigValue]:
    keys = broker_keys()
    values: dict[str, ConfigValue] = {}
    for name, key in keys.items():
        if name in originals:
            values[name] = parse_value(key, originals[name])
        elif key.required:
            raise ConfigError(name, None, f"{name} must be set: it has no default", whole=True)
        else:
            values[name] = key.default
    for name, text in originals.items():
        base = listener_base(name)
        if base is not None and base in keys:
            parse_value(replace(keys[base], name=name), text)
    return values
