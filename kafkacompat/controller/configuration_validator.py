"""The valid settings of a topic, a broker, a group or a client metrics subscription. Pure.

Kafka's ControllerConfigurationValidator, and the checks of ConfigurationControlManager before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkacompat.config import ConfigError, validate_topic_configs
from kafkacompat.config.client_metrics import INTERVAL_MAX_MS, INTERVAL_MIN_MS, NAMES, parse_subscription
from kafkacompat.config.dynamic import validate_dynamic_broker
from kafkacompat.config.group import validate_group_configs
from kafkacompat.controller.config_changes import BROKER, GROUP, TOPIC, ConfigRefused
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.controller.topic_name import topic_name_flaw
from kafkacompat.ids import parse_int
from kafkacompat.wire.errors import ErrorCode

MAX_VALUE_LENGTH = 32767


def check_node(image: MetadataImage, settings: ControllerSettings, name: str) -> None:
    """Accept any node that the cluster knows. The broker checks that a client has sent the request to that node."""
    try:
        node_id = parse_int(name)
    except ValueError:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}") from None
    if not (node_id in image.brokers or node_id in image.controllers or node_id == settings.node_id):
        raise ConfigRefused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def validate(
    image: MetadataImage,
    settings: ControllerSettings,
    resource_type: int,
    name: str,
    wanted: Mapping[str, str],
    current: Mapping[str, str],
) -> None:
    if resource_type == TOPIC:
        if not name:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        flaw = topic_name_flaw(name)
        if flaw is not None:
            raise ConfigRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, flaw)
        check_topic_configs(image, settings, wanted, current)
        if name not in image.topics:
            text = f"The topic '{name}' does not exist."
            raise ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    elif resource_type == BROKER:
        try:
            validate_dynamic_broker(wanted, per_broker=bool(name), current=settings.dynamic(image))
        except ConfigError as error:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(error)) from error
    elif resource_type == GROUP:
        if not name:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        try:
            validate_group_configs(wanted, settings.dynamic(image).effective)
        except ConfigError as error:
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
    else:
        _check_client_metrics(name, wanted)


def check_topic_configs(
    image: MetadataImage,
    settings: ControllerSettings,
    overrides: Mapping[str, str],
    existing: Mapping[str, str],
) -> None:
    """Raise ConfigRefused INVALID_CONFIG for invalid settings of a topic."""
    _check_lengths(overrides.values())
    try:
        validate_topic_configs(overrides, settings.dynamic(image).effective, existing)
    except ConfigError as error:
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error


def _check_lengths(values: Iterable[str]) -> None:
    if any(len(value) > MAX_VALUE_LENGTH for value in values):
        raise too_long()


def too_long() -> ConfigRefused:
    return ConfigRefused(
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of "
        f"{MAX_VALUE_LENGTH} bytes.",
    )


def _check_client_metrics(name: str, wanted: Mapping[str, str]) -> None:
    code = ErrorCode.INVALID_REQUEST
    if not name:
        raise ConfigRefused(code, "Subscription name can't be empty")
    for key in wanted:
        if key not in NAMES:
            raise ConfigRefused(code, f"Unknown client metrics configuration: {key}")
    try:
        interval_ms = parse_subscription(wanted).interval_ms
    except ConfigError as error:
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        raise ConfigRefused(
            code,
            f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MIN_MS} and "
            f"{INTERVAL_MAX_MS} (1 hour)",
        )
