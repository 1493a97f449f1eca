"""Kafka's settings: definitions, server.properties, layers that change while running, and what topics
make of them.

Duty: everything about names and values of settings. Must not know: any other package but ids and wire.errors.
The parts: keys (definitions), properties (file syntax), server (a node's settings), endpoints (listeners),
constraints (what fits together), topic, group, dynamic (layers), describe (DescribeConfigs entries).
"""

from kafkacompat.config.constraints import parse_connection_overrides, parse_voters
from kafkacompat.config.endpoints import EndPoint
from kafkacompat.config.errors import ConfigError
from kafkacompat.config.keys import (
    ConfigKey,
    ConfigType,
    DynamicScope,
    broker_keys,
    group_keys,
    parse_value,
    render_value,
    topic_keys,
)
from kafkacompat.config.properties import load_properties, parse_properties
from kafkacompat.config.server import ServerConfig, defaults_without_file
from kafkacompat.config.topic import LogConfig, apply_list_op, log_config, validate_topic_configs

__all__ = [
    "ConfigError",
    "ConfigKey",
    "ConfigType",
    "DynamicScope",
    "EndPoint",
    "LogConfig",
    "ServerConfig",
    "apply_list_op",
    "broker_keys",
    "defaults_without_file",
    "group_keys",
    "load_properties",
    "log_config",
    "parse_connection_overrides",
    "parse_properties",
    "parse_value",
    "parse_voters",
    "render_value",
    "topic_keys",
    "validate_topic_configs",
]
