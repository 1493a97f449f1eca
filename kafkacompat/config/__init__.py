"""Kafka's settings: definitions, server.properties, layers that change at runtime, and the resulting settings of
topics.

The modules: keys (definitions), properties (file syntax, and values fetched from elsewhere), server (a node's settings),
endpoints (listeners), topic, group, dynamic (layers), describe (DescribeConfigs entries).
"""

from kafkacompat.config.describe import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from kafkacompat.config.dynamic import DynamicConfig, effective, validate_dynamic_broker
from kafkacompat.config.endpoints import EndPoint
from kafkacompat.config.group import group_values, validate_group_configs
from kafkacompat.config.keys import (
    ConfigError,
    ConfigKey,
    ConfigType,
    DynamicScope,
    broker_keys,
    group_keys,
    own_names,
    own_table,
    parse_value,
    render_value,
    topic_keys,
    without_effect_table,
)
from kafkacompat.config.properties import load_properties, parse_properties, resolved
from kafkacompat.config.server import (
    ServerConfig,
    defaults_without_file,
    parse_connection_overrides,
    parse_voters,
)
from kafkacompat.config.topic import LogConfig, apply_list_op, log_config, validate_topic_configs

__all__ = [
    "ConfigEntry",
    "ConfigError",
    "ConfigKey",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "DynamicConfig",
    "DynamicScope",
    "EndPoint",
    "LogConfig",
    "ServerConfig",
    "apply_list_op",
    "broker_keys",
    "defaults_without_file",
    "describe_broker",
    "describe_cluster_defaults",
    "describe_group",
    "describe_topic",
    "effective",
    "group_keys",
    "group_values",
    "load_properties",
    "log_config",
    "own_names",
    "own_table",
    "parse_connection_overrides",
    "parse_properties",
    "parse_value",
    "parse_voters",
    "render_value",
    "resolved",
    "topic_keys",
    "validate_dynamic_broker",
    "validate_group_configs",
    "validate_topic_configs",
    "without_effect_table",
]
