"""Generated codecs: the functions that encode and decode every request and response.

For each message class and version, a decoding and an encoding function are generated from the definition at their
first use. Decoding raises only WireError, for any bytes. Encoding raises EncodeError if the version cannot represent
the message. Versions are limited to those of the definition.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from kafkacompat.tasks import Work
from kafkacompat.wire import plain_fetch
from kafkacompat.wire.codec_source import DecoderSource, EncoderSource
from kafkacompat.wire.definition import MessageSpec, parse_definition
from kafkacompat.wire.message import Encoded, Message, Struct
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.fetch_response import FetchResponse
from kafkacompat.wire.primitives import ByteSequence
from kafkacompat.wire.remember import remembered

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=Struct)
Decoder: TypeAlias = Callable[[ByteSequence, int], tuple[Any, int]]
StepsDecoder: TypeAlias = Callable[[ByteSequence, int, int], Work[tuple[Any, int]]]
Encoder: TypeAlias = Callable[[Any, bytearray], None]
StepsEncoder: TypeAlias = Callable[..., Work[Any]]
PartsEncoder: TypeAlias = Callable[[Any, bytearray, list[Any]], bytearray]


@remembered
def specification(cls: type[Message]) -> MessageSpec:
    """Return the definition of a message class."""
    spec = parse_definition(cls.DEFINITION, cls.__module__)
    if spec is None:
        raise ValueError(f"{cls.__name__} has no valid version")
    return spec


def message_classes(cls: type[Message]) -> dict[str, type]:
    """Return a message class and the structs nested in it, by name. A subclass of a message's class is decoded as itself."""
    generated = next(each for each in cls.__mro__ if "DEFINITION" in vars(each))
    module = sys.modules[generated.__module__]
    spec = specification(cls)
    return {struct.name: getattr(module, struct.name) for struct in spec.structs} | {spec.name: cls}


def _checked(cls: type[Message], version: int) -> MessageSpec:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise ValueError(f"{cls.__name__} has no version {version}")
    return specification(cls)


@remembered
def decoder(cls: type[Message], version: int) -> Decoder:
    """Return the function `(buffer, position) -> (message, position after it)`. ValueError for a version out of range.

    `records` values are slices of a memoryview of the buffer. All other values are copies.
    """
    source = DecoderSource(_checked(cls, version), version, message_classes(cls))
    made: Decoder = source.define("decode", f"{cls.__name__} version {version} decoder")
    if cls is FetchResponse and version >= plain_fetch.FIRST_RESPONSE_VERSION:
        return plain_fetch.response_decoder(made)
    return made


@remembered
def steps_decoder(cls: type[Message], version: int) -> StepsDecoder:
    """Return a generator function `(buffer, position, most elements)` with the same value as `decoder`, for large
    requests.

    It yields the cost of each step. It raises WireError if all arrays together have more elements than `most`.
    """
    source = DecoderSource(_checked(cls, version), version, message_classes(cls), in_steps=True)
    if not any("yield" in line for line in source.lines):
        source.lines.append("    yield 0")  # never reached, but makes the function a generator
    made: StepsDecoder = source.define("decode", f"{cls.__name__} version {version} decoder in steps")
    return made


@remembered
def encoder(cls: type[Message], version: int) -> Encoder:
    """Return the function `(message, out)`, which appends to a bytearray. ValueError for a version out of range."""
    source = EncoderSource(_checked(cls, version), version, message_classes(cls), parts=False)
    made: Encoder = source.define("encode", f"{cls.__name__} version {version} encoder")
    if cls is FetchRequest and version >= plain_fetch.FIRST_REQUEST_VERSION:
        return plain_fetch.request_encoder(made)
    return made


@remembered
def parts_encoder(cls: type[Message], version: int) -> PartsEncoder:
    """Return the function `(message, out, parts) -> out` that `encode_parts` uses."""
    source = EncoderSource(_checked(cls, version), version, message_classes(cls), parts=True)
    made: PartsEncoder = source.define("encode", f"{cls.__name__} version {version} parts encoder")
    if cls is FetchResponse and version >= plain_fetch.FIRST_RESPONSE_VERSION:
        return plain_fetch.response_parts_encoder(made)
    return made


@remembered
def steps_encoder(cls: type[Message], version: int, parts: bool) -> StepsEncoder:
    """Return a generator function like `encoder` or, with `parts`, `parts_encoder`, for long messages.

    It yields the cost of each step."""
    source = EncoderSource(_checked(cls, version), version, message_classes(cls), parts, in_steps=True)
    if not any("yield" in line for line in source.lines):
        source.lines.append("    yield 0")  # never reached, but makes the function a generator
    made: StepsEncoder = source.define("encode", f"{cls.__name__} version {version} encoder in steps")
    return made


@remembered
def element_encoder(cls: type[Message], element: type[Struct], version: int) -> Encoder:
    """Return the function `(struct, out)` for a struct nested in a message of that class. ValueError as for `encoder`."""
    spec = _checked(cls, version)
    nested = next((struct for struct in spec.structs if struct.name == element.__name__), None)
    if nested is None:
        raise ValueError(f"{cls.__name__} has no {element.__name__}")
    source = EncoderSource(spec, version, message_classes(cls), parts=False, element=nested)
    made: Encoder = source.define("encode", f"{cls.__name__} {element.__name__} version {version} encoder")
    return made


@remembered
def element_steps_encoder(cls: type[Message], element: type[Struct], version: int) -> StepsEncoder:
    """Return a generator function like `element_encoder`, for long structs. It yields the cost of each step."""
    spec = _checked(cls, version)
    nested = next(struct for struct in spec.structs if struct.name == element.__name__)
    source = EncoderSource(spec, version, message_classes(cls), parts=False, element=nested, in_steps=True)
    if not any("yield" in line for line in source.lines):
        source.lines.append("    yield 0")  # never reached, but makes the function a generator
    made: StepsEncoder = source.define(
        "encode", f"{cls.__name__} {element.__name__} version {version} encoder in steps"
    )
    return made


def element_encoded_in_steps(cls: type[Message], version: int, element: S) -> Work[S]:
    """Like `encoded_element`, in steps, for a long element."""
    out = bytearray()
    yield from element_steps_encoder(cls, type(element), version)(element, out)
    return cast(S, Encoded(out))


def encoded_element(cls: type[Message], version: int, element: S) -> S:
    """Return the encoded bytes of a struct, to stand in for it in a top-level array. The message must be encoded at
    this version.

    The static type is the struct's, because the array has that type. The value is an `Encoded`.
    """
    out = bytearray()
    element_encoder(cls, type(element), version)(element, out)
    return cast(S, Encoded(out))


def decode(cls: type[M], version: int, buffer: ByteSequence, position: int = 0) -> M:
    """Return the message at `position`. Bytes after it are ignored, as Kafka ignores them."""
    message: M = decoder(cls, version)(buffer, position)[0]
    return message


def encode(message: Message, version: int) -> bytes:
    """Return the message as bytes. Its `records` must be bytes-like."""
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


def encode_parts(message: Message, version: int, prefix: bytearray | None = None) -> list[Any]:
    """Return the message as parts that a connection writes in order: bytes, and between them `records` values
    unchanged.

    A `records` value is a separate part, the very object, if it is large or not bytes-like (for example a slice of a
    file, whose `len()` is its size in bytes). `prefix` becomes the beginning of the first part and is changed.
    """
    parts: list[Any] = []
    out = parts_encoder(type(message), version)(message, bytearray() if prefix is None else prefix, parts)
    if out or not parts:
        parts.append(out)
    return parts
