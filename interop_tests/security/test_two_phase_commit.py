"""Transactions without a timeout (KIP-939), as far as Apache Kafka 4.4 has them: who may begin one, and that it stays open.

InitProducerId version 6 is unstable in Kafka 4.4, so no stock client sends it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed
from interop_tests.raw.rights import entry
from interop_tests.security.token_talks import asked
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest

pytestmark = pytest.mark.needs_control
ADMINISTRATOR, WRITER, COORDINATED, BOTH = (f"127.0.0.{number}" for number in (1, 2, 3, 4))
RIGHTS = {
    WRITER: (AclOperation.WRITE,),
    COORDINATED: (AclOperation.TWO_PHASE_COMMIT,),
    BOTH: (AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT),
}
"""Of each address, to transactional ids."""
NOT_NOW = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
NO_TIMEOUT_MS = 2**31 - 1
TOO_LONG_MS = 900_001
OK, REFUSED = ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TIMEOUT, UNSUPPORTED = ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorCode.UNSUPPORTED_VERSION
ANSWERS = {
    # two-phase commit, kept, timeout: what the addresses with WRITE, with TWO_PHASE_COMMIT, with both get where
    # two-phase commit is enabled, and what the last gets where it is not
    (False, False, 60_000): (OK, REFUSED, OK, OK),
    (False, False, 0): (TIMEOUT, REFUSED, TIMEOUT, TIMEOUT),
    (False, True, 0): (UNSUPPORTED, REFUSED, UNSUPPORTED, UNSUPPORTED),
    (True, False, 60_000): (REFUSED, REFUSED, OK, REFUSED),
    (True, False, TOO_LONG_MS): (REFUSED, REFUSED, OK, REFUSED),
    (True, False, -1): (REFUSED, REFUSED, OK, REFUSED),
    (True, True, 60_000): (REFUSED, REFUSED, UNSUPPORTED, REFUSED),
}


@pytest.fixture
def broker(make_broker: MakeBroker, request: pytest.FixtureRequest) -> BrokerProcess:
    made = make_broker(start=False)
    made.settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Without entries everybody may do everything, so the first entries let the administrator in.
        "allow.everyone.if.no.acl.found": "true",
        "unstable.api.versions.enable": "true",
        "transaction.two.phase.commit.enable": request.param,
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    return made.start()


@pytest.fixture
def administrator(broker: BrokerProcess) -> Iterator[Connection]:
    everything = {
        ResourceType.TOPIC: "*",
        ResourceType.TRANSACTIONAL_ID: "*",
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    entries = [entry(kind, name, ADMINISTRATOR) for kind, name in everything.items()]
    entries += [
        entry(ResourceType.TRANSACTIONAL_ID, "*", host, operation)
        for host, operations in RIGHTS.items()
        for operation in operations
    ]
    with Connection(broker.bootstrap) as connection:
        reply = connection.call("CreateAcls", 3, {"Creations": entries})
        assert not any(each["ErrorCode"] for each in reply["Results"]), reply

        def has_coordinator() -> bool:
            found = connection.call("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": ["tx"]})
            return not found["Coordinators"][0]["ErrorCode"]

        wait_until(has_coordinator, "there is a coordinator")
        # The last entry is known to the broker.
        wait_until(lambda: begun(broker, BOTH)[0] in (OK, REFUSED), "the coordinator answers")
        wait_until(lambda: begun(broker, COORDINATED)[0] == REFUSED, "the entries are known")
        yield connection


def begun(
    broker: BrokerProcess,
    host: str,
    has_two_phases: bool = False,
    keeps: bool = False,
    timeout_ms: int = 60_000,
    transactional_id: str = "tx",
) -> tuple[int, int, int]:
    """Error code, producer id and epoch."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        enable_2pc=has_two_phases,
        keep_prepared_txn=keeps,
    )
    with Connection(broker.bootstrap, sender=host) as connection:
        answers = [asked(connection, request, 6)]

        def is_decided() -> bool:
            if answers[-1].error_code in NOT_NOW:
                answers.append(asked(connection, request, 6))
            return answers[-1].error_code not in NOT_NOW

        wait_until(is_decided, "InitProducerId is decided")
    answer = answers[-1]
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("broker", ["true", "false"], indirect=True)
def test_which_clients_may_begin_a_transaction_without_a_timeout(
    broker: BrokerProcess, administrator: Connection
) -> None:
    is_enabled = broker.settings["transaction.two.phase.commit.enable"] == "true"
    told = administrator.call("ApiVersions", 0, {})
    assert {each["ApiKey"]: each["MaxVersion"] for each in told["ApiKeys"]}[22] == 6
    found = {asked: tuple(begun(broker, host, *asked)[0] for host in RIGHTS) for asked in ANSWERS}
    assert found == {
        asked: (writer, coordinated, both if is_enabled else other)
        for asked, (writer, coordinated, both, other) in ANSWERS.items()
    }


@pytest.mark.parametrize("broker", ["true"], indirect=True)
def test_a_transaction_without_a_timeout_stays_open(broker: BrokerProcess, administrator: Connection) -> None:
    """Others beside it are aborted when their time is over."""
    create_topic(broker.bootstrap, "topic")

    def opened(name: str, has_two_phases: bool) -> dict[str, object]:
        code, producer_id, epoch = begun(broker, BOTH, has_two_phases, timeout_ms=1, transactional_id=name)
        assert code == OK
        producer = {"TransactionalId": name, "ProducerId": producer_id, "ProducerEpoch": epoch}
        topics = {"Topics": [{"Name": "topic", "Partitions": [0]}]}
        fields = {f"V3AndBelow{key}": value for key, value in (producer | topics).items()}
        added = administrator.call("AddPartitionsToTxn", 3, fields)
        (result,) = added["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"]
        assert result["PartitionErrorCode"] == OK, added
        return producer

    def state(name: str) -> tuple[str, int]:
        described = administrator.call("DescribeTransactions", 0, {"TransactionalIds": [name]})
        (found,) = described["TransactionStates"]
        return found["TransactionState"], found["TransactionTimeoutMs"]

    kept = opened("kept", True)
    for name in ("first", "second"):
        opened(name, False)
        wait_until(lambda name=name: state(name)[0] == "CompleteAbort", f"{name} is aborted")  # type: ignore[misc]
        assert state("kept") == ("Ongoing", NO_TIMEOUT_MS)
    ended = administrator.call("EndTxn", 3, kept | {"Committed": True})
    assert ended["ErrorCode"] == OK
    wait_until(lambda: state("kept")[0] == "CompleteCommit", "the transaction is committed")


def test_the_version_is_not_served_by_default(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Connection(broker.bootstrap) as connection:
        told = connection.call("ApiVersions", 0, {})
        assert {each["ApiKey"]: each["MaxVersion"] for each in told["ApiKeys"]}[22] == 5
        with pytest.raises(ConnectionClosed):
            asked(connection, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000), 6)
