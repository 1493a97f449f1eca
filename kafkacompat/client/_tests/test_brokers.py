"""What a client knows of brokers: addresses in the order of trying, coordinators, and pauses between tries."""

from __future__ import annotations

import pytest

from kafkacompat.client.brokers import Brokers, Retries, bootstrap_address, check
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.find_coordinator_response import Coordinator
from kafkacompat.wire.messages.metadata_response import MetadataResponseBroker

TOLD = [MetadataResponseBroker(node_id=number, host=f"n{number}", port=9092) for number in (2, 1)]


def test_brokers_that_were_told_are_tried_before_the_bootstrap_servers() -> None:
    brokers = Brokers("a:1,[::1]:2,a:1")
    assert brokers.candidates() == [("a", 1), ("::1", 2)]
    assert brokers.address_of(1) is None
    brokers.learn(TOLD)
    assert brokers.candidates() == [("n2", 9092), ("n1", 9092), ("a", 1), ("::1", 2)]
    assert (brokers.address_of(1), brokers.node_ids) == (("n1", 9092), [1, 2])
    brokers.learn(TOLD[:1])
    assert brokers.address_of(1) is None, "it is not alive"
    brokers.forget()
    assert brokers.candidates() == [("a", 1), ("::1", 2)]


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:x"])
def test_a_server_without_a_port_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"--bootstrap \(or --bootstrap-server\) takes host:port"):
        bootstrap_address(text)
    with pytest.raises(CommandFailed, match="--bootstrap"):
        Brokers(f"b:1,{text}")


def test_a_coordinator_is_where_it_is_told_to_be() -> None:
    brokers = Brokers("a:1")
    assert brokers.learn_coordinator(Coordinator(node_id=3, host="c", port=4), "g") == 3
    assert brokers.address_of(3) == ("c", 4)
    missing = Coordinator(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1)
    assert brokers.learn_coordinator(missing, "g") is None
    refused = Coordinator(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="no")
    with pytest.raises(CommandFailed, match=r"coordinator of group g: GROUP_AUTHORIZATION_FAILED \(no\)"):
        brokers.learn_coordinator(refused, "g")


def test_pauses_grow_to_a_bound_and_end_at_the_time_limit() -> None:
    retries = Retries(100.0, 5.0)
    assert [retries.next_pause_s() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert not retries.is_over(104.9)
    assert retries.is_over(105.0)
    assert Retries(100.0, 0).is_over(100.0)


def test_an_error_is_told_by_its_name_or_its_number() -> None:
    check(0, "t")
    with pytest.raises(CommandFailed, match=r"^t: INVALID_REQUEST$"):
        check(ErrorCode.INVALID_REQUEST, "t", "")
    with pytest.raises(CommandFailed, match=r"^t: error 9999 \(why\)$"):
        check(9999, "t", "why")
