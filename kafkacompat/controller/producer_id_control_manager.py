"""AllocateProducerIds (KIP-730): a block of producer ids for one broker only.

Pure: image and request give record and response.
"""

from __future__ import annotations

from kafkacompat.controller.cluster_control_manager import check_broker_epoch
from kafkacompat.controller.controller_result import BrokerRefused, ControllerResult
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from kafkacompat.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from kafkacompat.wire.messages.producer_ids_record import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> ControllerResult[MetadataRecord, AllocateProducerIdsResponse]:
    """Raises BrokerRefused (STALE_BROKER_EPOCH, or UNKNOWN_SERVER_ERROR if all ids are used)."""
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise BrokerRefused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE
    )
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return ControllerResult((MetadataRecord(record, 0),), response)
