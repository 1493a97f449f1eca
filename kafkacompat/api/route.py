"""How one version of one API is served: the handler, the codec, and the prefix of its replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from kafkacompat.api import access
from kafkacompat.api.handler import Message
from kafkacompat.api.registry import BROKER_APIS, ApiTable
from kafkacompat.wire.apis import APIS, request_class, response_class
from kafkacompat.wire.codec import Decoder, Encoder, PartsEncoder, decoder, encoder, parts_encoder

if TYPE_CHECKING:
    from kafkacompat.api.meters import RouteMeter
    from kafkacompat.ports.dispatcher import Reply
    from kafkacompat.wire.primitives import ByteSequence

SIZE_MAX = 256
"""Bytes of a request that is kept, without the size prefix. A heartbeat has about 80, and client and group may have long
names."""
KEPT_MAX = 4_096
"""The newest requests of one version of an API. As many before them are kept too. Each takes about half a kilobyte."""


class Repeat:
    """A request whose answer stays the same as long as `again` says so."""

    __slots__ = ("_end", "_size", "again", "client_host")

    def __init__(self, again: Callable[[], bool], client_host: str, reply: Reply) -> None:
        """`reply` has one part, with the size and the correlation id at its beginning."""
        (part,) = reply
        whole = bytes(part)  # type: ignore[arg-type]  # not a slice of a file
        self.again = again
        self.client_host = client_host
        self._size, self._end = whole[:4], whole[8:]

    def reply(self, correlation_id: memoryview) -> Reply:
        return [self._size + correlation_id + self._end]


class Repeats:
    """The latest of one version of an API, by the bytes behind their correlation ids."""

    __slots__ = ("_earlier", "_latest")

    def __init__(self) -> None:
        self._latest: dict[bytes, Repeat] = {}
        self._earlier: dict[bytes, Repeat] = {}

    def __len__(self) -> int:
        return len(self._latest) + len(self._earlier)

    def find(self, body: bytes) -> Repeat | None:
        repeat = self._latest.get(body)
        if repeat is None and self._earlier:
            repeat = self._earlier.pop(body, None)
            if repeat is not None:
                self.keep(body, repeat)
        return repeat

    def keep(self, body: bytes, repeat: Repeat) -> None:
        """What was neither kept nor found for the longest time gives way."""
        if len(self._latest) >= KEPT_MAX:
            self._earlier, self._latest = self._latest, {}
        self._latest[body] = repeat

    def forget(self, body: bytes) -> None:
        self._latest.pop(body, None)


PRODUCE = 0
FETCH = 1
SHARE_FETCH = 78
PREFIX = Layout(">ii")
"""Size and correlation id: the start of a reply with the old header."""
FLEXIBLE_PREFIX = Layout(">iix")
SIZE = Layout(">i")
DECODED_AT_ONCE_MAX = 16 * 1024
"""Bytes of a request that are decoded in one step. The slowest requests take about a microsecond per byte."""
PRODUCE_DECODED_AT_ONCE_MAX = 64 * 1024


NO_ERRORS: Mapping[int, int] = {}


class EncodedAnswer:
    """A response that is already encoded: the bytes after the header, in the parts that `Route.reply` returns.

    `errors` has how often each error code is in it that was not counted yet.
    """

    __slots__ = ("errors", "parts")

    def __init__(self, parts: list[Any], errors: Mapping[int, int] = NO_ERRORS) -> None:
        self.parts = parts
        self.errors = errors


class Route:
    """How one version of one API is served."""

    __slots__ = (
        "answer_frame",
        "asks_coordinators",
        "blocks",
        "decode",
        "decoded_at_once_max",
        "encode",
        "encode_in_parts",
        "ends_with_connection",
        "error_response",
        "function",
        "has_tagged_header",
        "header_bytes",
        "is_exempt_from_request_quota",
        "is_served",
        "key",
        "long",
        "may_be_long",
        "meter",
        "needs",
        "needs_connection",
        "parse_plain",
        "prefix",
        "repeats",
        "slices",
        "version",
        "waits_at_will",
        "waits_for_opening",
    )

    def __init__(self, key: int, version: int, table: ApiTable = BROKER_APIS) -> None:
        handler = table.load(key)
        # Whoever has a route needs no further module for its messages.
        request_class(key)
        response_class(key)
        self.key = key
        self.version = version
        self.function = handler.function
        entry = table.by_key[key]
        self.needs = entry.needs
        self.meter: RouteMeter | None = None
        """Counts the requests; None where nobody reads the counters."""
        self.is_exempt_from_request_quota = access.is_between_nodes(entry.needs)
        self.error_response = handler.error_response
        self.is_served = handler.is_served
        self.blocks = handler.blocks
        self.waits_for_opening = handler.waits_for_opening
        self.asks_coordinators = handler.asks_coordinators
        self.waits_at_will = handler.waits_at_will
        self.ends_with_connection = handler.ends_with_connection
        self.needs_connection = handler.needs_connection
        self.parse_plain = handler.parse_plain
        self.answer_frame = handler.answer_frame
        self.repeats = Repeats() if handler.repeats else None
        self.slices = handler.slices
        self.long = handler.long
        for rights in entry.named:
            self.function = rights.guarded(self.function, handler.error_response)
            if self.long is not None:
                guarded = rights.guarded(self.long.steps, handler.error_response)
                self.long = replace(self.long, steps=guarded)
        self.may_be_long = self.long is not None or self.slices is not None
        self.decode: Decoder = self._decode_first
        # Most bytes of a produce request are records, which are not parsed here.
        self.decoded_at_once_max = PRODUCE_DECODED_AT_ONCE_MAX if key == PRODUCE else DECODED_AT_ONCE_MAX
        # Records of a fetch are sent as file slices between byte parts.
        self.encode: Encoder | None = None if key in (FETCH, SHARE_FETCH) else self._encode_first
        self.encode_in_parts: PartsEncoder = self._encode_in_parts_first
        self.has_tagged_header = version >= APIS[key].request_flexible_min
        flexible = version >= APIS[key].response_flexible_min
        self.prefix = FLEXIBLE_PREFIX if flexible else PREFIX
        self.header_bytes = self.prefix.size - SIZE.size

    # A node's requests to itself are not encoded, and generating a codec takes milliseconds.

    def _decode_first(self, buffer: ByteSequence, position: int) -> tuple[Any, int]:
        self.decode = decoder(request_class(self.key), self.version)
        return self.decode(buffer, position)

    def _encode_first(self, message: Message, out: bytearray) -> None:
        self.encode = made = encoder(response_class(self.key), self.version)
        made(message, out)

    def _encode_in_parts_first(self, message: Message, out: bytearray, parts: Reply) -> bytearray:
        self.encode_in_parts = made = parts_encoder(response_class(self.key), self.version)
        return made(message, out, parts)

    def reply(self, correlation_id: int, message: Message) -> Reply:
        """Return the message after size and header. Raises EncodeError if this version cannot represent the message."""
        if type(message) is EncodedAnswer:
            encoded = message.parts
            first = encoded[0]
            size = self.header_bytes + (len(first) if len(encoded) == 1 else sum(map(len, encoded)))
            return [self.prefix.pack(size, correlation_id) + first, *encoded[1:]]
        out = bytearray(self.prefix.pack(0, correlation_id))
        if self.encode is not None:
            self.encode(message, out)
            SIZE.pack_into(out, 0, len(out) - 4)
            return [out]
        parts: Reply = []
        rest = self.encode_in_parts(message, out, parts)
        if rest:
            parts.append(rest)
        SIZE.pack_into(out, 0, sum(map(len, parts)) - 4)
        return parts
