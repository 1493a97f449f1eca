"""Nodes that are only controllers: their stores are exchanged while they run, and those with which brokers dial them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pytest

from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.harness.broker import KAFKACOMPAT, chosen_kind
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.waiting import wait_until
from interop_tests.security.stores import Stores
from interop_tests.security.test_tls import serial
from kafkacompat._tests.certificates import Authority
from kafkacompat.client.blocking import Connection
from kafkacompat.security.client_settings import security_of_client
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

pytestmark = pytest.mark.needs_control
A = TypeVar("A", bound=Message)
PREFIX = "listener.name.controller."


def call(address: str, properties: dict[str, str], request: Message, answers: type[A]) -> A:
    host, port = address.split(":")
    connection = Connection(host, int(port), security=security_of_client(properties))
    try:
        return connection.call(request, answers)
    finally:
        connection.close()


def alter(address: str, properties: dict[str, str], node_id: int, store: str, path: Path) -> int:
    """Set a store of the controller's listener. Returns the error code."""
    entry = AlterableConfig(name=f"{PREFIX}ssl.{store}.location", config_operation=0, value=str(path))
    resource = AlterConfigsResource(resource_type=4, resource_name=f"{node_id}", configs=[entry])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return call(address, properties, request, IncrementalAlterConfigsResponse).responses[0].error_code


def settings_of(address: str, node_id: int) -> DescribeConfigsResponse:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=4, resource_name=f"{node_id}", configuration_keys=None)
        ]
    )
    return call(address, {}, request, DescribeConfigsResponse)


def test_stores_of_a_controller_are_exchanged_while_it_runs(tmp_path: Path) -> None:
    """First by another name, then in place. A store that cannot be used leaves the one before."""
    stores = Stores(tmp_path / "stores")
    first, second, third = (stores.authority.issue() for _ in range(3))
    cluster = Cluster(
        [chosen_kind(), KAFKACOMPAT], tmp_path, nodes=2, roles=[CONTROLLER, BROKER], settings=ONE_REPLICA
    )
    try:
        for node in cluster.nodes.values():
            node.settings |= stores.settings(first) | {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"
            }
        cluster.start()
        address = cluster.nodes[1].controller_bootstrap
        # The controller is asked itself (KIP-919).
        properties = {"security.protocol": "SSL"} | stores.settings(None)

        def shows(number: int) -> None:
            wait_until(lambda: serial(address, stores) == number, f"the certificate {number} is shown")

        assert serial(address, stores) == first.chain[0].serial_number
        path = stores.keystore("second", second)
        assert alter(address, properties, 1, "keystore", path) == 0
        shows(second.chain[0].serial_number)
        path.write_text(third.pem())
        assert alter(address, properties, 1, "keystore", path) == 0
        shows(third.chain[0].serial_number)
        controller = cluster.nodes[1]
        if controller.kind == KAFKACOMPAT:
            # Apache Kafka goes back to the store in the file.
            broken = stores.folder / "broken.pem"
            broken.write_text("no certificate")
            alter(address, properties, 1, "keystore", broken)
            wait_until(
                lambda: "the stores of listener CONTROLLER stay as they were" in controller.log_text(),
                "the controller says why",
            )
            assert serial(address, stores) == third.chain[0].serial_number
        # A broker believes the controllers that it dials by its own newest store.
        other = Authority("Other")
        both = stores.folder / "both"
        both.write_text(stores.authority.pem() + other.pem())
        assert alter(cluster.bootstrap, {}, 2, "truststore", both) == 0
        cluster.wait(lambda: str(both) in repr(settings_of(cluster.bootstrap, 2)), "the broker has the store")
        for name in ("keys", "second", "broken"):
            stores.keystore(name, other.issue())
        controller.kill()
        controller.start()
        cluster.known_quorum()
    finally:
        cluster.close()
