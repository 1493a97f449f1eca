"""Connections and authentications by listener, and the idle time of the loop: socket-server-metrics, SocketServer, Processor
and KafkaRequestHandlerPool of Kafka's MBeans.

Kafka has a network thread for each of several processors. All connections here are of processor 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import Families, counter, gauge, gauges

if TYPE_CHECKING:
    from kafkacompat.metrics.loop_idle import Idle
    from kafkacompat.ports.network import Counted, ListenerReading

NOT_IN_A_NAME = re.compile("[^a-z0-9]+")
"""The exporter puts one `_` in place of characters that no name may have, and of several `_`."""


def listener_families(readings: Mapping[str, ListenerReading]) -> Families:
    """By listener. Names that differ in characters that a metric's name cannot have share their series."""
    by_name: dict[str, list[ListenerReading]] = {}
    for listener, reading in readings.items():
        by_name.setdefault(NOT_IN_A_NAME.sub("_", listener.lower()), []).append(reading)
    for name, of_name in by_name.items():
        prefix = f"kafka_server_socket_server_metrics_listener_{name}_networkprocessor_0_"
        yield gauge(
            f"{prefix}connection_count", "Connections of the listener.", sum(each.present for each in of_name)
        )
        yield gauge(
            f"{prefix}expired_connections_killed_count",
            "Connections of the listener closed because they were idle.",
            sum(each.expired for each in of_name),
        )
        counted: tuple[tuple[str, str, list[Counted]], ...] = (
            ("connection_creation", "Connections accepted", [each.created for each in of_name]),
            ("connection_close", "Connections closed", [each.closed for each in of_name]),
            (
                "successful_authentication",
                "Clients authenticated by SASL or TLS",
                [each.authenticated for each in of_name],
            ),
            (
                "failed_authentication",
                "Failed authentications, TLS handshakes included",
                [each.not_authenticated for each in of_name],
            ),
            (
                "successful_reauthentication",
                "Clients authenticated again",
                [each.authenticated_again for each in of_name],
            ),
            (
                "failed_reauthentication",
                "Failed authentications of clients that were authenticated before",
                [each.not_authenticated_again for each in of_name],
            ),
        )
        for suffix, text, values in counted:
            yield counter(f"{prefix}{suffix}", f"{text}.", sum(count for count, _ in values))
            yield gauge(f"{prefix}{suffix}_rate", f"{text}, per second.", sum(rate for _, rate in values))
    yield gauge(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "Connections closed because they were idle.",
        sum(each.expired for each in readings.values()),
    )


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
