"""UpdateFeatures (FeatureControlManager; KIP-584, KIP-778): changes the levels of the cluster's features, all or none.

Pure: image and request give records and response. Codes and texts are those of Apache Kafka. A level is accepted
only if every broker and every controller supports it. kraft.version is in the quorum's own records:
`wanted_kraft_version` returns the level that the quorum must write once the request is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, cast

from kafkacompat.controller.configuration_control_manager import EVERY_TOPIC, clear_elr_records
from kafkacompat.controller.controller_result import ControllerResult
from kafkacompat.controller.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURE_DEPENDENCIES,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    controller_registration_supported,
    loses_metadata,
    metadata_version,
)
from kafkacompat.controller.image import CONTROLLERS, MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from kafkacompat.wire.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

if TYPE_CHECKING:
    from kafkacompat.wire.messages.register_controller_record import RegisterControllerRecord

BROKER = int(ConfigResourceType.BROKER)
UNSUPPORTED_RANGE = (0, 0)
"""The range of a feature that a node does not list."""
UPDATES_MAX = 1_000
"""Of one request, which is handled in one step. There are seven features."""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class UpdateRefused(Exception):
    """The reason why the whole request is refused with INVALID_UPDATE_VERSION."""


def update_features(
    image: MetadataImage,
    settings: ControllerSettings,
    voters: Sequence[int],
    request: UpdateFeaturesRequest,
    *,
    with_results: bool,
) -> ControllerResult[MetadataRecord, UpdateFeaturesResponse]:
    """`voters` are the quorum's node ids. `with_results`: a successful answer names every feature.

    If a feature is named twice, the last one counts.
    """
    if len(request.feature_updates) > UPDATES_MAX:
        reason = f"More than {UPDATES_MAX} updates in one request."
        return ControllerResult((), refused_update(ErrorCode.INVALID_REQUEST, reason))
    updates = {update.feature: update for update in request.feature_updates}
    known = {name: updates[name].max_version_level for name in SUPPORTED_FEATURES if name in updates}
    proposed = {**image.features, **known}
    records: list[MetadataRecord] = []
    for update in updates.values():
        try:
            records.extend(_update(image, settings, voters, update, proposed))
        except UpdateRefused as refusal:
            return ControllerResult((), refused_update(ErrorCode.INVALID_UPDATE_VERSION, str(refusal)))
    response = UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    if with_results:
        response.results = [
            UpdatableFeatureResult(feature=each.feature, error_code=ErrorCode.NONE, error_message="NONE")
            for each in request.feature_updates
        ]
    return ControllerResult(() if request.validate_only else tuple(records), response)


def refused_update(code: ErrorCode, reason: str) -> UpdateFeaturesResponse:
    text = f"The update failed for all features since the following feature had an error: {reason}"
    return UpdateFeaturesResponse(error_code=code, error_message=text)


def wanted_kraft_version(image: MetadataImage, request: UpdateFeaturesRequest) -> int | None:
    """The new level of kraft.version in an accepted request. None if it is not raised."""
    levels = [each.max_version_level for each in request.feature_updates if each.feature == KRAFT_VERSION]
    if not levels or levels[-1] <= image.features.get(KRAFT_VERSION, 0):
        return None
    return levels[-1]


def _update(
    image: MetadataImage,
    settings: ControllerSettings,
    voters: Sequence[int],
    update: FeatureUpdateKey,
    proposed: Mapping[str, int],
) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level

    def refused(text: str) -> UpdateRefused:
        return UpdateRefused(f"Invalid update version {level} for feature {name}. {text}")

    if update.upgrade_type not in list(UpgradeType):
        raise refused("The controller does not support the given upgrade type.")
    current = metadata_version(image.features) if name == METADATA_VERSION else image.features.get(name, 0)
    if level < 0:
        raise refused("A feature version cannot be less than 0.")
    reason = reason_not_supported(image, settings.node_id, voters, name, level)
    if reason is not None:
        raise refused(reason)
    upgrades = update.upgrade_type == UpgradeType.UPGRADE
    if level < current and upgrades:
        raise refused(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and not upgrades:
        raise refused("Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        return [_metadata_version_record(current, level, update.upgrade_type)]
    if name == KRAFT_VERSION:
        if level < current:
            raise refused("Can't downgrade the version of this feature.")
        return []
    if name not in SUPPORTED_FEATURES:
        raise refused(f"Feature {name} not found.")
    for needed, lowest in FEATURE_DEPENDENCIES.get((name, level), {}).items():
        if proposed.get(needed, 0) < lowest:
            text = f"{name} could not be set to {level} because it depends on {needed} level {lowest}"
            raise refused(text)
    records = [MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0)]
    if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level > 0:
        records.extend(_elr_safety_records(image, settings))
    if name == ELIGIBLE_LEADER_REPLICAS_VERSION and (level > 0) is not (current > 0):
        # While the feature is off, eligible replicas are not maintained, so old entries would be wrong once it is on
        # again.
        records.extend(clear_elr_records(image, EVERY_TOPIC))
    return records


def reason_not_supported(
    image: MetadataImage, node_id: int, voters: Sequence[int], name: str, level: int
) -> str | None:
    """Kafka's text for the first node that does not support the level. This node is checked first."""
    reason = _reason(f"Local controller {node_id}", SUPPORTED_FEATURES.get(name), level)
    if reason is not None:
        return reason
    for broker_id, broker in sorted(image.brokers.items()):
        reason = _reason(f"Broker {broker_id}", broker.features.get(name), level)
        if reason is not None:
            return reason
    if not controller_registration_supported(metadata_version(image.features)):
        return None
    registered = cast("Mapping[int, RegisterControllerRecord]", image.opaque.get(CONTROLLERS, {}))
    for controller_id, record in sorted(registered.items()):
        if controller_id == node_id:
            continue
        stated = {
            each.name: (each.min_supported_version, each.max_supported_version) for each in record.features
        }
        reason = _reason(f"Controller {controller_id}", stated.get(name), level)
        if reason is not None:
            return reason
    for voter in voters:
        if voter != node_id and voter not in registered:
            return f"controller {voter} has not registered, and may not support this feature"
    return None


