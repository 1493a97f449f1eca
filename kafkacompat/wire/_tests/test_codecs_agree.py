"""The generated codecs and the construct declarations agree, for every message and version."""

import json
import random
from typing import Any

import pytest

from kafkacompat.wire import constructs
from kafkacompat.wire._tests.arbitrary import Arbitrary, every_class, every_version
from kafkacompat.wire.codec import (
    decode,
    decoder,
    encode,
    encode_parts,
    encoded_element,
    steps_decoder,
    steps_encoder,
)
from kafkacompat.wire.constructs import reference_decode, reference_encode
from kafkacompat.wire.definition import ROOT
from kafkacompat.wire.errors import EncodeError, WireError
from kafkacompat.wire.message import Encoded, Message, Struct
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.messages.create_topics_request import CreateTopicsRequest
from kafkacompat.wire.one_by_one import OneByOne

CLASSES = every_class()


def check_both_ways(message: Message, version: int) -> bytes:
    cls = type(message)
    data = encode(message, version)
    assert data == reference_encode(message, version)
    assert data == b"".join(encode_parts(message, version))
    made, end = decoder(cls, version)(data, 0)
    assert (made, end) == reference_decode(cls, version, data)
    assert end == len(data)
    assert in_steps(cls, version, data)[0] == (made, end)
    assert encode(made, version) == data
    assert encoded_in_steps(made, version) == (data, data)
    return data


def encoded_in_steps(message: Any, version: int) -> tuple[bytes, bytes]:
    """Encode in steps, as a whole and in parts."""
    out = bytearray()
    for _ in steps_encoder(type(message), version, False)(message, out):
        pass
    parts: list[Any] = []
    steps = steps_encoder(type(message), version, True)(message, bytearray(), parts)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            parts.append(end.value)
            return bytes(out), b"".join(map(bytes, parts))


def in_steps(
    cls: type[Message], version: int, data: bytes, most: int = 1 << 40
) -> tuple[tuple[Any, int], int]:
    """Return the result of the decoder in steps, and the number of its pauses."""
    pauses = 0
    steps = steps_decoder(cls, version)(data, 0, most)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def test_every_definition_has_a_class() -> None:
    definitions = [json.loads(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.json")]
    valid = sorted(each["name"] for each in definitions if each["validVersions"] != "none")
    assert sorted(cls.__name__ for cls in CLASSES) == valid


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_codecs_agree_on_arbitrary_messages(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        check_both_ways(cls(), version)
        for _ in range(6):
            check_both_ways(Arbitrary(rng, cls, version).message(), version)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_codecs_agree_on_broken_bytes(cls: type[Message]) -> None:
    """For any corruption of the bytes, both return the same message, or both raise WireError."""
    rng = random.Random(cls.__name__ + " broken")
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        whole = encode(Arbitrary(rng, cls, version).message(), version)
        for _ in range(12):
            data = broken(rng, whole)
            expected = outcome(lambda: reference_decode(cls, version, data))  # noqa: B023 - called at once
            assert outcome(lambda: decoder(cls, version)(data, 0)) == expected  # noqa: B023 - called at once
            assert outcome(lambda: in_steps(cls, version, data)[0]) == expected  # noqa: B023 - called at once


def outcome(call: Any) -> str:
    # Compared as text: a NaN differs from itself, and slices of records are views.
    try:
        message, end = call()
    except WireError:
        return "WireError"
    return f"{plain(message)} {end}"


def plain(value: Any) -> Any:
    if isinstance(value, OneByOne):
        value = list(value)
    if hasattr(value, "__slots__"):
        return [plain(getattr(value, name)) for name in value.__slots__]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value


def broken(rng: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                del data[place:]
            case 1 if place < len(data):
                data[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 2:
                data[place:place] = rng.choice([b"\xff" * 5, b"\x80" * 10, b"\x7f\xff\xff\xff", b"\x00"])
            case _:
                del data[place : place + 2]
    return bytes(data)


def test_elements_encoded_before_are_put_in_their_place() -> None:
    """For every top-level array of structs: none, some and all elements already encoded."""
    rng = random.Random(12)
    spliced = 0
    for cls, version in every_version():
        for _ in range(3):
            message = Arbitrary(rng, cls, version).message()
            whole = encode(message, version)
            for name in message.__slots__:
                elements = getattr(message, name)
                if isinstance(elements, list) and elements and isinstance(elements[0], Struct):
                    mixed = [
                        encoded_element(cls, version, one) if rng.random() < 0.6 else one for one in elements
                    ]
                    setattr(message, name, mixed)
                    spliced += sum(isinstance(one, Encoded) for one in mixed)
            assert encode(message, version) == whole
            assert b"".join(map(bytes, encode_parts(message, version))) == whole
    assert spliced > 500


def test_only_structs_of_the_message_stand_in_it_as_bytes() -> None:
    with pytest.raises(ValueError, match="CreateTopicsRequest has no ApiVersion"):
        encoded_element(CreateTopicsRequest, 2, ApiVersion())
    with pytest.raises(ValueError, match="no version 99"):
        encoded_element(ApiVersionsResponse, 99, ApiVersion())


def test_unknown_tags_are_skipped_in_every_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown tagged fields, in the message and in every struct, change nothing else."""
    written = constructs.Tags._build

    def with_unknown_tags(self: Any, obj: dict[int, Any], stream: Any, context: Any, path: str) -> Any:
        extra = {7777: "later", 99: "unknown"}
        subcons = {
            **self.subcons,
            **{tag: constructs.Sized(constructs.Length(True, False, False), True) for tag in extra},
        }
        return written(constructs.Tags(subcons), {**obj, **extra}, stream, context, path)

    rng = random.Random(11)
    checked = 0
    for cls, version in every_version():
        if version < cls.FLEXIBLE_MIN:
            continue
        message = Arbitrary(rng, cls, version).message()
        data = encode(message, version)
        with monkeypatch.context() as patch:
            patch.setattr(constructs.Tags, "_build", with_unknown_tags)
            tagged = reference_encode(message, version)
        assert len(tagged) > len(data)
        made, end = decoder(cls, version)(tagged, 0)
        assert end == len(tagged)
        assert made == decode(cls, version, data)
        assert reference_decode(cls, version, tagged) == (made, end)
        checked += 1
    assert checked > 300


def test_a_field_that_the_version_has_not_is_refused_or_dropped() -> None:
    validate = CreateTopicsRequest(validate_only=True)
    assert decode(CreateTopicsRequest, 2, encode(validate, 2)).validate_only
    throttled = ApiVersionsResponse(throttle_time_ms=5)
    assert encode(throttled, 0) == encode(ApiVersionsResponse(), 0) == reference_encode(throttled, 0)
    refused = 0
    for cls, version in every_version():
        message: Any = cls()
        for field in [name for name in message.__slots__ if isinstance(getattr(message, name), int)]:
            before = getattr(message, field)
            setattr(message, field, 1 if before == 0 else 0)
            try:
                encode(message, version)
            except EncodeError:
                refused += 1
                with pytest.raises(EncodeError):
                    reference_encode(message, version)
            else:
                assert encode(message, version) == reference_encode(message, version)
            setattr(message, field, before)
    assert refused > 50


def test_versions_out_of_range_are_our_own_bug() -> None:
    with pytest.raises(ValueError, match="no version 6"):
        encode(ApiVersionsResponse(), 6)
    with pytest.raises(ValueError, match="no version -1"):
        reference_decode(ApiVersionsResponse, -1, b"")
