"""Brokers of an image as clients of one listener see them (C9, C14). Knows no API; the message class is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerImage, MetadataImage

T = TypeVar("T")


def alive_brokers(image: MetadataImage, listener_name: str) -> list[BrokerImage]:
    """Unfenced brokers that have the listener, by id."""
    return [
        broker
        for _, broker in sorted(image.brokers.items())
        if not broker.fenced and listener_name in broker.endpoints
    ]


def endpoints_of(
    image: MetadataImage, broker_ids: Iterable[int], listener_name: str, make: Callable[..., T]
) -> list[T]:
    """NodeEndpoint structs (KIP-951) of the brokers that have the listener, by id."""
    endpoints = []
    for broker_id in sorted(broker_ids):
        broker = image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(listener_name)
        if broker is not None and endpoint is not None:
            endpoints.append(
                make(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return endpoints
