"""The exchange on bytes: frames cut anywhere, hostile answers, versions, and the steps of a login."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.client.exchange import BrokerAway, Exchange, NoAnswer
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import PlainSaslClient, SaslClientAuthenticator
from kafkacompat.wire.apis import APIS, ApiKey
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import parse_request_header, response_header_bytes
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker
from kafkacompat.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkacompat.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from kafkacompat.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkacompat.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest

PEER, USER, SECRET = "[::1]:9092", "reader", "a secret"
BYTES_MAX = 1000
BROKER = MetadataResponseBroker(node_id=1, host="h", port=9092)
SERVED = {ApiKey.METADATA: (0, 9), ApiKey.PRODUCE: (90, 99)}


def sent(frame: bytes | bytearray) -> tuple[int, int, int]:
    """The key, version and correlation id of a request, whose size is checked."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header = parse_request_header(frame[4:])
    assert header.client_id == "test"
    return header.api_key, header.api_version, header.correlation_id


def framed(correlation_id: int, version: int, response: Message) -> bytes:
    assert response.API_KEY is not None
    payload = bytes(response_header_bytes(response.API_KEY, version, correlation_id))
    payload += encode(response, version)
    return struct.pack(">i", len(payload)) + payload


def answered(exchange: Exchange, frame: bytes | bytearray, response: Message) -> None:
    """Receive the answer to the request of `frame` in one piece."""
    _, version, correlation_id = sent(frame)
    assert exchange.receive(framed(correlation_id, version, response))


def versions(served: dict[ApiKey, tuple[int, int]], error: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in served.items()]
    return ApiVersionsResponse(error_code=error, api_keys=keys)


def opened(served: dict[ApiKey, tuple[int, int]] | None = None) -> Exchange:
    exchange = Exchange(PEER, "test", BYTES_MAX)
    request = exchange.opening(None)
    assert isinstance(request, ApiVersionsRequest)
    answered(exchange, exchange.send(request), versions(SERVED if served is None else served))
    assert exchange.opening(exchange.any_response()) is None
    return exchange


@given(st.data())
def test_an_answer_is_read_wherever_it_is_cut(data: st.DataObject) -> None:
    exchange = opened()
    for round_ in range(2):
        _, version, correlation_id = sent(exchange.send(MetadataRequest(topics=[])))
        answer = framed(correlation_id, version, MetadataResponse(brokers=[BROKER] * round_))
        cuts = sorted(data.draw(st.sets(st.integers(1, len(answer) - 1))))
        pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
        assert [exchange.receive(piece) for piece in pieces] == [False] * len(cuts) + [True]
        assert exchange.response(MetadataResponse).brokers == [BROKER] * round_


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_an_answer_or_a_failure_for_a_person(data: bytes, is_framed: bool) -> None:
    exchange = opened()
    exchange.send(MetadataRequest(topics=[]))
    with contextlib.suppress(CommandFailed):
        if exchange.receive(struct.pack(">i", len(data)) + data if is_framed else data):
            exchange.response(MetadataResponse)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3, BYTES_MAX + 1, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_before_what_it_promises_is_received(size: int) -> None:
    exchange = opened()
    exchange.send(MetadataRequest(topics=[]))
    assert not exchange.receive(struct.pack(">i", size)[:3])
    with pytest.raises(
        CommandFailed, match=rf"\[::1\]:9092 to METADATA claims {size} bytes.*most {BYTES_MAX}"
    ):
        exchange.receive(struct.pack(">i", size)[3:])


def test_the_largest_answer_is_read() -> None:
    exchange = opened()
    _, version, correlation_id = sent(exchange.send(MetadataRequest(topics=[])))
    room = BYTES_MAX - (len(framed(correlation_id, version, MetadataResponse(cluster_id=""))) - 4)
    # The length of a compact string of this size has a second byte.
    response = MetadataResponse(cluster_id="c" * (room - 1))
    assert exchange.receive(framed(correlation_id, version, response))
    assert exchange.response(MetadataResponse) == response


def test_the_smallest_answer_has_a_header_and_no_body() -> None:
    exchange = opened({ApiKey.METADATA: (0, 0)})
    _, _, correlation_id = sent(exchange.send(MetadataRequest(topics=[])))
    assert exchange.receive(struct.pack(">ii", 4, correlation_id))
    with pytest.raises(CommandFailed, match="METADATA cannot be read"):
        exchange.response(MetadataResponse)


