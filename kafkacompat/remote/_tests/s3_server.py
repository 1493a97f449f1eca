"""A server that speaks as much of S3 as the store needs, and misbehaves on demand."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

KEY, SECRET = "AKEY", "a-secret-that-nobody-sees"
BUCKET = "bucket"
HANG, CUT, NO_RANGE = "hang", "cut", "no range"
Fault = Callable[[str, str], "int | str | None"]
"""(method, name of the object) -> a status to refuse with, HANG, CUT (half of the body), NO_RANGE (another range), or None."""


class S3Server:
    """`objects` by name. `fault` is asked for each request."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fault: Fault = lambda method, name: None
        self.requests: list[tuple[str, str]] = []
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.kept: set[str] = set()
        """Names that are not deleted, among others that are."""
        self.stopping = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_request(self) -> None:
                server.answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        parts = urlsplit(request.path)
        bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
        self.requests.append((request.command, name))
        fault = self.fault(request.command, name)
        if fault == HANG:
            self.stopping.wait()
            request.close_connection = True
            return
        if isinstance(fault, int):
            _reply(request, fault, b"<Error><Code>No</Code></Error>")
        elif f"Credential={KEY}/" not in request.headers.get("Authorization", ""):
            _reply(request, 403, b"<Error><Code>InvalidAccessKeyId</Code></Error>")
        elif bucket != BUCKET:
            _reply(request, 404, b"<Error><Code>NoSuchBucket</Code></Error>")
        else:
            query = parse_qs(parts.query, keep_blank_values=True)
            getattr(self, f"_{request.command.lower()}")(request, name, query, body, fault)

    def _put(
        self, request: BaseHTTPRequestHandler, name: str, query: dict[str, list[str]], body: bytes, _: object
    ) -> None:
        if "uploadId" in query:
            self.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
        else:
            self.objects[name] = body
        _reply(request, 200, b"", ETag='"e"')

    def _post(
        self, request: BaseHTTPRequestHandler, name: str, query: dict[str, list[str]], body: bytes, _: object
    ) -> None:
        if "uploads" in query:
            upload = f"upload-{len(self.uploads)}"
            self.uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        elif "delete" in query:
            text = "<DeleteResult>"
            for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                if key in self.kept:
                    text += f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
                else:
                    self.objects.pop(key, None)
                    text += f"<Deleted><Key>{key}</Key></Deleted>"
            text += "</DeleteResult>"
        else:
            pieces = self.uploads.pop(query["uploadId"][0])
            wanted = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())]
            self.objects[name] = b"".join(pieces[number] for number in wanted)
            text = '<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>'
        _reply(request, 200, text.encode())

    def _get(
        self,
        request: BaseHTTPRequestHandler,
        name: str,
        query: dict[str, list[str]],
        body: bytes,
        fault: int | str | None,
    ) -> None:
        content = self.objects.get(name)
        if content is None:
            _reply(request, 404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        status, headers, piece = (
            200,
            {"ETag": '"e"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"},
            content,
        )
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", "")):
            start, end = int(asked[1]), min(int(asked[2]), len(content) - 1)
            if fault == NO_RANGE:
                start += 1
            if start >= len(content):
                _reply(request, 416, b"<Error><Code>InvalidRange</Code></Error>")
                return
            status, piece = 206, content[start : end + 1]
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
        if fault == CUT:
            request.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(piece))}.items():
                request.send_header(key, value)
            request.end_headers()
            request.wfile.write(piece[: len(piece) // 2])
            request.wfile.flush()
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True
            return
        _reply(request, status, piece, **headers)

    def _delete(
        self, request: BaseHTTPRequestHandler, name: str, query: dict[str, list[str]], body: bytes, _: object
    ) -> None:
        if "uploadId" in query:
            self.uploads.pop(query["uploadId"][0], None)
        else:
            self.objects.pop(name, None)
        _reply(request, 204, b"")


def _reply(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    request.send_response(status)
    for key, value in {**headers, "Content-Length": str(len(body))}.items():
        request.send_header(key, value)
    request.end_headers()
    request.wfile.write(body)
