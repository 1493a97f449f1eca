"""Connections, traffic and authentications by listener, and the idle time of the loop: socket-server-metrics,
SocketServer, Processor and KafkaRequestHandlerPool of Kafka's MBeans.

Kafka has a network thread for each of several processors. All connections here are of processor 0. One loop does what Kafka's
network and request handler threads do. Its idle time is the time in which the loop's thread neither used a processor nor waited for
a free one, which the system counts. So requests pay nothing for it. On a machine with too few processors a loop with too much to do
runs only a part of the time, and is not idle for the rest. A loop that is held up by a disk or a lock counts as idle; the watchdog
counts its stalls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan, nan
from time import monotonic, thread_time
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.meters import RateOfTotal
from kafkacompat.metrics.families import (
    Families,
    Labels,
    Metric,
    Metrics,
    counter,
    gauge,
    gauges,
    mbean_value,
)
from kafkacompat.net.watchdog import waited_s

if TYPE_CHECKING:
    from kafkacompat.ports.network import Counted, ListenerReading, MemoryReading

PREFIX = "kafka_server_socket_server_metrics_"
LISTENER = f"{PREFIX}listener_{{listener}}_"
PROCESSOR = f"{LISTENER}networkprocessor_0_"
MEMORY_POOL = "kafka_network_socketserver_memorypool"
HANDLERS = "kafka_server_kafkarequesthandlerpool_"
NO_BOUND_BYTES = 2**63 - 1
"""What Kafka shows as available where nothing bounds the memory."""
NOT_IN_A_NAME = re.compile("[^a-z0-9]+")
"""The exporter puts one `_` in place of characters that no name may have, and of several `_`."""

Readings = Sequence["ListenerReading"]


def _mean(values: Iterable[float]) -> float:
    """Of those that are not NaN."""
    some = [each for each in values if not isnan(each)]
    return sum(some) / len(some) if some else nan


def _largest(values: Iterable[float]) -> float:
    return max((each for each in values if not isnan(each)), default=nan)


def _counted(
    name: str, text: str, read: Callable[[ListenerReading], Counted]
) -> tuple[Metric[Readings], Metric[Readings]]:
    return (
        counter(f"{PROCESSOR}{name}", f"{text}.", lambda of: sum(read(each)[0] for each in of)),
        gauge(
            f"{PROCESSOR}{name}_rate", f"{text}, per second.", lambda of: sum(read(each)[1] for each in of)
        ),
    )


OF_LISTENER: Metrics[Readings] = Metrics(
    "Each listener",
    gauge(
        f"{PROCESSOR}connection_count",
        "Connections of the listener.",
        lambda of: sum(each.present for each in of),
    ),
    gauge(
        f"{PROCESSOR}expired_connections_killed_count",
        "Connections of the listener closed because their client went on after the end of its session.",
        lambda of: sum(each.expired for each in of),
    ),
    counter(
        f"{PROCESSOR}successful_authentication_no_reauth",
        "Clients authenticated that cannot authenticate again on the same connection.",
        lambda of: sum(each.authenticated_once for each in of),
    ),
    _counted("connection_creation", "Connections accepted", lambda each: each.created),
    _counted("connection_close", "Connections closed", lambda each: each.closed),
    _counted(
        "successful_authentication", "Clients authenticated by SASL or TLS", lambda each: each.authenticated
    ),
    _counted(
        "failed_authentication",
        "Failed authentications, TLS handshakes included",
        lambda each: each.not_authenticated,
    ),
    _counted(
        "successful_reauthentication", "Clients authenticated again", lambda each: each.authenticated_again
    ),
    _counted(
        "failed_reauthentication",
        "Failed authentications of clients that were authenticated before",
        lambda each: each.not_authenticated_again,
    ),
    _counted("incoming_byte", "Bytes received", lambda each: each.received_bytes),
    _counted("outgoing_byte", "Bytes sent", lambda each: each.sent_bytes),
    # Kafka's names are those of a client, which sends requests and receives responses.
    _counted("response", "Requests received", lambda each: each.requests),
    _counted("request", "Responses sent", lambda each: each.responses),
    gauge(
        f"{PROCESSOR}reauthentication_latency_avg",
        "Mean time of an authentication anew in the last minute, ms; NaN: none.",
        lambda of: _mean(each.reauthentication_ms[0] for each in of),
    ),
    gauge(
        f"{PROCESSOR}reauthentication_latency_max",
        "Longest time of an authentication anew in the last minute, ms; NaN: none.",
        lambda of: _largest(each.reauthentication_ms[1] for each in of),
    ),
    gauge(
        f"{PROCESSOR}request_size_avg",
        "Mean bytes of a response; NaN: none.",
        lambda of: _mean(each.response_bytes for each in of),
    ),
    gauge(
        f"{PROCESSOR}request_size_max",
        "Bytes of the largest response of the last minute; NaN: none.",
        lambda of: _largest(each.largest_response_bytes for each in of),
    ),
    gauge(
        f"{LISTENER}connection_accept_rate",
        "Connections accepted, per second.",
        lambda of: sum(each.created[1] for each in of),
    ),
    gauge(
        f"{LISTENER}connection_accept_throttle_time",
        "Mean throttle time in the last minute of connections that waited for a connection rate, ms; NaN: none.",
        lambda of: _mean(each.accept_throttle_ms for each in of),
    ),
    gauge(
        f"{LISTENER}ip_connection_accept_throttle_time",
        "Mean throttle time in the last minute of connections that were over the rate of their address, ms; NaN: none.",
        lambda of: _mean(each.address_throttle_ms for each in of),
    ),
)


def _software_labels(listener: str, name: str, version: str) -> Labels:
    return {
        "clientSoftwareName": mbean_value(name),
        "clientSoftwareVersion": mbean_value(version),
        "listener": mbean_value(listener),
        "networkProcessor": "0",
    }


OF_ALL: Metrics[Mapping[str, ListenerReading]] = Metrics(
    "All listeners",
    gauge(
        f"{PREFIX}broker_connection_accept_rate",
        "Connections accepted by all listeners, per second.",
        lambda readings: sum(each.created[1] for each in readings.values()),
    ),
    gauges(
        f"{PREFIX}connections",
        "Open connections by the software of the client.",
        ("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
        lambda readings: (
            (_software_labels(listener, *software), count)
            for listener, reading in readings.items()
            for software, count in reading.software.items()
        ),
    ),
    gauge(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "Connections closed because their client went on after the end of its session.",
        lambda readings: sum(each.expired for each in readings.values()),
    ),
)


def listener_families(readings: Mapping[str, ListenerReading]) -> Families:
    """By listener. Names that differ in characters that a metric's name cannot have share their series."""
    by_name: dict[str, list[ListenerReading]] = {}
    for listener, reading in readings.items():
        by_name.setdefault(NOT_IN_A_NAME.sub("_", listener.lower()), []).append(reading)
    for name, of_name in by_name.items():
        yield from OF_LISTENER.of(of_name, listener=name)
    yield from OF_ALL.of(readings)


