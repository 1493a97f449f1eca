"""AssignReplicasToDirs (key 73, version 0): a broker says in which directory each replica lies. KIP-858."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest


def handle(
    node: ControllerNode, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Deferred[AssignReplicasToDirsResponse]:
    return node.controller.assign_replicas_to_dirs(request, context)


HANDLER = Handler(73, 0, 0, handle, top_level_error(AssignReplicasToDirsResponse))
