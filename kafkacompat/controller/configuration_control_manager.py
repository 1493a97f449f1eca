"""AlterConfigs and IncrementalAlterConfigs (KIP-339): the settings of topics, brokers, groups and client metrics
subscriptions (ConfigurationControlManager, ControllerConfigurationValidator). Pure.

A broker checks changes to its own settings before it forwards the request (ConfigAdminManager); the active controller checks
all changes.

`clear_elr_records` has the eligible leader replicas removed by a change of settings or features (KIP-966). If a partition has
an ISR, it may commit by other rules from now on, and replicas outside may lack new records. So none of them stays eligible.
If the ISR is empty nothing is committed, and the eligible replicas still have everything. Apache Kafka 4.3.0 removes them in
that case too, after which no replica may lead the partition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from kafkacompat.config import (
    ConfigError,
    ConfigType,
    ServerConfig,
    broker_keys,
    group_keys,
    topic_keys,
    validate_topic_configs,
)
from kafkacompat.config.client_metrics import INTERVAL_MAX_MS, INTERVAL_MIN_MS, NAMES, parse_subscription
from kafkacompat.config.describe import describe_topic, source_of_default
from kafkacompat.config.dynamic import settings_in_force, validate_dynamic_broker
from kafkacompat.config.group import validate_group_configs
from kafkacompat.config.keys import render_value
from kafkacompat.config.topic import broker_default
from kafkacompat.controller.controller_result import ControllerResult, cut_to_fit
from kafkacompat.controller.features import (
    CORDONED_LOG_DIRS_SINCE,
    METADATA_VERSIONS,
    cordoned_directories_supported,
    elr_enabled,
    metadata_version,
    partition_version,
)
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.mirrored_topics import check_mirror, turning_back
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION, ControllerSettings
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import parse_int
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest
from kafkacompat.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse as OldResourceResponse,
)
from kafkacompat.wire.messages.alter_configs_response import AlterConfigsResponse
from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.create_topics_response import CreatableTopicConfigs
from kafkacompat.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from kafkacompat.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord

CORDONED_LOG_DIRS = "cordoned.log.dirs"
MAX_TOPIC_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_flaw(name: str) -> str | None:
    """Kafka's text for what is wrong with a topic's name. None for a valid name."""
    flaw: str | None = None
    if not name:
        flaw = "the empty string is not allowed"
    elif name in (".", ".."):
        flaw = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        flaw = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif not _LEGAL.match(name):
        flaw = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None if flaw is None else f"Topic name is invalid: {flaw}"


CHARACTERS_A_UNIT = 32
"""Characters of a value that count as one unit of a step."""
TOPIC, BROKER, GROUP = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.GROUP
SETTINGS_MAX = 2_000
"""Of one resource, in one request. They are compared, checked and written in one step. A topic has some forty, a broker
some more for each listener."""
SETTINGS_IN_ALL_MAX = 2_500
"""Of a broker, which may have settings of any name: whoever changes one of them checks and reads all in one step."""
CHARACTERS_MAX = 256 * 1024
"""Of their values together. A list takes 50 ns a character to read."""
CHANGED_TYPES = frozenset({TOPIC, BROKER, GROUP, ConfigResourceType.CLIENT_METRICS})


class ConfigRefused(Exception):
    """The changes to one resource are refused."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = cut_to_fit(message)


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on one setting (KIP-339). AlterConfigs only sets."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


OPERATIONS = frozenset(Operation)


@dataclass(frozen=True, slots=True)
class Change:
    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ResourceChange:
    type: int
    name: str
    changes: list[Change]


def check_count(element: Any) -> None:
    """Before any look at the settings of a resource of a request. Raises ConfigRefused INVALID_CONFIG."""
    if len(element.configs) > SETTINGS_MAX:
        text = f"More than {SETTINGS_MAX} settings of one resource in one request."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)


