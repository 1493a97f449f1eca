"""Registers this node's controller, with its listeners and supported features, at the active controller (KIP-919).

The request is repeated until the metadata log contains this incarnation's registration. Nothing is sent below the
metadata.version that has such records. The waits after failures are those of Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafkacompat.config import EndPoint
from kafkacompat.controller.features import (
    SUPPORTED_FEATURES,
    controller_registration_supported,
    metadata_version,
)
from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.node.broker_lifecycle import endpoint_records
from kafkacompat.node.controller_channel import ControllerChannel
from kafkacompat.ports import Timers
from kafkacompat.wire.errors import ErrorCode
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


class ControllerRegistration:
    """Call `on_image` with every image, including the first."""

    __slots__ = ("_channel", "_failures", "_identity", "_image", "_pending", "_timers")

    def __init__(self, identity: ControllerIdentity, channel: ControllerChannel, timers: Timers) -> None:
        self._identity = identity
        self._channel = channel
        self._timers = timers
        self._image = MetadataImage()
        self._failures = 0
        self._pending = False
        """A request is in flight, or a timer runs until the next one."""

    @property
    def is_registered(self) -> bool:
        own = self._image.controllers.get(self._identity.node_id)
        return own is not None and own.incarnation_id == self._identity.incarnation_id

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self._image = new
        if old.controllers is not new.controllers or old.features is not new.features:
            self._register()

    def _register(self) -> None:
        level = metadata_version(self._image.features)
        if self._pending or self.is_registered or not controller_registration_supported(level):
            return
        self._pending = True
        self._channel.request(self._request(), REQUEST_TIMEOUT_MS).on_done(self._answered)

    def _answered(self, done: Deferred[Any]) -> None:
        try:
            response = done.result()
            problem = ErrorCode(response.error_code).name if response.error_code else None
        except Exception as error:
            problem = str(error)
        if problem is None:
            # The registration will appear in the metadata log. A request before that would write the record twice.
            self._pending = False
            self._failures = 0
            return
        logger.warning("this node's controller is not registered: %s", problem)
        wait_ms = min(RETRY_MS << min(self._failures, 16), RETRY_MAX_MS)
        self._failures += 1
        self._timers.call_after(wait_ms, self._retry)

    def _retry(self) -> None:
        self._pending = False
        self._register()

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
