"""Requests that were found to do harm once, kept as the bytes that a client sent: they stay what they were when the author changes.

A file is one case: lines that begin with # say what it was, each other line is a request in hexadecimal, sent one after another on
one connection.
"""

from __future__ import annotations

from pathlib import Path

from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.wire.apis import request_class
from kafkacompat.wire.codec import decode
from kafkacompat.wire.headers import parse_request_header

from .author import Request
from .judge import read_answer
from .node import Finding, FuzzedNode
from .witness import Witness

FOLDER = Path(__file__).with_name("corpus")
WAITED_MS = 2_000


def cases() -> list[Path]:
    return sorted(FOLDER.glob("*.frames"))


def frames_of(case: Path) -> list[bytes]:
    lines = case.read_text(encoding="ascii").splitlines()
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def text_of(what: str, frames: list[bytes]) -> str:
    """A case as its file has it."""
    return "".join([f"# {what}\n", *(f"{frame.hex()}\n" for frame in frames)])


def replay(case: Path) -> None:
    """Finding for whatever must not be, as after an episode."""
    node = FuzzedNode(0)
    witness = Witness(node)
    with node.watched():
        node.start()
        witness.prepare()
        witness.look()
        connection = node.connect()
        for frame in frames_of(case):
            connection.send(frame)
            node.pass_time(WAITED_MS)
            header = parse_request_header(frame)
            entry = BROKER_APIS.by_key[header.api_key]
            message = decode(request_class(entry.key), header.api_version, frame, header.body_offset)
            if connection.answers:
                request = Request(entry, header.api_version, header.correlation_id, message, frame, False, ())
                read_answer(request, connection.answers.popleft())
        witness.look()
        node.kill()
        witness.forget_connection()
        node.start()
        witness.look()
        if node.findings:
            raise Finding("\n".join(node.findings))
