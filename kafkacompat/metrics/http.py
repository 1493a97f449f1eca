"""The little of HTTP/1.1 that a scraper needs: one GET or HEAD for each connection. Pure: bytes in, bytes out.

A request has no body, and what follows its head is ignored: the connection is closed after the answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD_BYTES_MAX = 8 * 1024
END_OF_HEAD = b"\r\n\r\n"
METHODS = ("GET", "HEAD")
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_SIZE = re.compile(b"[0-9a-f]{1,8}")
"""Of a chunk."""
PLAIN = "text/plain; charset=utf-8"


class HttpError(Exception):
    """The request is answered with this status, and with the text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Request(NamedTuple):
    method: str
    path: str
    """Without the query."""
    takes_chunks: bool
    """HTTP/1.1: the answer may come in chunks, without a length."""
    query: str = ""
    authorization: str | None = None


def parse_head(head: bytes) -> Request:
    """The request line of a whole head. HttpError."""
    line, *fields = head.split(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not parts[1].startswith(b"/"):
        raise HttpError(400, "a request line of HTTP/1.0 or HTTP/1.1 is expected")
    try:
        method, target = parts[0].decode("ascii"), parts[1].decode("ascii")
    except UnicodeDecodeError:
        raise HttpError(400, "the request line is not ASCII") from None
    if method not in METHODS:
        raise HttpError(405, "GET and HEAD are served")
    path, _, query = target.partition("?")
    return Request(method, path, parts[2] == b"HTTP/1.1", query, _only(fields, b"authorization"))


def _only(fields: list[bytes], wanted: bytes) -> str | None:
    """The value of a header. None if it is not there, or more than once."""
    values = [value for name, _, value in (each.partition(b":") for each in fields) if name.lower() == wanted]
    return values[0].strip().decode("latin-1") if len(values) == 1 else None


def answer_head(status: int, content_type: str, length: int | None, *, in_chunks: bool = False) -> bytes:
    """`length`: None where the body ends with the connection, or comes in chunks."""
    lines = [
        f"HTTP/1.1 {status} {REASONS[status]}",
        f"Content-Type: {content_type}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    if in_chunks:
        lines.append("Transfer-Encoding: chunked")
    if status == 405:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join(lines).encode("ascii") + END_OF_HEAD


def answer(status: int, text: str, *, with_body: bool = True) -> bytes:
    """A whole answer of one line."""
    body = f"{text}\n".encode()
    return answer_head(status, PLAIN, len(body)) + (body if with_body else b"")


def whole_body(head: bytes, rest: bytes) -> bytes | None:
    """The body of an answer with this head, after whose `rest` the server has closed the connection.

    None if a part is missing: a server that ends, or lets a client go, closes in the middle."""
    fields = head.split(b"\r\n")[1:]
    if _only(fields, b"transfer-encoding") != "chunked":
        return rest if _only(fields, b"content-length") == str(len(rest)) else None
    parts: list[bytes] = []
    at = 0
    while True:
        end = rest.find(b"\r\n", at)
        size = rest[at:end] if end >= 0 else b""
        if not _SIZE.fullmatch(size):
            return None
        at, after = end + 2, end + 2 + int(size, 16)
        if rest[after : after + 2] != b"\r\n":
            return None
        if at == after:
            return b"".join(parts)
        parts.append(rest[at:after])
        at = after + 2


def chunk(data: bytes) -> bytes:
    """One chunk; of nothing it is the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data)
