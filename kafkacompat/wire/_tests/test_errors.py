"""Kafka's error codes and their texts."""

from kafkacompat.wire.errors import NONE, ErrorCode, code_of, error_text


def test_error_codes_are_kafkas() -> None:
    assert (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_VERSION) == (0, -1, 35)


def test_a_code_with_a_text_is_found_by_its_number() -> None:
    assert ErrorCode(35) is ErrorCode.UNSUPPORTED_VERSION
    assert ErrorCode(0) is NONE is ErrorCode.NONE


def test_a_code_of_a_newer_node_is_an_unknown_error() -> None:
    assert code_of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(30_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_code_without_a_text_is_told_by_its_name() -> None:
    assert error_text(ErrorCode.REQUEST_TIMED_OUT) == "The request timed out."
    assert error_text(ErrorCode.TOPIC_ALREADY_EXISTS) == "TOPIC_ALREADY_EXISTS"
