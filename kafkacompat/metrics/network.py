"""Connections, traffic and authentications by listener, and the idle time of the loop: socket-server-metrics,
SocketServer, Processor and KafkaRequestHandlerPool of Kafka's MBeans.

Kafka has a network thread for each of several processors. All connections here are of processor 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isnan, nan
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import Families, Labels, counter, gauge, gauges, mbean_value

if TYPE_CHECKING:
    from kafkacompat.metrics.loop_idle import Idle
    from kafkacompat.ports.network import Counted, ListenerReading, MemoryReading

PREFIX = "kafka_server_socket_server_metrics_"
NO_BOUND_BYTES = 2**63 - 1
"""What Kafka shows as available where nothing bounds the memory."""
NOT_IN_A_NAME = re.compile("[^a-z0-9]+")
"""The exporter puts one `_` in place of characters that no name may have, and of several `_`."""


def listener_families(readings: Mapping[str, ListenerReading]) -> Families:
    """By listener. Names that differ in characters that a metric's name cannot have share their series."""
    by_name: dict[str, list[ListenerReading]] = {}
    for listener, reading in readings.items():
        by_name.setdefault(NOT_IN_A_NAME.sub("_", listener.lower()), []).append(reading)
    for name, of_name in by_name.items():
        yield from _connections(f"{PREFIX}listener_{name}_networkprocessor_0_", of_name)
        yield from _accepted(f"{PREFIX}listener_{name}_", of_name)
    yield gauge(
        f"{PREFIX}broker_connection_accept_rate",
        "Connections accepted by all listeners, per second.",
        sum(each.created[1] for each in readings.values()),
    )
    yield gauges(
        f"{PREFIX}connections",
        "Open connections by the software of the client.",
        (
            (_software_labels(listener, *software), count)
            for listener, reading in readings.items()
            for software, count in reading.software.items()
        ),
    )
    yield gauge(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "Connections closed because they were idle.",
        sum(each.expired for each in readings.values()),
    )


def _connections(prefix: str, readings: list[ListenerReading]) -> Families:
    """Of the listeners with one name."""
    yield gauge(
        f"{prefix}connection_count", "Connections of the listener.", sum(each.present for each in readings)
    )
    yield gauge(
        f"{prefix}expired_connections_killed_count",
        "Connections of the listener closed because they were idle.",
        sum(each.expired for each in readings),
    )
    counted: tuple[tuple[str, str, list[Counted]], ...] = (
        ("connection_creation", "Connections accepted", [each.created for each in readings]),
        ("connection_close", "Connections closed", [each.closed for each in readings]),
        (
            "successful_authentication",
            "Clients authenticated by SASL or TLS",
            [each.authenticated for each in readings],
        ),
        (
            "failed_authentication",
            "Failed authentications, TLS handshakes included",
            [each.not_authenticated for each in readings],
        ),
        (
            "successful_reauthentication",
            "Clients authenticated again",
            [each.authenticated_again for each in readings],
        ),
        (
            "failed_reauthentication",
            "Failed authentications of clients that were authenticated before",
            [each.not_authenticated_again for each in readings],
        ),
        ("incoming_byte", "Bytes received", [each.received_bytes for each in readings]),
        ("outgoing_byte", "Bytes sent", [each.sent_bytes for each in readings]),
        # Kafka's names are those of a client, which sends requests and receives responses.
        ("response", "Requests received", [each.requests for each in readings]),
        ("request", "Responses sent", [each.responses for each in readings]),
    )
    for suffix, text, values in counted:
        yield counter(f"{prefix}{suffix}", f"{text}.", sum(count for count, _ in values))
        yield gauge(f"{prefix}{suffix}_rate", f"{text}, per second.", sum(rate for _, rate in values))


def _accepted(prefix: str, readings: list[ListenerReading]) -> Families:
    """Of the listeners with one name."""
    yield gauge(
        f"{prefix}connection_accept_rate",
        "Connections accepted, per second.",
        sum(each.created[1] for each in readings),
    )
    for kind, text, times in (
        ("", "waited for max.connection.creation.rate", [each.accept_throttle_ms for each in readings]),
        ("ip_", "were over the rate of their address", [each.address_throttle_ms for each in readings]),
    ):
        some = [each for each in times if not isnan(each)]
        yield gauge(
            f"{prefix}{kind}connection_accept_throttle_time",
            f"Mean throttle time in the last minute of connections that {text}, ms; NaN: none.",
            sum(some) / len(some) if some else nan,
        )


def _software_labels(listener: str, name: str, version: str) -> Labels:
    return {
        "clientSoftwareName": mbean_value(name),
        "clientSoftwareVersion": mbean_value(version),
        "listener": mbean_value(listener),
        "networkProcessor": "0",
    }


def memory_families(reading: MemoryReading | None) -> Families:
    """The memory of requests that are being received. None: it is not bounded."""
    name = "kafka_network_socketserver_memorypool"
    available, used = (NO_BOUND_BYTES, 0) if reading is None else reading
    yield gauge(
        f"{name}available",
        "Bytes that are left for requests (queued.max.request.bytes); 2^63 - 1: there is no bound.",
        available,
    )
    yield gauge(f"{name}used", "Bytes that the bounded memory of requests has given out.", used)


def idle_families(idle: Idle) -> Families:
    """The loop's share of time without work."""
    yield gauges(
        "kafka_network_processor_idlepercent",
        "Share of the last 30 s in which the event loop did not work, 0 to 1.",
        [({"networkProcessor": "0"}, idle.recently)],
    )
    yield gauge(
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "The same share.",
        idle.recently,
    )
    yield gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "The same share, of the time since the start.",
        idle.since_start,
    )