CERTIFICATES: Metrics[Mapping[str, float]] = Metrics(
    "Certificates of listeners with TLS",
    gauges(
        "kafkacompat_certificate_end_timestamp_seconds",
        "When the listener's certificate ends, or the first one of its chain, in seconds since 1970.",
        ("listener",),
        lambda ends_s: [({"listener": listener}, end_s) for listener, end_s in ends_s.items()],
    ),
)
MEMORY: Metrics[MemoryReading | None] = Metrics(
    "The memory of requests that are being received",
    gauge(
        f"{MEMORY_POOL}available",
        "Bytes that are left for requests (queued.max.request.bytes); 2^63 - 1: there is no bound.",
        lambda reading: NO_BOUND_BYTES if reading is None else reading.available_bytes,
    ),
    gauge(
        f"{MEMORY_POOL}used",
        "Bytes that the bounded memory of requests has given out.",
        lambda reading: 0 if reading is None else reading.used_bytes,
    ),
)
"""None: it is not bounded."""


class Idle(NamedTuple):
    """Shares of the time, from 0 to 1."""

    recently: float
    since_start: float


def _worked_s() -> float:
    return thread_time() + waited_s()


class LoopIdle:
    """Make and call it in the loop's thread."""

    def __init__(
        self, monotonic_s: Callable[[], float] = monotonic, worked_s: Callable[[], float] = _worked_s
    ) -> None:
        """`worked_s`: how long the calling thread had something to do."""
        self._monotonic_s = monotonic_s
        self._worked_s = worked_s
        self._began_s, self._worked_before_s = monotonic_s(), worked_s()
        self._recent = RateOfTotal(int(1000 * self._began_s), self._worked_before_s)

    def read(self) -> Idle:
        now_s, worked_s = self._monotonic_s(), self._worked_s()
        passed_s = now_s - self._began_s
        since_start = (worked_s - self._worked_before_s) / passed_s if passed_s > 0 else 0.0
        return Idle(_without(self._recent.read(int(1000 * now_s), worked_s)), _without(since_start))


def _without(worked: float) -> float:
    """The idle share, from that with work."""
    return min(max(1 - worked, 0.0), 1.0)


def _recently(*names: str) -> tuple[Metric[Idle], ...]:
    """Under the names of Kafka's threads that wait for work. Here the event loop does the work of all of them."""
    return tuple(gauge(f"kafka_{name}", "The same share.", lambda idle: idle.recently) for name in names)


IDLE: Metrics[Idle] = Metrics(
    "The idle time of the event loop, under the names of Kafka's threads",
    gauges(
        "kafka_network_processor_idlepercent",
        "Share of the last 30 s in which the event loop did not work, 0 to 1.",
        ("networkProcessor",),
        lambda idle: [({"networkProcessor": "0"}, idle.recently)],
    ),
    _recently(
        "network_socketserver_networkprocessoravgidlepercent",
        "server_metadataloader_avgidleratio",
        "server_raft_metrics_poll_idle_ratio_avg",
    ),
    gauge(
        f"{HANDLERS}requesthandleravgidle_percent",
        "The same share, of the time since the start.",
        lambda idle: idle.since_start,
    ),
)
IDLE_OF_ROLE: Mapping[str, Metrics[Idle]] = {
    "broker": Metrics(
        "The same of the threads of a broker",
        _recently(
            "server_group_coordinator_metrics_thread_idle_ratio_avg",
            "server_share_coordinator_metrics_thread_idle_ratio_avg",
        ),
        gauge(
            f"{HANDLERS}brokerrequesthandleravgidle_percent",
            "The same share, of the time since the start.",
            lambda idle: idle.since_start,
        ),
    ),
    "controller": Metrics(
        "The same of the threads of a controller",
        _recently("controller_controllereventmanager_avgidleratio"),
        gauge(
            f"{HANDLERS}controllerrequesthandleravgidle_percent",
            "The same share, of the time since the start.",
            lambda idle: idle.since_start,
        ),
    ),
}


def idle_families(idle: Idle, roles: Iterable[str]) -> Families:
    """`roles`: of the node."""
    yield from IDLE.of(idle)
    for role in roles:
        yield from IDLE_OF_ROLE[role].of(idle)