@pytest.mark.parametrize("difference", [-1, 1, 1000])
def test_the_answer_to_another_request_is_refused(difference: int) -> None:
    exchange = opened()
    _, version, correlation_id = sent(exchange.send(MetadataRequest(topics=[])))
    assert exchange.receive(framed(correlation_id + difference, version, MetadataResponse()))
    with pytest.raises(
        CommandFailed, match=f"cannot be read: it is the one to request {2 + difference}, not to 2"
    ):
        exchange.response(MetadataResponse)


def test_bytes_that_nobody_has_asked_for_are_refused() -> None:
    exchange = opened()
    with pytest.raises(CommandFailed, match="nobody has asked for"):
        exchange.receive(framed(1, 0, MetadataResponse()))
    exchange = opened()
    _, version, correlation_id = sent(exchange.send(MetadataRequest(topics=[])))
    with pytest.raises(CommandFailed, match="sends 1 bytes behind its answer to METADATA"):
        exchange.receive(framed(correlation_id, version, MetadataResponse()) + b"a")


def test_an_answer_that_ends_early_is_refused() -> None:
    exchange = opened()
    _, version, correlation_id = sent(exchange.send(MetadataRequest(topics=[])))
    answer = framed(correlation_id, version, MetadataResponse())
    assert exchange.receive(struct.pack(">i", len(answer) - 5) + answer[4:-1])
    with pytest.raises(CommandFailed, match=r"the answer of \[::1\]:9092 to METADATA cannot be read: "):
        exchange.response(MetadataResponse)


@pytest.mark.parametrize(
    ("served", "most", "used"),
    [((0, 5), None, 5), ((0, 99), None, MetadataRequest.MAX_VERSION), ((4, 9), 7, 7), ((7, 9), 7, 7)],
)
def test_the_highest_version_that_both_know_is_used(
    served: tuple[int, int], most: int | None, used: int
) -> None:
    exchange = opened({ApiKey.METADATA: served})
    assert sent(exchange.send(MetadataRequest(topics=[]), most))[1] == used
    assert exchange.serves(ApiKey.METADATA, served[0])
    assert exchange.serves(ApiKey.METADATA, served[1])
    assert not exchange.serves(ApiKey.METADATA, served[1] + 1)


@pytest.mark.parametrize(
    ("served", "most", "said"),
    [
        ({}, None, "does not serve METADATA"),
        ({ApiKey.METADATA: (90, 99)}, None, "METADATA in versions 90 to 99, which are not known here"),
        ({ApiKey.METADATA: (8, 9)}, 7, "METADATA in versions 8 to 9"),
        ({ApiKey.METADATA: (5, 4)}, None, "METADATA in versions 5 to 4"),
    ],
)
def test_without_a_common_version_nothing_is_sent_and_the_connection_stays_of_use(
    served: dict[ApiKey, tuple[int, int]], most: int | None, said: str
) -> None:
    exchange = opened(served | {ApiKey.API_VERSIONS: (0, 3)})
    with pytest.raises(CommandFailed, match=said):
        exchange.send(MetadataRequest(topics=[]), most)
    assert sent(exchange.send(ApiVersionsRequest()))[:2] == (ApiKey.API_VERSIONS, 3)


def test_a_version_that_is_older_than_the_known_ones_is_not_used() -> None:
    assert ShareGroupDescribeRequest.MIN_VERSION == 1
    exchange = opened({ApiKey.SHARE_GROUP_DESCRIBE: (0, 0)})
    with pytest.raises(CommandFailed, match="SHARE_GROUP_DESCRIBE in versions 0 to 0"):
        exchange.send(ShareGroupDescribeRequest())


def test_the_address_of_a_broker_can_be_shown_whatever_it_advertises() -> None:
    exchange = Exchange("\udcff:1", "test", BYTES_MAX)
    assert str(exchange.closed()).encode().startswith(b"the broker at \\udcff:1 closed")


def test_what_a_version_cannot_express_is_not_sent() -> None:
    exchange = opened({ApiKey.METADATA: (0, 9)})
    with pytest.raises(CommandFailed, match="METADATA cannot be asked in version 9: "):
        exchange.send(MetadataRequest(topics=[MetadataRequestTopic(name=None)]))
    assert sent(exchange.send(MetadataRequest(topics=[])))[2] == 2


