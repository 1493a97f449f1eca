"""Connections by listener, and the loop's idle time."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacompat.metrics.families import Family
from kafkacompat.metrics.loop_idle import Idle
from kafkacompat.metrics.network import idle_families, listener_families
from kafkacompat.ports.network import ListenerReading

READING = ListenerReading(1, (7, 0.7), (6, 0.6), 2, (5, 0.5), (4, 0.4), (3, 0.3), (2, 0.2))


def values(readings: Mapping[str, ListenerReading]) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in listener_families(readings):
        assert family is not None
        assert family.name not in found, "a name has one family"
        for sample in family.samples:
            assert sample is not None
            found[family.name] = sample[1]
    return found


def test_each_listener_has_its_series() -> None:
    prefix = "kafka_server_socket_server_metrics_listener_plaintext_networkprocessor_0_"
    assert values({"PLAINTEXT": READING}) == {
        f"{prefix}connection_count": 1,
        f"{prefix}expired_connections_killed_count": 2,
        f"{prefix}connection_creation": 7,
        f"{prefix}connection_creation_rate": 0.7,
        f"{prefix}connection_close": 6,
        f"{prefix}connection_close_rate": 0.6,
        f"{prefix}successful_authentication": 5,
        f"{prefix}successful_authentication_rate": 0.5,
        f"{prefix}failed_authentication": 4,
        f"{prefix}failed_authentication_rate": 0.4,
        f"{prefix}successful_reauthentication": 3,
        f"{prefix}successful_reauthentication_rate": 0.3,
        f"{prefix}failed_reauthentication": 2,
        f"{prefix}failed_reauthentication_rate": 0.2,
        "kafka_network_socketserver_expiredconnectionskilledcount": 2,
    }


def test_names_of_listeners_become_names_of_metrics() -> None:
    found = values({"SASL__SSL-out.1": READING, "SASL_SSL.OUT-1": READING})
    name = "kafka_server_socket_server_metrics_listener_sasl_ssl_out_1_networkprocessor_0_connection_count"
    assert found[name] == 2
    assert found["kafka_network_socketserver_expiredconnectionskilledcount"] == 4


def test_the_loop_stands_for_network_and_request_threads() -> None:
    families = [each for each in idle_families(Idle(0.9, 0.8)) if isinstance(each, Family)]
    assert {each.name: list(each.samples) for each in families} == {
        "kafka_network_processor_idlepercent": [({"networkProcessor": "0"}, 0.9)],
        "kafka_network_socketserver_networkprocessoravgidlepercent": [({}, 0.9)],
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": [({}, 0.8)],
    }
