"""ApiVersions (key 18) on controller listeners: the APIs served there and the levels of every feature.

The response has the version ranges of the controller's table, the features that this software supports and those that
the cluster has finalized. No feature is left out, because no client uses a feature's protocol here, and other nodes
need the levels: a leader checks kraft.version before it adds a voter. Which
cluster and node a client means is not compared, as in Kafka. KIP-35, KIP-511, KIP-584, KIP-919, KIP-1242.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.api_versions import (
    FIRST_VERSION_WITH_MINIMUM_ZERO,
    error_response,
    is_whole_identity,
    take_software,
)
from kafkacompat.api.handler import Handler
from kafkacompat.api.registry import CONTROLLER_ENTRIES
from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest


def handle(node: ControllerNode, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if not take_software(context, request) or not is_whole_identity(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    lowest = 0 if context.api_version >= FIRST_VERSION_WITH_MINIMUM_ZERO else 1
    image = node.image
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=entry.key, min_version=entry.min_version, max_version=entry.max_version)
            for entry in CONTROLLER_ENTRIES
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            if low >= lowest
        ],
        finalized_features_epoch=image.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
            if level > 0
        ],
    )


HANDLER = Handler(handle, error_response)