def check_all(resource: ResourceChange, wanted: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Before any look at the values that a broker's settings get. Raises ConfigRefused INVALID_CONFIG. What is too much already may
    become less."""
    if resource.type != BROKER:
        return  # a topic has no settings but those that are known
    if len(wanted) > SETTINGS_IN_ALL_MAX and len(wanted) > len(current):
        text = f"More than {SETTINGS_IN_ALL_MAX} settings of one resource."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    size = sum(map(len, wanted.values()))
    if size > CHARACTERS_MAX and size > sum(map(len, current.values())):
        text = f"The settings of one resource have more than {CHARACTERS_MAX} characters."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)


def changes_of(element: Any, pace: Pace, *, incremental: bool) -> Work[ResourceChange]:
    """`element` is a resource of either request."""
    resource = ResourceChange(element.resource_type, element.resource_name, [])
    for config in element.configs:
        operation = config.config_operation if incremental else Operation.SET
        resource.changes.append(Change(config.name, operation, config.value))
        if pace.is_over(cost_of(config.value)):
            yield TURN_COST
    return resource


def cost_of(value: str | None) -> int:
    """The cost in units of a step."""
    return 1 if value is None else 1 + len(value) // CHARACTERS_A_UNIT


def check_shape(resource: ResourceChange, pace: Pace) -> Work[None]:
    """Raise ConfigRefused INVALID_REQUEST for duplicate names, missing values, unknown operations and unknown resource
    types."""
    names: set[str] = set()
    nulls: list[str] = []
    unknown: int | None = None
    for change in resource.changes:
        names.add(change.name)
        if change.value is None and change.operation != Operation.DELETE:
            nulls.append(change.name)
        if unknown is None and change.operation not in OPERATIONS:
            unknown = change.operation
        if pace.is_over():
            yield TURN_COST
    if len(names) < len(resource.changes):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(nulls))
    if unknown is not None:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    if resource.type not in CHANGED_TYPES:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")


def new_values(
    resource: ResourceChange, current: Mapping[str, str], broker: ServerConfig, pace: Pace
) -> Work[dict[str, str | None]]:
    """The value after each change, None if it removes the setting. `broker` has the defaults of topics.

    Raises ConfigRefused INVALID_CONFIG for a list operation on a setting that is not a list.
    """
    values: dict[str, str | None] = {}
    for change in resource.changes:
        values[change.name] = _new_value(resource.type, change, current.get(change.name), broker)
        if pace.is_over(cost_of(change.value)):
            yield TURN_COST
    return values


def _new_value(resource_type: int, change: Change, current: str | None, broker: ServerConfig) -> str | None:
    if change.operation == Operation.SET:
        return change.value
    if change.operation == Operation.DELETE:
        return None
    operation = Operation(change.operation)
    keys = {TOPIC: topic_keys, BROKER: broker_keys, GROUP: group_keys}.get(ConfigResourceType(resource_type))
    key = keys().get(change.name) if keys is not None else None
    if key is None or key.type is not ConfigType.LIST:
        text = f"Can't {operation.name} to key {change.name} because its type is not LIST."
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    if current is None:
        default = broker_default(broker, change.name) if resource_type == TOPIC else key.default
        current = render_value(key, default)
    entries = [entry for entry in (current or "").split(",") if entry]
    assert change.value is not None
    # Each list may have 16,000 entries.
    operands = dict.fromkeys(change.value.split(","))
    if operation is Operation.APPEND:
        present = set(entries)
        entries.extend(entry for entry in operands if entry not in present)
    else:
        entries = [entry for entry in entries if entry not in operands]
    return ",".join(entries)


def wanted_settings(
    resource: ResourceChange, values: Mapping[str, str | None], current: Mapping[str, str], incremental: bool
) -> dict[str, str]:
    """All settings of the resource after the changes. Those of a broker that it does not take anyway are left out."""
    before: Mapping[str, str] = current if incremental else {}
    if before and resource.type == BROKER:
        before = settings_in_force(before, per_broker=bool(resource.name))
    return {name: value for name, value in {**before, **values}.items() if value is not None}


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
        try:
            check_mirror(image, name, wanted, current)
        except ConfigError as error:
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
        if name not in image.topics:
            text = f"The topic '{name}' does not exist."
            raise ConfigRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    elif resource_type == BROKER:
        # Each broker has its own directories, and has looked at them itself.
        known = {key: value for key, value in wanted.items() if key != CORDONED_LOG_DIRS}
        # Settings must fit those in a broker's file, which another broker has checked itself.
        is_ours = "broker" in settings.static.roles and name in ("", str(settings.node_id))
        in_effect = settings.dynamic(image) if is_ours else None
        try:
            validate_dynamic_broker(known, per_broker=bool(name), current=in_effect)
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
    """A record holds no longer value. Appended entries may make one of several that are shorter."""
    if any(len(value) > MAX_VALUE_LENGTH or len(value.encode()) > MAX_VALUE_LENGTH for value in values):
        raise ConfigRefused(
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


EVERY_TOPIC = ""


def clear_elr_records(image: MetadataImage, topic: str) -> list[MetadataRecord]:
    """Records for one existing topic, or for EVERY_TOPIC."""
    version = partition_version(metadata_version(image.features))
    records = [MetadataRecord(ClearElrRecord(topic_name=topic), 0)]
    for name in sorted(image.topics) if topic == EVERY_TOPIC else (topic,):
        found = image.topics[name]
        for index, partition in sorted(found.partitions.items()):
            eligible, last_known = partition.eligible_leader_replicas, partition.last_known_elr
            if not partition.isr and (eligible or last_known):
                stays = PartitionChangeRecord(
                    topic_id=found.id,
                    partition_id=index,
                    eligible_leader_replicas=list(eligible),
                    last_known_elr=list(last_known),
                )
                records.append(MetadataRecord(stays, version))
    return records


T = TypeVar("T")

STEP = 5_000
"""Units of work in one step, at one or two microseconds each."""
RESOURCE_UNITS = 100
"""Cost of one named resource with a few settings."""


def describe_new_topic(
    image: MetadataImage, settings: ControllerSettings, overrides: Mapping[str, str]
) -> list[CreatableTopicConfigs]:
    """All settings of a topic, sorted by name, as in the CreateTopics v5 response."""
    dynamic = settings.dynamic(image)
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(
                entry.source if entry.name in overrides else source_of_default(dynamic, entry.name)
            ),
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(dynamic, overrides)
    ]


def incremental_alter_configs(
    image: MetadataImage,
    settings: ControllerSettings,
    request: IncrementalAlterConfigsRequest,
    is_direct: bool = False,
) -> Work[ControllerResult[MetadataRecord, IncrementalAlterConfigsResponse]]:
    """`is_direct`: no broker has checked the request."""
    records, responses = yield from _alter_all(
        image,
        settings,
        request.resources,
        AlterConfigsResourceResponse,
        incremental=True,
        is_direct=is_direct,
    )
    response = IncrementalAlterConfigsResponse(responses=responses)
    return ControllerResult(() if request.validate_only else records, response)


def legacy_alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: AlterConfigsRequest, is_direct: bool = False
) -> Work[ControllerResult[MetadataRecord, AlterConfigsResponse]]:
    """The old API: settings that are not named are removed."""
    records, responses = yield from _alter_all(
        image, settings, request.resources, OldResourceResponse, incremental=False, is_direct=is_direct
    )
    response = AlterConfigsResponse(responses=responses)
    return ControllerResult(() if request.validate_only else records, response)


def _alter_all(
    image: MetadataImage,
    settings: ControllerSettings,
    resources: Sequence[Any],
    answer_of: Callable[..., T],
    *,
    incremental: bool,
    is_direct: bool,
) -> Work[tuple[tuple[MetadataRecord, ...], list[T]]]:
    pace = Pace(STEP)
    named = yield from _named(resources, pace)
    records: list[MetadataRecord] = []
    answers: list[T] = []
    for each in resources:
        code, message = yield from _alter(image, settings, each, named, records, pace, incremental, is_direct)
        answers.append(
            answer_of(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return tuple(records), answers


Named: TypeAlias = Counter[tuple[int, str]]
"""The number of occurrences of each (resource type, name)."""


def _named(resources: Sequence[Any], pace: Pace) -> Work[Named]:
    named: Named = Counter()
    for each in resources:
        named[each.resource_type, each.resource_name] += 1
        if pace.is_over():
            yield TURN_COST
    return named


def _alter(
    image: MetadataImage,
    settings: ControllerSettings,
    element: Any,
    named: Named,
    records: list[MetadataRecord],
    pace: Pace,
    incremental: bool,
    is_direct: bool,
) -> Work[tuple[ErrorCode, str | None]]:
    """Alter one resource and add its records. Returns its error code and message."""
    try:
        if named[element.resource_type, element.resource_name] > 1:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        check_count(element)
        resource = yield from changes_of(element, pace, incremental=incremental)
        records.extend(
            (yield from _alter_config_resource(image, settings, resource, incremental, is_direct, pace))
        )
    except ConfigRefused as refusal:
        return refusal.code, refusal.message
    finally:
        if pace.is_over(RESOURCE_UNITS):
            yield TURN_COST
    return ErrorCode.NONE, None


def _alter_config_resource(
    image: MetadataImage,
    settings: ControllerSettings,
    resource: ResourceChange,
    incremental: bool,
    is_direct: bool,
    pace: Pace,
) -> Work[list[MetadataRecord]]:
    yield from check_shape(resource, pace)
    if resource.type == BROKER and resource.name:
        check_node(image, settings, resource.name)
    _check_lengths(change.value for change in resource.changes if change.value is not None)
    current = image.config(resource.type, resource.name)
    defaults = settings.dynamic(image).effective
    values = yield from new_values(resource, current, defaults, pace)
    wanted = wanted_settings(resource, values, current, incremental)
    check_all(resource, wanted, current)
    written = {
        name: value
        for name, value in values.items()
        # A broker's settings are written even if unchanged, because brokers then reload files (KAFKA-14136).
        if value != current.get(name) or resource.type == BROKER
    }
    _check_lengths(value for value in written.values() if value is not None)
    if not incremental:
        written.update({name: None for name in current if name not in wanted})
    if resource.type == ConfigResourceType.CLIENT_METRICS:
        yield TURN_COST  # its expressions may take some milliseconds to compile
    if resource.type == BROKER and CORDONED_LOG_DIRS in written:
        _check_cordoned(image, current.get(CORDONED_LOG_DIRS), written[CORDONED_LOG_DIRS], is_direct)
    validate(image, settings, resource.type, resource.name, wanted, current)
    elr = elr_enabled(image.features)
    if elr and resource.type == BROKER and MIN_INSYNC_REPLICAS in written:
        if resource.name:
            text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
        if written[MIN_INSYNC_REPLICAS] is None:
            text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    records = [
        MetadataRecord(
            ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0
        )
        for name, value in written.items()
    ]
    if resource.type == TOPIC:
        records.extend((yield from turning_back(image, resource.name, written)))
    if elr and MIN_INSYNC_REPLICAS in written and resource.type in (TOPIC, BROKER):
        records.extend(clear_elr_records(image, resource.name if resource.type == TOPIC else EVERY_TOPIC))
    return records


def _check_cordoned(image: MetadataImage, current: str | None, wanted: str | None, is_direct: bool) -> None:
    """A controller does not know a broker's directories: what it is asked directly can only take some off the list."""
    if not cordoned_directories_supported(metadata_version(image.features)):
        least = METADATA_VERSIONS[CORDONED_LOG_DIRS_SINCE]
        text = f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires metadata.version >= {least}"
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)
    if is_direct and wanted is not None and wanted.strip():
        cordoned = {each.strip() for each in current.split(",")} if current is not None else set()
        if not cordoned.issuperset(each.strip() for each in wanted.split(",")):
            text = (
                f"When updating {CORDONED_LOG_DIRS} via controllers,  the new value must be a subset of the current "
                "configuration value."
            )
            raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)


def allows_unclean_elections(records: Iterable[MetadataRecord]) -> bool:
    """Whether the records of a command set unclean.leader.election.enable to true."""
    return any(
        isinstance(record.message, ConfigRecord)
        and record.message.name == UNCLEAN_LEADER_ELECTION
        and (record.message.value or "").strip().lower() == "true"
        for record in records
    )
