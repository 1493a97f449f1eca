"""AlterPartition (key 56, versions 2-3): a leader tells the controller who is in sync. KIP-497, KIP-903."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.alter_partition_response import AlterPartitionResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.alter_partition_request import AlterPartitionRequest


def handle(
    node: ControllerNode, context: RequestContext, request: AlterPartitionRequest
) -> Deferred[AlterPartitionResponse]:
    return node.controller.alter_partition(request, context)


HANDLER = Handler(56, 2, 3, handle, top_level_error(AlterPartitionResponse))
