"""What is kept of exchanges: typed, bounded, without secrets, and with the reasons of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.exchanges._tests.test_reasons import Known
from kafkacompat.exchanges.exchange import Exchange
from kafkacompat.exchanges.recorded import MASKED, MASKED_TEXT, REQUEST_MASKS, RESPONSE_MASKS, Recorded
from kafkacompat.testing.exchanges import KEPT_BYTES_MAX, Exchanges
from kafkacompat.wire.apis import APIS, request_class, response_class
from kafkacompat.wire.codec import encode, specification
from kafkacompat.wire.headers import response_header_bytes
from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest

SECRET = b"hunter2"


def exchange(request: Any, response: Any, version: int, **said: Any) -> Exchange:
    key = type(request).API_KEY
    data = None
    if response is not None:
        data = response_header_bytes(key, version, 7) + encode(response, version)
    return Exchange(
        key,
        version,
        said.get("client_id", "app"),
        "User:ANONYMOUS",
        1,
        "PLAINTEXT",
        4,
        "127.0.0.1:5",
        1_000,
        encode(request, version),
        None if data is None else [len(data).to_bytes(4, "big") + data],
        said.get("closed"),
        said.get("faults", ()),
    )


def kept(*exchanges: Exchange) -> Exchanges:
    made = Exchanges(lambda node: Known())
    for each in exchanges:
        made.add(each)
    return made


def heartbeat(code: int = 0, **said: Any) -> Exchange:
    request = HeartbeatRequest(group_id="classic", generation_id=4, member_id="a")
    return exchange(request, HeartbeatResponse(error_code=code), 4, **said)


def test_what_is_kept_is_typed_and_chosen_by_its_fields() -> None:
    made = kept(heartbeat(), heartbeat(22, client_id="other"))
    first, second = made.list(api="Heartbeat")
    assert (first.request.group_id, first.response.error_code) == ("classic", 0)
    assert (first.errors, first.reasons) == ((), ())
    assert made.list(client_id="other") == [second]
    assert second.errors == ("ILLEGAL_GENERATION",)
    reason = (
        "ILLEGAL_GENERATION: group 'classic' is in generation 5 (PreparingRebalance), and the request says 4"
    )
    assert second.reasons == (reason,)
    assert str(second) == f"00:00:01.000 node 1 Heartbeat v4 from 'other' (127.0.0.1:5) - {reason}"
    assert made.list(api="Fetch") == []
    with pytest.raises(ValueError, match="no API 'Hartbeat'"):
        made.list(api="Hartbeat")
    with pytest.raises(TypeError, match="no 'cleint_id'"):
        made.list(cleint_id="x")


def test_an_error_of_a_fault_is_said_to_be_one() -> None:
    (told,) = kept(heartbeat(22, faults=("error(ILLEGAL_GENERATION, api='Heartbeat')",))).list()
    assert told.reasons == ("ILLEGAL_GENERATION: a fault of the test says so",)
    (closed,) = kept(exchange(HeartbeatRequest(), None, 4, closed="a fault: close")).list()
    assert closed.response is None
    assert str(closed).endswith("closed: a fault: close")


def test_an_error_of_a_partition_is_explained_by_what_the_request_says_of_it() -> None:
    request = FetchRequest(
        topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=17)])]
    )
    answer = PartitionData(partition_index=0, error_code=1, records=b"")
    response = FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[answer])])
    (told,) = kept(exchange(request, response, 12)).list()
    assert told.reasons == (
        "OFFSET_OUT_OF_RANGE: orders-0 has the offsets 20 to 30, and 17 is outside of them",
    )


def test_what_is_kept_is_bounded() -> None:
    made = kept(*(heartbeat() for _ in range(2_100)))
    assert made.count == 2_100
    assert len(made.list()) == 2_000
    assert len(made.since(2_090, 30)) == 10
    assert len(made.since(0, 30)) == 30
    assert made.since(2_100, 30) == []
    large = [exchange(SaslAuthenticateRequest(auth_bytes=b"x"), None, 2) for _ in range(3)]
    for each in large:
        each.api_key, each.version, each.body = 12, 4, bytes(200 << 10)
    for _ in range(50):
        for each in large:
            made.add(each)
    assert sum(len(each._body or b"") for each in made.list()) <= KEPT_BYTES_MAX
    too_large = heartbeat()
    too_large.body = bytes(300 << 10)
    made.clear()
    made.add(too_large)
    assert made.list()[0].request is None


def test_secrets_are_masked_before_anything_is_kept() -> None:
    scram = AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(name="u", salt=SECRET, salted_password=SECRET)]
    )
    configs = [
        AlterableConfig(name=name, value="hunter2")
        for name in (
            "ssl.keystore.password",
            "listener.name.x.ssl.key.password",
            "unknown.one",
            "log.retention.ms",
        )
    ]
    settings = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)]
    )
    token = CreateDelegationTokenResponse(hmac=SECRET, token_id="t")
    made = kept(
        exchange(scram, response_class(51)(), 0),
        exchange(settings, response_class(44)(), 1),
        exchange(request_class(38)(), token, 3),
        exchange(SaslAuthenticateRequest(auth_bytes=b"\0u\0hunter2"), response_class(36)(), 2),
    )
    changed, altered, created, authenticated = made.list()
    assert changed.request.upsertions[0].salted_password == MASKED
    values = [each.value for each in altered.request.resources[0].configs]
    assert values == [MASKED_TEXT, MASKED_TEXT, MASKED_TEXT, "hunter2"]
    assert created.response.hmac == MASKED
    assert authenticated.request.auth_bytes == MASKED
    for each in (changed, created, authenticated):
        assert SECRET not in (each._body or b"") + (each._reply or b"")


def test_every_field_that_may_be_a_secret_is_masked() -> None:
    suspicious = ("hmac", "auth_bytes", "salt", "salted_password", "request_data", "response_data")
    for api in APIS.values():
        for kind, masks in (("Request", REQUEST_MASKS), ("Response", RESPONSE_MASKS)):
            key = next(key for key, each in APIS.items() if each is api)
            try:
                cls = request_class(key) if kind == "Request" else response_class(key)
            except KeyError:
                continue
            names = {field.name for struct in specification(cls).structs for field in struct.fields}
            names |= {field.name for field in specification(cls).root.fields}
            if names & set(suspicious) or any("password" in name for name in names):
                assert api.name in masks, (api.name, kind)


def test_a_report_leaves_out_what_nodes_ask_again_and_again() -> None:
    def recorded(api: str, request: Any, errors: tuple[str, ...] = ()) -> Recorded:
        body = encode(request, request.MAX_VERSION)
        told = (api, request.MAX_VERSION, "c", "User:ANONYMOUS", 1, "PLAINTEXT", "127.0.0.1:1", 1, 0)
        return Recorded(*told, None, (), errors, (), body, None)

    of_replica = FetchRequest(replica_state=ReplicaState(replica_id=2))
    exchanges = Exchanges(lambda _: None)  # type: ignore[arg-type, return-value]
    exchanges.keep(recorded("Fetch", FetchRequest()))
    mark = exchanges.count
    first, refused, last = (
        recorded("Fetch", FetchRequest()),
        recorded("Fetch", of_replica, ("NOT_LEADER_OR_FOLLOWER",)),
        recorded("Metadata", MetadataRequest()),
    )
    for each in (first, refused, recorded("Fetch", of_replica), last):
        exchanges.keep(each)
        for _ in range(40):
            exchanges.keep(recorded("Fetch", of_replica))
            exchanges.keep(recorded("BrokerHeartbeat", BrokerHeartbeatRequest()))
    assert exchanges.since(mark, 30) == [first, refused, last]
    assert exchanges.since(mark, 2) == [refused, last]
    assert exchanges.since(exchanges.count, 30) == []
