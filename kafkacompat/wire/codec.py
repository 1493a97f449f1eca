"""Generated codecs: the functions that every request and reply passes through.

For a message class and version there is a decoding and an encoding function, made from the definition on first use. Decoding raises
WireError and nothing else, for any bytes; encoding raises EncodeError for a message that the version cannot carry. Versions are
limited to those of the definition.
"""

import sys
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar, cast

from kafkacompat.wire.decoder_source import DecoderSource
from kafkacompat.wire.definition import MessageSpec, load_definition
from kafkacompat.wire.encoder_source import EncoderSource
from kafkacompat.wire.message import Encoded, Message, Struct
from kafkacompat.wire.primitives import ByteSequence
from kafkacompat.wire.remember import remembered

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=Struct)
Decoder: TypeAlias = Callable[[ByteSequence, int], tuple[Any, int]]
StepsDecoder: TypeAlias = Callable[[ByteSequence, int, int], Generator[None, None, tuple[Any, int]]]
Encoder: TypeAlias = Callable[[Any, bytearray], None]
StepsEncoder: TypeAlias = Callable[..., Generator[None, None, Any]]
PartsEncoder: TypeAlias = Callable[[Any, bytearray, list[Any]], bytearray]


@remembered
def specification(cls: type[Message]) -> MessageSpec:
    """The definition of a message class."""
    spec = load_definition(cls.DEFINITION)
    if spec is None:
        raise ValueError(f"{cls.__name__} has no valid version")
    return spec


def message_classes(cls: type[Message]) -> dict[str, type]:
    """A message class and the structs nested in it, by name."""
    module = sys.modules[cls.__module__]
    return {struct.name: getattr(module, struct.name) for struct in specification(cls).structs}


def _checked(cls: type[Message], version: int) -> MessageSpec:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise ValueError(f"{cls.__name__} has no version {version}")
    return specification(cls)


@remembered
def decoder(cls: type[Message], version: int) -> Decoder:
    """The function `(buffer, position) -> (message, position after it)`. ValueError for a version out of range.

    `records` values are slices of a memoryview of the buffer; everything else is copied out of it.
    """
    source = DecoderSource(_checked(cls, version), version, message_classes(cls))
    made: Decoder = source.define("decode", f"{cls.__name__} version {version} decoder")
    return made


@remembered
def steps_decoder(cls: type[Message], version: int) -> StepsDecoder:
    """The generator `(buffer, position, most elements)` of what `decoder` gives, for large requests: it yields between steps.

    WireError for more elements in all arrays together than `most`.
    """
    source = DecoderSource(_checked(cls, version), version, message_classes(cls), in_steps=True)
    if not any("yield" in line for line in source.lines):
        source.lines.append("    yield")  # never reached: makes it a generator all the same
    made: StepsDecoder = source.define("decode", f"{cls.__name__} version {version} decoder in steps")
    return made


@remembered
def encoder(cls: type[Message], version: int) -> Encoder:
    """The function `(message, out)` that appends to a bytearray. ValueError for a version out of range."""
    source = EncoderSource(_checked(cls, version), version, message_classes(cls), parts=False)
    made: Encoder = source.define("encode", f"{cls.__name__} version {version} encoder")
    return made


@remembered
def parts_encoder(cls: type[Message], version: int) -> PartsEncoder:
    """The function `(message, out, parts) -> out` behind `encode_parts`."""
    source = EncoderSource(_checked(cls, version), version, message_classes(cls), parts=True)
    made: PartsEncoder = source.define("encode", f"{cls.__name__} version {version} parts encoder")
    return made


@remembered
def steps_encoder(cls: type[Message], version: int, parts: bool) -> StepsEncoder:
    """As `encoder`, or with `parts` as `parts_encoder`, but a generator for long messages: it yields between steps."""
    source = EncoderSource(_checked(cls, version), version, message_classes(cls), parts, in_steps=True)
    if not any("yield" in line for line in source.lines):
        source.lines.append("    yield")  # never reached: makes it a generator all the same
    made: StepsEncoder = source.define("encode", f"{cls.__name__} version {version} encoder in steps")
    return made


@remembered
def element_encoder(cls: type[Message], element: type[Struct], version: int) -> Encoder:
    """The function `(struct, out)` for a struct nested in a message of that class. ValueError as for `encoder`."""
    spec = _checked(cls, version)
    nested = next((struct for struct in spec.structs if struct.name == element.__name__), None)
    if nested is None:
        raise ValueError(f"{cls.__name__} has no {element.__name__}")
    source = EncoderSource(spec, version, message_classes(cls), parts=False, element=nested)
    made: Encoder = source.define("encode", f"{cls.__name__} {element.__name__} version {version} encoder")
    return made


@remembered
def element_steps_encoder(cls: type[Message], element: type[Struct], version: int) -> StepsEncoder:
    """As `element_encoder`, but a generator for long structs: it yields between steps."""
    spec = _checked(cls, version)
    nested = next(struct for struct in spec.structs if struct.name == element.__name__)
    source = EncoderSource(spec, version, message_classes(cls), parts=False, element=nested, in_steps=True)
    if not any("yield" in line for line in source.lines):
        source.lines.append("    yield")  # never reached: makes it a generator all the same
    made: StepsEncoder = source.define(
        "encode", f"{cls.__name__} {element.__name__} version {version} encoder in steps"
    )
    return made


def element_encoded_in_steps(cls: type[Message], version: int, element: S) -> Generator[None, None, S]:
    """As `encoded_element`, for a long one."""
    out = bytearray()
    yield from element_steps_encoder(cls, type(element), version)(element, out)
    return cast(S, Encoded(out))


def encoded_element(cls: type[Message], version: int, element: S) -> S:
    """Bytes that stand for a struct in an array of the message's own, when that is encoded at this very version.

    They have the struct's type, for that is what the array holds, but they are an `Encoded`.
    """
    out = bytearray()
    element_encoder(cls, type(element), version)(element, out)
    return cast(S, Encoded(out))


def decode(cls: type[M], version: int, buffer: ByteSequence, position: int = 0) -> M:
    """The message at `position`; bytes after it are ignored, as Kafka ignores them."""
    message: M = decoder(cls, version)(buffer, position)[0]
    return message


def encode(message: Message, version: int) -> bytes:
    """The message as bytes; its `records` must be bytes-like."""
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


def encode_parts(message: Message, version: int, prefix: bytearray | None = None) -> list[Any]:
    """The message as what a connection writes in turn: byte parts, and between them `records` values untouched.

    A `records` value that is not bytes-like (a slice of a file, say; its `len()` is its size in bytes) or that is
    large is a part of its own, the very object. `prefix` becomes the beginning of the first part and is changed.
    """
    parts: list[Any] = []
    out = parts_encoder(type(message), version)(message, bytearray() if prefix is None else prefix, parts)
    if out or not parts:
        parts.append(out)
    return parts
