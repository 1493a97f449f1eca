"""AddOffsetsToTxn (key 25): add a group's partition of the offsets topic to a transaction. KIP-98.

Producers that support transaction.version 2 do not send this request: their TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.transaction_errors import without_fenced
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition, partition_for_key
from kafkacompat.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest

FENCED_SINCE = 2


def handle(node: Node, context: RequestContext, request: AddOffsetsToTxnRequest) -> Deferred[Any]:
    topic = node.image.topics.get(OFFSETS_TOPIC)
    # The offsets topic is created when a client first looks for a group coordinator. A producer does that only after
    # this request, so the topic may not exist yet.
    count = node.dynamic.get_int("offsets.topic.num.partitions") if topic is None else len(topic.partitions)
    partition = TopicPartition(OFFSETS_TOPIC, partition_for_key(request.group_id, count))
    return node.transactions.coordinator.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, frozenset({partition}), 0
    ).then(
        lambda code: AddOffsetsToTxnResponse(
            error_code=without_fenced(code, context.api_version, FENCED_SINCE)
        )
    )


HANDLER = Handler(handle, top_level_error(AddOffsetsToTxnResponse), asks_coordinators=True)
