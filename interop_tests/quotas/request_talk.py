"""A request of every API and version, under a request quota that each is over: which are throttled, and which are exempt.

The throttle time of such a request is one window, however long the request takes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from interop_tests.harness.wire import Connection, ConnectionClosed, Silence, frame
from interop_tests.quotas.sides import ANONYMOUS, SOFTWARE, TINY
from interop_tests.quotas.talk import Talk
from interop_tests.raw.patient_author import PatientAuthor
from kafkacompat._tests.fuzz.author import Request
from kafkacompat._tests.fuzz.choices import SeededChoices
from kafkacompat._tests.fuzz.judge import read_answer
from kafkacompat.api.registry import Entry, broker_apis

ANSWERED_S = 8.0
WAITS_S = 1.0
WAIT_FOR_OTHERS = ("JoinGroup", "SyncGroup")
MUTED_S = 0.15
"""A muted connection answers nothing within this time."""
THROTTLED_S = 0.5
"""Half a window. Whoever answers later was muted."""
NOT_ASKED = {
    "AlterClientQuotas": "it would change the quota",
    "InitializeShareGroupState": "exempt in kafkacompat (docs/reference/compatibility.md), and so are the other share states",
    "ReadShareGroupState": "",
    "WriteShareGroupState": "",
    "DeleteShareGroupState": "",
    "ReadShareGroupStateSummary": "",
}
KEY_TYPES = 3
FIRST_WITH_KEYS = 4
"""Kafka throttles a FindCoordinator with another type of key, or a refused one of an older version, and does not tell it
(docs/reference/compatibility.md)."""
CLOSED, WAITS = "closed", "waits"


class Once(PatientAuthor):
    """Writes one request of each API and version."""

    def __init__(self, seed: int, entries: Sequence[Entry]) -> None:
        super().__init__(SeededChoices(f"{seed}/once"), entries)
        self.left = [
            (entry, version)
            for entry, version in reversed(self._all)
            if entry.name != "FindCoordinator" or version >= FIRST_WITH_KEYS
        ]

    def _next_asked(self) -> tuple[Entry, int]:
        return self.left[-1]

    def _adjust(self, entry: Entry, message: Any) -> None:
        super()._adjust(entry, message)
        if entry.name == "FindCoordinator":
            message.key_type %= KEY_TYPES


def request_talk(talk: Talk, seed: int, *, newest_only: bool = False) -> None:
    entries = [each for each in broker_apis(False, False).entries if each.name not in NOT_ASKED]
    author = Once(seed, entries)
    talk.alter([([("user", ANONYMOUS)], [("request_percentage", TINY)])])
    talk.settle()
    while author.left:
        request = author.request(0)
        entry, version = author.left.pop()
        if newest_only and version < entry.max_version:
            continue
        with ExitStack() as stack:
            connections = [stack.enter_context(side.connect()) for side in talk.sides]
            answers = [answer_to(request, each) for each in connections]
            if WAITS in answers:  # Kafka answers some requests never (interop_tests/raw/excused.py)
                continue
            talk.answered(str(request), list(zip(answers, are_muted(connections), strict=True)))


def answer_to(request: Request, connection: Connection) -> Any:
    """The throttle time that the client is told, None if the answer has none."""
    connection.send_bytes(frame(request.frame))
    if request.entry.name == "Produce" and request.message.acks == 0:
        return None
    try:
        received = connection.receive_frame(WAITS_S if request.entry.name in WAIT_FOR_OTHERS else ANSWERED_S)
    except ConnectionClosed:
        return CLOSED
    except Silence:
        return WAITS
    return getattr(read_answer(request, received), "throttle_time_ms", None)


def are_muted(connections: Sequence[Connection]) -> list[bool]:
    """Whether each of them is muted or closed. Only if that differs, their answers are waited for."""
    began_s = time.monotonic()
    open_ones = [is_asked(each) for each in connections]
    silent = [
        not is_open or not is_answered(each, MUTED_S)
        for each, is_open in zip(connections, open_ones, strict=True)
    ]
    if len(set(silent)) == 1:
        return silent
    return [
        not is_open or (is_silent and is_answered_late(each, began_s))
        for each, is_open, is_silent in zip(connections, open_ones, silent, strict=True)
    ]


def is_asked(connection: Connection) -> bool:
    try:
        connection.send("ApiVersions", 3, SOFTWARE)
    except ConnectionClosed:
        return False
    return True


def is_answered(connection: Connection, seconds: float) -> bool:
    try:
        connection.receive_frame(seconds)
    except (Silence, ConnectionClosed):
        return False
    return True


def is_answered_late(connection: Connection, began_s: float) -> bool:
    return not is_answered(connection, ANSWERED_S) or time.monotonic() - began_s >= THROTTLED_S
