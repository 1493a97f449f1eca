"""WriteTxnMarkers (key 27, versions 1-2): the end of transactions, written to the partitions led here. KIP-98, KIP-664 (a tool
that ends hanging ones), KIP-1228 (the transaction's version from version 2 on)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.api.handler import Handler
from kafkacompat.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest


def handle(node: Node, context: RequestContext, request: WriteTxnMarkersRequest) -> Deferred[Any]:
    return node.transactions.markers.write(request)


def error_response(request: WriteTxnMarkersRequest, code: ErrorCode, version: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


HANDLER = Handler(handle, error_response)
