"""Nodes that are only controllers: their stores are exchanged while they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.harness.broker import KAFKACOMPAT, chosen_kind
from interop_tests.harness.one_replica import ONE_REPLICA
from interop_tests.harness.waiting import wait_until
from interop_tests.security.stores import Stores
from interop_tests.security.test_tls import serial
from kafkacompat.client.blocking import Connection
from kafkacompat.security.client_settings import security_of_client
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

pytestmark = pytest.mark.needs_control
LOCATION = "listener.name.controller.ssl.keystore.location"


def alter(address: str, stores: Stores, path: Path) -> int:
    """Set the store of the controller's listener, asking the controller itself (KIP-919). Returns the error code."""
    host, port = address.split(":")
    properties = {"security.protocol": "SSL"} | stores.settings(None)
    entry = AlterableConfig(name=LOCATION, config_operation=0, value=str(path))
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[entry])
    connection = Connection(host, int(port), security=security_of_client(properties))
    try:
        answer = connection.call(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
    finally:
        connection.close()
    return answer.responses[0].error_code


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

        def shows(number: int) -> None:
            wait_until(lambda: serial(address, stores) == number, f"the certificate {number} is shown")

        assert serial(address, stores) == first.chain[0].serial_number
        path = stores.keystore("second", second)
        assert alter(address, stores, path) == 0
        shows(second.chain[0].serial_number)
        path.write_text(third.pem())
        assert alter(address, stores, path) == 0
        shows(third.chain[0].serial_number)
        controller = cluster.nodes[1]
        if controller.kind == KAFKACOMPAT:
            # Apache Kafka goes back to the store in the file.
            broken = stores.folder / "broken.pem"
            broken.write_text("no certificate")
            alter(address, stores, broken)
            wait_until(
                lambda: "the stores of listener CONTROLLER stay as they were" in controller.log_text(),
                "the controller says why",
            )
            assert serial(address, stores) == third.chain[0].serial_number
    finally:
        cluster.close()
