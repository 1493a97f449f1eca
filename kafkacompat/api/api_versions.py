"""ApiVersions (key 18): the APIs and features that this broker serves.

All version ranges come from the registry's table. Of what is sent on to the controller, which may be of another release, only
those versions are listed that it serves too. A client uses a feature's protocol as soon as it sees the feature.
So only features that are served here are listed, whatever the cluster has finalized. An
unsupported version of ApiVersions itself is answered by `unsupported_version`, always in the form of version 0. A client that
meant another cluster or another node is told to bootstrap again. KIP-35, KIP-511, KIP-584, KIP-1242.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.api.registry import broker_apis
from kafkacompat.wire.apis import APIS, ApiKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.registry import Entry
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest

UNSTABLE_APIS = "unstable.api.versions.enable"
FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_MINIMUM_ZERO = 4
"""Older Java clients throw on a feature whose lowest level is 0."""
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NO_NODE = -1
SERVED_FEATURES = frozenset(
    {
        "metadata.version",
        "kraft.version",
        "eligible.leader.replicas.version",
        "transaction.version",
        "group.version",
        "share.version",
        "streams.version",
    }
)


def handle(node: Node, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if not take_software(context, request) or not is_whole_identity(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        node.cluster_id,
        node.node_id,
    ):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    image = node.image
    own = image.brokers.get(node.node_id)
    supported = {} if own is None else own.features
    unstable = node.config.get_boolean(UNSTABLE_APIS)
    lowest = 0 if context.api_version >= FIRST_VERSION_WITH_MINIMUM_ZERO else 1
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=entry.key, min_version=low, max_version=high)
            for entry in broker_apis(node.client_metrics is not None, unstable).entries
            for low, high in (_advertised(node, entry),)
            if low <= high
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(supported.items())
            if name in SERVED_FEATURES and low >= lowest
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
            if name in SERVED_FEATURES and level > 0
        ],
    )


def _advertised(node: Node, entry: Entry) -> tuple[int, int]:
    """The lowest and the highest version of an API. The highest is below the lowest if there is none."""
    low, high = entry.advertised_min_version, entry.max_version
    if APIS[entry.key].forwardable and (served := node.controller.controller_versions(entry.key)) is not None:
        return max(low, served[0]), min(high, served[1])
    return low, high


def is_whole_identity(request: ApiVersionsRequest) -> bool:
    """Whether a client that means a certain node names its cluster too, and the reverse (KIP-1242)."""
    return (request.cluster_id is None) is (request.node_id == NO_NODE)


def take_software(context: RequestContext, request: ApiVersionsRequest) -> bool:
    """Store the client's software name and version. Return False if they are malformed."""
    if context.api_version >= FIRST_VERSION_WITH_SOFTWARE:
        software = (request.client_software_name, request.client_software_version)
        if any(SOFTWARE.fullmatch(text) is None for text in software):
            return False
        context.client_software = software
    return True


def unsupported_version() -> ApiVersionsResponse:
    """Return the answer to an unsupported version. Encode it as version 0."""
    own = APIS[ApiKey.API_VERSIONS]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=own.key, min_version=own.oldest, max_version=own.latest)],
    )


def error_response(request: ApiVersionsRequest, code: ErrorCode, version: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code)


HANDLER = Handler(handle, error_response)
