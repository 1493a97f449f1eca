"""Registers this node's controller, with its listeners and supported features, at the active controller (KIP-919).

The request is repeated until the metadata log contains this incarnation's registration. Nothing is sent below the
metadata.version that has such records. The waits after failures are those of Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafkacompat.config import EndPoint
from kafkacompat.controller.features import (
    SUPPORTED_FEATURES,
    controller_registration_supported,
    metadata_version,
)
from kafkacompat.controller.image import MetadataImage
from kafkacompat.dataclass import dataclass
from kafkacompat.faults import report
from kafkacompat.ids import Uuid
from kafkacompat.node.broker_lifecycle import endpoint_records
from kafkacompat.node.node_to_controller_channel_manager import UNANSWERED, NodeToControllerChannelManager
from kafkacompat.tasks import Started, Tasks
from kafkacompat.wire.errors import code_of
from kafkacompat.wire.messages.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)

logger = logging.getLogger(__name__)

RETRY_MS = 100
RETRY_MAX_MS = 120_000
REQUEST_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class ControllerIdentity:
    """`listeners` are the controller's advertised listeners, with the bound ports."""

    node_id: int
    incarnation_id: Uuid
    listeners: Sequence[EndPoint]


class ControllerRegistrationManager:
    """Call `on_image` with every image, including the first."""

    __slots__ = ("_channel", "_identity", "_image", "_registering", "_tasks")

    def __init__(
        self, identity: ControllerIdentity, channel: NodeToControllerChannelManager, tasks: Tasks
    ) -> None:
        self._identity = identity
        self._channel = channel
        self._tasks = tasks
        self._image = MetadataImage()
        self._registering: Started | None = None

    @property
    def is_registered(self) -> bool:
        own = self._image.controllers.get(self._identity.node_id)
        return own is not None and own.incarnation_id == self._identity.incarnation_id

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self._image = new
        if old.controllers is new.controllers and old.features is new.features:
            return
        if self._is_wanted() and (self._registering is None or self._registering.done):
            self._registering = self._tasks.start("ControllerRegistration", self._register())

    def _is_wanted(self) -> bool:
        return not self.is_registered and controller_registration_supported(
            metadata_version(self._image.features)
        )

    async def _register(self) -> None:
        wait_ms = RETRY_MS
        while self._is_wanted():
            try:
                response = await self._channel.request(self._request(), REQUEST_TIMEOUT_MS)
                problem = code_of(response.error_code).name if response.error_code else None
            except Exception as error:
                if not isinstance(error, UNANSWERED):
                    report("ControllerRegistration", error)
                problem = str(error)
            if problem is None:
                return  # the registration will appear in the metadata log, and another request would write it twice
            logger.warning("this node's controller is not registered: %s", problem)
            await self._tasks.sleep(wait_ms)
            wait_ms = min(2 * wait_ms, RETRY_MAX_MS)

    def _request(self) -> ControllerRegistrationRequest:
        identity = self._identity
        return ControllerRegistrationRequest(
            controller_id=identity.node_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, host, port, protocol in endpoint_records(identity.listeners)
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        )
