"""UpdateFeatures (key 57, versions 0-2): to the controller. KIP-584, KIP-778. Below version 2 an answer names every feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.update_features_response import UpdateFeaturesResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import AnyNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.update_features_request import UpdateFeaturesRequest


def handle(
    node: AnyNode, context: RequestContext, request: UpdateFeaturesRequest
) -> Deferred[UpdateFeaturesResponse]:
    return node.controller.update_features(request, context)


HANDLER = Handler(57, 0, 2, handle, top_level_error(UpdateFeaturesResponse))
