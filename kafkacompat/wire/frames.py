"""Frames: a 32-bit size, then that many bytes. The owner of a connection splits received bytes into frames."""

from struct import Struct as Layout

from kafkacompat.wire.codec import encoder
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.message import Message

FRAME_SIZE = Layout(">i")


def request_frame(message: Message, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """Return a request with its size. EncodeError if this version cannot represent the message."""
    assert message.API_KEY is not None
    frame = bytearray(FRAME_SIZE.size)
    frame += request_header_bytes(message.API_KEY, version, correlation_id, client_id)
    encoder(type(message), version)(message, frame)
    FRAME_SIZE.pack_into(frame, 0, len(frame) - FRAME_SIZE.size)
    return frame
