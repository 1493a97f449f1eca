"""AlterConfigs and IncrementalAlterConfigs, and the settings of CreateTopics: image and request -> records and
response.

Pure. The order of refusals is Kafka's: first those of the receiving broker before it forwards (duplicates, nulls,
unknown operations), then those of the controller (configuration_validator.py). With eligible leader replicas enabled,
min.insync.replicas stays a cluster default, and any change of it removes the eligible leaders concerned (KIP-966;
eligible.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from kafkacompat.config.describe import describe_topic
from kafkacompat.controller.config_changes import (
    BROKER,
    TOPIC,
    ConfigRefused,
    ResourceChange,
    changes_of,
    check_shape,
    new_values,
    wanted_settings,
)
from kafkacompat.controller.configuration_validator import (
    MAX_VALUE_LENGTH,
    check_node,
    too_long,
    validate,
)
from kafkacompat.controller.eligible import EVERY_TOPIC, clear_elr_records
from kafkacompat.controller.features import elr_enabled
from kafkacompat.controller.image import ConfigResourceType, MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.tasks import TURN_COST, Pace, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_configs_request import AlterConfigsRequest
from kafkacompat.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse as OldResourceResponse,
)
from kafkacompat.wire.messages.alter_configs_response import AlterConfigsResponse
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.create_topics_response import CreatableTopicConfigs
from kafkacompat.wire.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from kafkacompat.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")

STEP = 5_000
"""Units of work in one step, at one or two microseconds each."""
RESOURCE_UNITS = 100
"""Cost of one named resource with a few settings."""


def describe_new_topic(
    image: MetadataImage, settings: ControllerSettings, overrides: Mapping[str, str]
) -> list[CreatableTopicConfigs]:
    """All settings of a topic, sorted by name, as in the CreateTopics v5 response."""
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(settings.dynamic(image), overrides)
    ]


def incremental_alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: IncrementalAlterConfigsRequest
) -> Work[ControllerResult[MetadataRecord, IncrementalAlterConfigsResponse]]:
    records, responses = yield from _alter_all(
        image, settings, request.resources, AlterConfigsResourceResponse, incremental=True
    )
    response = IncrementalAlterConfigsResponse(responses=responses)
    return ControllerResult(() if request.validate_only else records, response)


def legacy_alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: AlterConfigsRequest
) -> Work[ControllerResult[MetadataRecord, AlterConfigsResponse]]:
    """The old API: settings that are not named are removed."""
    records, responses = yield from _alter_all(
        image, settings, request.resources, OldResourceResponse, incremental=False
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
) -> Work[tuple[tuple[MetadataRecord, ...], list[T]]]:
    pace = Pace(STEP)
    named = yield from _named(resources, pace)
    records: list[MetadataRecord] = []
    answers: list[T] = []
    for each in resources:
        resource = yield from changes_of(each, pace, incremental=incremental)
        code, message = yield from _alter(image, settings, resource, named, records, pace, incremental)
        answers.append(
            answer_of(
                error_code=code,
                error_message=message,
                resource_type=resource.type,
                resource_name=resource.name,
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
    resource: ResourceChange,
    named: Named,
    records: list[MetadataRecord],
    pace: Pace,
    incremental: bool,
) -> Work[tuple[ErrorCode, str | None]]:
    """Alter one resource and add its records. Returns its error code and message."""
    try:
        if named[resource.type, resource.name] > 1:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        records.extend((yield from _alter_config_resource(image, settings, resource, incremental, pace)))
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
    pace: Pace,
) -> Work[list[MetadataRecord]]:
    yield from check_shape(resource, pace)
    if resource.type == BROKER and resource.name:
        check_node(image, settings, resource.name)
    if any(change.value is not None and len(change.value) > MAX_VALUE_LENGTH for change in resource.changes):
        raise too_long()
    current = image.config(resource.type, resource.name)
    defaults = settings.dynamic(image).effective
    values = yield from new_values(resource, current, defaults, pace)
    wanted = wanted_settings(values, current, incremental)
    written = {
        name: value
        for name, value in values.items()
        # A broker's settings are written even if unchanged, because brokers then reload files (KAFKA-14136).
        if value != current.get(name) or resource.type == BROKER
    }
    if not incremental:
        written.update({name: None for name in current if name not in wanted})
    if resource.type == ConfigResourceType.CLIENT_METRICS:
        yield TURN_COST  # its expressions may take some milliseconds to compile
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
    if elr and MIN_INSYNC_REPLICAS in written and resource.type in (TOPIC, BROKER):
        records.extend(clear_elr_records(image, resource.name if resource.type == TOPIC else EVERY_TOPIC))
    return records