def test_a_broker_that_does_not_tell_its_versions_is_refused() -> None:
    exchange = Exchange(PEER, "test", BYTES_MAX)
    request = exchange.opening(None)
    assert request is not None
    answered(exchange, exchange.send(request), versions({}, ErrorCode.UNSUPPORTED_VERSION))
    with pytest.raises(CommandFailed, match=r"\[::1\]:9092 answers API_VERSIONS with error 35"):
        exchange.opening(exchange.any_response())


class Login:
    """An exchange whose first request was answered, with credentials for PLAIN."""

    def __init__(self) -> None:
        self.exchange = Exchange(
            PEER, "test", BYTES_MAX, SaslClientAuthenticator("PLAIN", PlainSaslClient(USER, SECRET))
        )
        self.request = self.exchange.opening(None)
        self.sent: list[bytes] = []

    def answer(self, response: Message) -> Message | None:
        assert self.request is not None
        self.sent.append(bytes(self.exchange.send(self.request)))
        answered(self.exchange, self.sent[-1], response)
        self.request = self.exchange.opening(self.exchange.any_response())
        return self.request


def test_a_login_follows_the_versions() -> None:
    login = Login()
    handshake = login.answer(versions(SERVED))
    assert isinstance(handshake, SaslHandshakeRequest)
    assert handshake.mechanism == "PLAIN"
    assert isinstance(login.answer(SaslHandshakeResponse(mechanisms=["PLAIN"])), SaslAuthenticateRequest)
    assert login.answer(SaslAuthenticateResponse(session_lifetime_ms=1)) is None
    assert [sent(frame)[:2] for frame in login.sent] == [(18, 0), (17, 1), (36, 2)]
    asked = decode(
        SaslAuthenticateRequest, 2, login.sent[2][4:], parse_request_header(login.sent[2][4:]).body_offset
    )
    assert SECRET.encode() in asked.auth_bytes
    assert sent(login.exchange.send(MetadataRequest(topics=[])))[:2] == (3, 9)


@pytest.mark.parametrize(
    ("responses", "said"),
    [
        (
            [SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI"])],
            "the SASL mechanism PLAIN is not enabled there: GSSAPI",
        ),
        ([SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)], "a listener without SASL"),
        ([SaslHandshakeResponse(error_code=-1)], "error -1"),
        (
            [
                SaslHandshakeResponse(),
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="wrong"
                ),
            ],
            "wrong",
        ),
    ],
)
def test_a_refused_login_is_told_with_the_address_and_without_the_secret(
    responses: list[Message], said: str
) -> None:
    login = Login()
    login.answer(versions(SERVED))
    for response in responses[:-1]:
        login.answer(response)
    with pytest.raises(CommandFailed) as refused:
        login.answer(responses[-1])
    assert not isinstance(refused.value, BrokerAway), "a retry cannot help"
    assert str(refused.value).startswith(f"authentication with {PEER} failed: ")
    assert said in str(refused.value)
    assert SECRET not in repr(refused.value) + repr(login.exchange)


def test_a_listener_with_tls_that_answers_in_the_clear_is_recognised() -> None:
    exchange = Exchange(PEER, "test", BYTES_MAX)
    request = exchange.opening(None)
    assert request is not None
    exchange.send(request)
    with pytest.raises(CommandFailed, match=r"security\.protocol must be SSL or SASL_SSL"):
        exchange.receive(b"\x15\x03\x03\x00\x02\x02\x46")


def test_a_lost_connection_is_told_with_the_setting_that_may_be_wrong_until_a_request_was_served() -> None:
    fresh, ready, served = Exchange(PEER, "test", BYTES_MAX), opened(), opened()
    answered(served, served.send(MetadataRequest(topics=[])), MetadataResponse())
    served.response(MetadataResponse)
    for exchange in (fresh, ready):
        for failure in (exchange.closed(), exchange.broken(ConnectionResetError("reset"))):
            assert f"the broker at {PEER} " in str(failure)
            assert "does security.protocol in the client's properties fit" in str(failure)
    assert str(served.closed()) == f"the broker at {PEER} closed the connection"
    served.send(MetadataRequest(topics=[]))
    late = served.timed_out(30.0)
    assert isinstance(late, NoAnswer)
    assert str(late) == f"the broker at {PEER} did not answer METADATA within 30 s"


def test_the_apis_of_the_opening_have_the_versions_that_are_used() -> None:
    for key, version in ((ApiKey.API_VERSIONS, 0), (ApiKey.SASL_HANDSHAKE, 1), (ApiKey.SASL_AUTHENTICATE, 2)):
        assert APIS[key].oldest <= version <= APIS[key].latest
