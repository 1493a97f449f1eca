"""Connections by listener, and the loop's idle time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan, nan

from kafkacompat.metrics.families import Family
from kafkacompat.metrics.network import MEMORY, Idle, idle_families, listener_families
from kafkacompat.ports.network import ListenerReading, MemoryReading

READING = ListenerReading(
    present=1,
    created=(7, 0.7),
    closed=(6, 0.6),
    expired=2,
    authenticated=(5, 0.5),
    not_authenticated=(4, 0.4),
    authenticated_again=(3, 0.3),
    not_authenticated_again=(2, 0.2),
    authenticated_once=4,
    reauthentication_ms=(20.0, 30.0),
    received_bytes=(900, 9.5),
    sent_bytes=(800, 8.5),
    requests=(30, 3.5),
    responses=(20, 2.5),
    response_bytes=40.0,
    largest_response_bytes=90.0,
    software={("lib", "1.0"): 2, ("unknown", "unknown"): 1},
    accept_throttle_ms=80.0,
    address_throttle_ms=nan,
)
SOFTWARE = "kafka_server_socket_server_metrics_connections"


def families(readings: Mapping[str, ListenerReading]) -> Iterator[Family]:
    for family in listener_families(readings):
        assert family is not None
        yield family


def values(readings: Mapping[str, ListenerReading]) -> dict[str, float]:
    """Without those by software."""
    found: dict[str, float] = {}
    for family in families(readings):
        assert family.name not in found, "a name has one family"
        for sample in family.samples if family.name != SOFTWARE else ():
            assert sample is not None
            found[family.name] = sample[1]
    return found


def test_each_listener_has_its_series() -> None:
    listener = "kafka_server_socket_server_metrics_listener_plaintext_"
    prefix = f"{listener}networkprocessor_0_"
    found = values({"PLAINTEXT": READING})
    assert isnan(found.pop(f"{listener}ip_connection_accept_throttle_time"))
    assert found == {
        f"{prefix}connection_count": 1,
        f"{prefix}expired_connections_killed_count": 2,
        f"{prefix}connection_creation": 7,
        f"{prefix}connection_creation_rate": 0.7,
        f"{prefix}connection_close": 6,
        f"{prefix}connection_close_rate": 0.6,
        f"{prefix}successful_authentication": 5,
        f"{prefix}successful_authentication_rate": 0.5,
        f"{prefix}successful_authentication_no_reauth": 4,
        f"{prefix}reauthentication_latency_avg": 20,
        f"{prefix}reauthentication_latency_max": 30,
        f"{prefix}request_size_avg": 40,
        f"{prefix}request_size_max": 90,
        f"{prefix}failed_authentication": 4,
        f"{prefix}failed_authentication_rate": 0.4,
        f"{prefix}successful_reauthentication": 3,
        f"{prefix}successful_reauthentication_rate": 0.3,
        f"{prefix}failed_reauthentication": 2,
        f"{prefix}failed_reauthentication_rate": 0.2,
        f"{prefix}incoming_byte": 900,
        f"{prefix}incoming_byte_rate": 9.5,
        f"{prefix}outgoing_byte": 800,
        f"{prefix}outgoing_byte_rate": 8.5,
        f"{prefix}response": 30,
        f"{prefix}response_rate": 3.5,
        f"{prefix}request": 20,
        f"{prefix}request_rate": 2.5,
        f"{listener}connection_accept_rate": 0.7,
        f"{listener}connection_accept_throttle_time": 80,
        "kafka_server_socket_server_metrics_broker_connection_accept_rate": 0.7,
        "kafka_network_socketserver_expiredconnectionskilledcount": 2,
    }


def test_names_of_listeners_become_names_of_metrics() -> None:
    quiet = READING._replace(
        reauthentication_ms=(nan, nan), response_bytes=nan, largest_response_bytes=nan, accept_throttle_ms=nan
    )
    found = values({"SASL__SSL-out.1": READING, "SASL_SSL.OUT-1": quiet})
    name = "kafka_server_socket_server_metrics_listener_sasl_ssl_out_1_"
    assert found[f"{name}networkprocessor_0_connection_count"] == 2
    assert found[f"{name}networkprocessor_0_reauthentication_latency_avg"] == 20
    assert found[f"{name}networkprocessor_0_request_size_max"] == 90
    assert found[f"{name}connection_accept_throttle_time"] == 80
    assert found["kafka_network_socketserver_expiredconnectionskilledcount"] == 4


def test_connections_have_the_software_of_their_clients_as_labels() -> None:
    shown = next(each for each in families({"SASL-ß": READING}) if each.name == SOFTWARE)
    labels = {"listener": '"SASL-ß"', "networkProcessor": "0"}
    assert list(shown.samples) == [
        (labels | {"clientSoftwareName": "lib", "clientSoftwareVersion": "1.0"}, 2),
        (labels | {"clientSoftwareName": "unknown", "clientSoftwareVersion": "unknown"}, 1),
    ]


def test_memory_without_a_bound_is_shown_as_kafka_shows_it() -> None:
    def shown(reading: MemoryReading | None) -> dict[str, float]:
        return {each.name: next(iter(each.samples))[1] for each in MEMORY.of(reading) if each}  # type: ignore[index]

    name = "kafka_network_socketserver_memorypool"
    assert shown(MemoryReading(700, 300)) == {f"{name}available": 700, f"{name}used": 300}
    assert shown(None) == {f"{name}available": 2**63 - 1, f"{name}used": 0}


def idle(*roles: str) -> dict[str, float]:
    shown = [each for each in idle_families(Idle(0.9, 0.8), roles) if isinstance(each, Family)]
    values = {each.name: list(each.samples) for each in shown}
    assert values.pop("kafka_network_processor_idlepercent") == [({"networkProcessor": "0"}, 0.9)]
    return {name: value for name, samples in values.items() for _, value in filter(None, samples)}


def test_the_loop_stands_for_the_threads_of_kafka_that_the_roles_have() -> None:
    pool = "kafka_server_kafkarequesthandlerpool_"
    every = {
        "kafka_network_socketserver_networkprocessoravgidlepercent": 0.9,
        "kafka_server_metadataloader_avgidleratio": 0.9,
        "kafka_server_raft_metrics_poll_idle_ratio_avg": 0.9,
        f"{pool}requesthandleravgidle_percent": 0.8,
    }
    broker = {
        "kafka_server_group_coordinator_metrics_thread_idle_ratio_avg": 0.9,
        "kafka_server_share_coordinator_metrics_thread_idle_ratio_avg": 0.9,
        f"{pool}brokerrequesthandleravgidle_percent": 0.8,
    }
    controller = {
        "kafka_controller_controllereventmanager_avgidleratio": 0.9,
        f"{pool}controllerrequesthandleravgidle_percent": 0.8,
    }
    assert idle("broker") == every | broker
    assert idle("controller") == every | controller
    assert idle("broker", "controller") == every | broker | controller
