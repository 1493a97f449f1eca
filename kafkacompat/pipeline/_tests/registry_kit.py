"""For tests: a schema registry on loopback, with the few answers that readers ask for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from kafkacompat.pipeline.schemas.client import SchemaText


class RegistryKit:
    """Schemas by id, and by subject and version. `authorization`: the header without which it answers 401."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.ids: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.authorization: str | None = None
        self.failures = 0
        """How many requests are answered with `failure` before the others."""
        self.failure = 503

    def register(
        self, number: int, schema: object, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> None:
        """Give a schema an id. An Avro schema may be given as what its JSON has."""
        self.ids[number] = self._entry(schema, kind, references)

    def register_version(
        self,
        subject: str,
        version: int,
        schema: object,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> None:
        self.versions[subject, version] = self._entry(schema, kind, references)

    def post(self, path: str, content: dict[str, Any]) -> tuple[int, object]:
        """Register a schema, as serializers do."""
        match [unquote(word) for word in path.strip("/").split("/")]:
            case ["subjects", subject, "versions"]:
                number = max(self.ids, default=0) + 1
                self.ids[number] = self.versions[subject, number] = content
                return 200, {"id": number}
        return 404, {"error_code": 404}

    def answer(self, path: str) -> tuple[int, object]:
        match [unquote(word) for word in path.strip("/").split("/")]:
            case ["schemas", "types"]:
                return 200, ["AVRO", "PROTOBUF", "JSON"]
            case ["schemas", "ids", number] if int(number) in self.ids:
                return 200, self.ids[int(number)]
            case ["subjects", subject, "versions", version] if (subject, int(version)) in self.versions:
                found = self.versions[subject, int(version)]
                return 200, {"subject": subject, "version": int(version), "id": 1, **found}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _entry(self, schema: object, kind: str, references: list[dict[str, Any]] | None) -> dict[str, Any]:
        entry: dict[str, Any] = {"schema": schema if kind == "PROTOBUF" else json.dumps(schema)}
        if kind != "AVRO":
            # Registries leave the type of Avro out.
            entry["schemaType"] = kind
        return entry | ({"references": references} if references else {})


class InMemory:
    """A registry without HTTP."""

    place = "http://registry:8081"

    def __init__(self, **texts: SchemaText) -> None:
        self.texts: dict[int, SchemaText | Exception] = {int(name[1:]): text for name, text in texts.items()}
        self.asked: list[int] = []

    def schema(self, number: int) -> SchemaText:
        from kafkacompat.pipeline.schemas.client import UnknownSchema

        self.asked.append(number)
        found = self.texts.get(number, UnknownSchema(f"the registry has no schema with id {number}"))
        if isinstance(found, Exception):
            raise found
        return found


def framed(number: int, body: bytes, indexes: bytes = b"") -> bytes:
    """Return a value in the wire format. indexes: of a Protobuf message."""
    return b"\0" + number.to_bytes(4, "big") + indexes + body


@contextmanager
def a_registry() -> Iterator[RegistryKit]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kit.asked.append(self.path)
            if kit.failures:
                kit.failures -= 1
                answer: tuple[int, object] = kit.failure, {"error_code": 50003}
            elif kit.authorization not in (None, self.headers.get("Authorization")):
                answer = 401, {"error_code": 401}
            else:
                answer = kit.answer(self.path)
            self.send_answer(*answer)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_answer(*kit.post(self.path, body))

        def send_answer(self, status: int, content: object) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kit = RegistryKit(server)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield kit
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
