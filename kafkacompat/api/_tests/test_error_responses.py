"""The response of each API, in every version, to a request that failed as a whole. Kafka's own classes give the same.

golden/error_responses.tsv has the responses of Apache Kafka 4.3.0. interop_tests/raw/error_responses.py asks Kafka
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS
from kafkacompat.wire.apis import request_class, response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.message import Struct

GOLDEN = Path(__file__).parent / "golden" / "error_responses.tsv"
ROWS = [line.split("\t") for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
NOT_SAID = "none"


def comparable(value: Any, text: str) -> Any:
    """Return the value with the messages as clients show them, and with the parts sorted that Kafka returns in hash map order.
    `text` is what clients show of an error that has no message. An empty message is shown as it is."""
    if isinstance(value, list):
        return sorted((comparable(each, text) for each in value), key=repr)
    if isinstance(value, Struct):
        found = {name: comparable(getattr(value, name), text) for name in type(value).__slots__}
        if found.get("error_message", text) is None:
            found["error_message"] = text
        return found
    return value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-v{row[2]}-{row[3]}")
@pytest.mark.parametrize("table", [BROKER_APIS, CONTROLLER_APIS], ids=["broker", "controller"])
def test_a_request_that_fails_is_refused_as_kafka_refuses_it(table: Any, row: list[str]) -> None:
    _, key_text, version_text, code_text, request_hex, response_hex = row
    key, version = int(key_text), int(version_text)
    if not table.serves(key, version):
        return
    request = decode(request_class(key), version, bytes.fromhex(request_hex))
    found = table.load(key).error_response(request, ErrorCode(int(code_text)), version)
    if response_hex == NOT_SAID:
        assert found is None
        return
    expected = decode(response_class(key), version, bytes.fromhex(response_hex.removeprefix("=")))
    told = decode(response_class(key), version, bytes(encode(found, version)))
    text = error_text(ErrorCode(int(code_text)))
    assert comparable(told, text) == comparable(expected, text)
