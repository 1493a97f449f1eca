"""StreamsGroupTopologyDescriptionUpdate (key 93): a member describes the topology to a plug-in of the broker (KIP-1331).

A plug-in is a class of Java, so there is never one here, and no member is told that a description is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.streams_group_heartbeat import serves_streams_groups
from kafkacompat.wire.messages.streams_group_topology_description_update_response import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.streams_group_topology_description_update_request import (
        StreamsGroupTopologyDescriptionUpdateRequest,
    )


def streams_group_topology_description_update(
    node: Node, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return node.groups.streams.update_topology_description()


HANDLER = Handler(
    is_served=serves_streams_groups,
    function=streams_group_topology_description_update,
    error_response=top_level_error(StreamsGroupTopologyDescriptionUpdateResponse),
    asks_coordinators=True,
)
