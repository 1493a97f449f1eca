"""UnregisterBroker (KIP-631): removes a broker that will not return from every ISR and from the metadata.

Pure: image and request give records and response. The caller drops the session once the records are accepted. Replicas
stay in assignments, as in Apache Kafka.
"""

from __future__ import annotations

from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.leader_and_isr import BrokerChange, generate_leader_and_isr_updates
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.controller.refusals import BrokerRefused
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.tasks import Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.unregister_broker_record import UnregisterBrokerRecord
from kafkacompat.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkacompat.wire.messages.unregister_broker_response import UnregisterBrokerResponse


def unregister_broker(
    image: MetadataImage, settings: ControllerSettings, request: UnregisterBrokerRequest
) -> Work[ControllerResult[MetadataRecord, UnregisterBrokerResponse]]:
    """Raises BrokerRefused (BROKER_ID_NOT_REGISTERED)."""
    broker_id = request.broker_id
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerRefused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    scope = BrokerChange(to_remove=broker_id)
    records = yield from generate_leader_and_isr_updates(
        image, settings, scope, lambda partition: broker_id in partition.isr
    )
    records.append(MetadataRecord(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch), 0))
    if len(records) > MAX_RECORDS_PER_OPERATION:
        raise BrokerRefused(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return ControllerResult(tuple(records), UnregisterBrokerResponse())
