"""BrokerRegistration (KIP-631): registration, with the sessions that show whether another incarnation is alive.

Image, sessions and request give records and response. brokers.py has the checks.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.brokers import register_broker
from kafkacompat.controller.image import BrokerRegistration, MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.tasks import Work
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest
from kafkacompat.wire.messages.broker_registration_response import BrokerRegistrationResponse


def broker_registration(
    image: MetadataImage,
    settings: ControllerSettings,
    sessions: BrokerHeartbeatManager,
    request: BrokerRegistrationRequest,
    next_offset: int,
    is_live: Callable[[BrokerRegistration], bool],
) -> Work[ControllerResult[MetadataRecord, BrokerRegistrationResponse]]:
    """`next_offset` is the offset of the first record. `is_live` tells whether the registered broker may still run.

    Raises BrokerRefused.
    """
    existing = image.brokers.get(request.broker_id)
    live = existing is not None and is_live(existing)
    result = yield from register_broker(image, settings, request, next_offset, live)
    sessions.register(request.broker_id, result.response, next_offset + len(result.records) - 1)
    return ControllerResult(result.records, BrokerRegistrationResponse(broker_epoch=result.response))