def _reason(who: str, supported: tuple[int, int] | None, level: int) -> str | None:
    low, high = supported or UNSUPPORTED_RANGE
    if low <= level <= high:
        return None
    if high == 0:
        return f"{who} does not support this feature."
    return f"{who} only supports versions {low if low == high else f'{low}-{high}'}"


def _metadata_version_record(current: int, level: int, upgrade_type: int) -> MetadataRecord:
    if level < current and loses_metadata(current, level):
        if upgrade_type == UpgradeType.UNSAFE_DOWNGRADE:
            text = "Unsafe metadata downgrade is not supported in this version."
        else:
            text = "Refusing to perform the requested downgrade because it might delete metadata information."
        raise UpdateRefused(f"Unsupported metadata.version downgrade from {current} to {level}. {text}")
    return MetadataRecord(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level), 0)


def _elr_safety_records(image: MetadataImage, settings: ControllerSettings) -> list[MetadataRecord]:
    """With eligible leader replicas, min.insync.replicas must be one value for the cluster (KIP-966): set it there and
    remove it from brokers."""
    records: list[MetadataRecord] = []
    if MIN_INSYNC_REPLICAS not in image.config(BROKER, ""):
        value = str(settings.static.get_int(MIN_INSYNC_REPLICAS))
        records.append(_config_record("", value))
    for kind, name in sorted(image.configs):
        if kind == BROKER and name and MIN_INSYNC_REPLICAS in image.config(kind, name):
            records.append(_config_record(name, None))
    return records


def _config_record(broker: str, value: str | None) -> MetadataRecord:
    record = ConfigRecord(resource_type=BROKER, resource_name=broker, name=MIN_INSYNC_REPLICAS, value=value)
    return MetadataRecord(record, 0)
