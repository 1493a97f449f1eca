"""ControllerRegistration (KIP-919): a controller registers its listeners and its supported feature levels.

Pure: image and request give record and response.
"""

from __future__ import annotations

from kafkacompat.controller.features import controller_registration_supported, metadata_version
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.refusals import BrokerRefused
from kafkacompat.controller.result import ControllerResult
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.controller_registration_request import ControllerRegistrationRequest
from kafkacompat.wire.messages.controller_registration_response import ControllerRegistrationResponse
from kafkacompat.wire.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> ControllerResult[MetadataRecord, ControllerRegistrationResponse]:
    """Raises BrokerRefused (UNSUPPORTED_VERSION below metadata.version 15)."""
    if not controller_registration_supported(metadata_version(image.features)):
        raise BrokerRefused(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return ControllerResult((MetadataRecord(record, 0),), ControllerRegistrationResponse(error_message=None))
