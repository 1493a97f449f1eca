"""Helpers of the console's tests: records, snapshots, and requests to ASGI applications."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

from kafkacompat.console.core.results import ResultRecord
from kafkacompat.console.core.snapshot import GroupSeen, NodeSeen, PartitionSeen, Snapshot, TopicSeen

MINUTE_MS = 60_000


def record(
    topic: str,
    key: str,
    offset: int,
    fields: dict[str, Any] | bytes | None,
    partition: int = 0,
    at_ms: int = 5,
) -> ResultRecord:
    value = fields if fields is None or isinstance(fields, bytes) else json.dumps(fields).encode()
    return ResultRecord(topic, partition, offset, at_ms, key.encode(), value)


def window(minute: int, length: int = 1) -> dict[str, int]:
    return {"window_start_ms": minute * MINUTE_MS, "window_end_ms": (minute + length) * MINUTE_MS}


def summary(minute: int, requests: int = 600, bad: int = 0, event_id: str = "") -> dict[str, Any]:
    status = {"status_2xx": requests - bad, "status_3xx": 0, "status_4xx": 0, "status_5xx": bad}
    counted = {"requests": requests, "bytes": requests * 100}
    return {"event_id": event_id or f"s{minute}-{requests}"} | window(minute) | counted | status


def partition(
    number: int,
    leader: int = 1,
    replicas: tuple[int, ...] = (1,),
    in_sync: tuple[int, ...] | None = None,
    earliest: int | None = 0,
    latest: int | None = 10,
) -> PartitionSeen:
    return PartitionSeen(number, leader, replicas, replicas if in_sync is None else in_sync, earliest, latest)


def topic(name: str, *partitions: PartitionSeen, topic_id: str = "", internal: bool = False) -> TopicSeen:
    return TopicSeen(name, topic_id or f"id-{name}", internal, partitions)


def snapshot(
    *topics: TopicSeen, at_ms: int = 1_000, nodes: tuple[int, ...] = (1,), groups: tuple[GroupSeen, ...] = ()
) -> Snapshot:
    seen = tuple(NodeSeen(node, "127.0.0.1", 9000 + node) for node in nodes)
    return Snapshot(at_ms, "cluster", nodes[0] if nodes else -1, seen, topics, groups)


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: ASGIApp,
    path: str,
    query: str = "",
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """Send one request without a socket. The Host is localhost unless the headers have another."""
    given = {"host": "localhost:8088"} | (headers or {})
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [
            (name.encode(), value.encode("latin-1")) for name, value in given.items() if value is not None
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8088),
    }
    answer = Answer()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer
