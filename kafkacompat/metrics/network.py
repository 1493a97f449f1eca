"""Connections, traffic and authentications by listener, and the idle time of the loop: socket-server-metrics,
SocketServer, Processor and KafkaRequestHandlerPool of Kafka's MBeans.

Kafka has a network thread for each of several processors. All connections here are of processor 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isnan, nan
from typing import TYPE_CHECKING

from kafkacompat.metrics.families import Families, Labels, counter, gauge, gauges, mbean_value

if TYPE_CHECKING:
    from kafkacompat.metrics.loop_idle import Idle
    from kafkacompat.ports.network import Counted, ListenerReading, MemoryReading

PREFIX = "kafka_server_socket_server_metrics_"
NO_BOUND_BYTES = 2**63 - 1
"""What Kafka shows as available where nothing bounds the memory."""
IDLE_THREADS = (
    "network_socketserver_networkprocessoravgidlepercent",
    "server_metadataloader_avgidleratio",
    "server_raft_metrics_poll_idle_ratio_avg",
)
IDLE_THREADS_OF = {
    "broker": (
        "server_group_coordinator_metrics_thread_idle_ratio_avg",
        "server_share_coordinator_metrics_thread_idle_ratio_avg",
    ),
    "controller": ("controller_controllereventmanager_avgidleratio",),
}
"""The shares of time in which threads of Kafka wait for work. Here the event loop does the work of all of them."""
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
    yield counter(
        f"{prefix}successful_authentication_no_reauth",
        "Clients authenticated that cannot authenticate again on the same connection.",
        sum(each.authenticated_once for each in readings),
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
    text = "time of an authentication anew in the last minute, ms; NaN: none"
    name = f"{prefix}reauthentication_latency_"
    yield gauge(f"{name}avg", f"Mean {text}.", _mean(each.reauthentication_ms[0] for each in readings))
    yield gauge(f"{name}max", f"Longest {text}.", _largest(each.reauthentication_ms[1] for each in readings))
    name = f"{prefix}request_size_"
    yield gauge(
        f"{name}avg", "Mean bytes of a response; NaN: none.", _mean(each.response_bytes for each in readings)
    )
    yield gauge(
        f"{name}max",
        "Bytes of the largest response of the last minute; NaN: none.",
        _largest(each.largest_response_bytes for each in readings),
    )


def _mean(values: Iterable[float]) -> float:
    """Of those that are not NaN."""
    some = [each for each in values if not isnan(each)]
    return sum(some) / len(some) if some else nan


def _largest(values: Iterable[float]) -> float:
    return max((each for each in values if not isnan(each)), default=nan)


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
        yield gauge(
            f"{prefix}{kind}connection_accept_throttle_time",
            f"Mean throttle time in the last minute of connections that {text}, ms; NaN: none.",
            _mean(times),
        )


def _software_labels(listener: str, name: str, version: str) -> Labels:
    return {
        "clientSoftwareName": mbean_value(name),
        "clientSoftwareVersion": mbean_value(version),
        "listener": mbean_value(listener),
        "networkProcessor": "0",
    }


def certificate_families(ends_s: Mapping[str, float]) -> Families:
    """`ends_s`: of each listener with TLS."""
    yield gauges(
        "kafkacompat_certificate_end_timestamp_seconds",
        "When the listener's certificate ends, or the first one of its chain, in seconds since 1970.",
        [({"listener": listener}, end_s) for listener, end_s in ends_s.items()],
    )


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


def idle_families(idle: Idle, roles: Iterable[str]) -> Families:
    """The loop's share of time without work, under the names of Kafka's threads. `roles`: of the node."""
    yield gauges(
        "kafka_network_processor_idlepercent",
        "Share of the last 30 s in which the event loop did not work, 0 to 1.",
        [({"networkProcessor": "0"}, idle.recently)],
    )
    names = [f"kafka_{each}" for each in IDLE_THREADS]
    since_start = ["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"]
    for role in roles:
        names += [f"kafka_{each}" for each in IDLE_THREADS_OF[role]]
        since_start.append(f"kafka_server_kafkarequesthandlerpool_{role}requesthandleravgidle_percent")
    for name in names:
        yield gauge(name, "The same share.", idle.recently)
    for name in since_start:
        yield gauge(name, "The same share, of the time since the start.", idle.since_start)
