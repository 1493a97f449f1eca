"""An author of hostile requests whose responses depend neither on timing nor on accidents of Kafka's code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interop_tests.raw.excused import NOT_SENT, NOT_SENT_WITHOUT_RIGHTS
from kafkacompat._tests.fuzz.author import Author, Request
from kafkacompat._tests.fuzz.choices import Choices, happens
from kafkacompat.api.registry import Entry

PATIENT_MS = 120_000
"""No member expires while the test runs. Otherwise two clocks would expire it between different requests."""
ROUND_IN_256 = 150
"""Of 256 requests, this many are for the next API in the next version. All others are random."""


class PatientAuthor(Author):
    def __init__(self, choices: Choices, entries: Sequence[Entry], *, may_lack_rights: bool = False) -> None:
        super().__init__(choices, entries)
        self._not_sent = NOT_SENT + NOT_SENT_WITHOUT_RIGHTS if may_lack_rights else NOT_SENT
        self.mangled_in_256 = 0
        self._all = [
            (entry, version)
            for entry in entries
            for version in range(entry.min_version, entry.max_version + 1)
        ]
        self._left: list[tuple[Entry, int]] = []
        """The remaining APIs and versions of this round through all APIs in all versions."""
        self._chosen = self._all[0]
        self._met: set[tuple[str, int]] = set()

    def request(self, now_ms: int, *, to_controller: bool = False) -> Request:
        self._chosen = self._next_asked()
        while True:
            request = super().request(now_ms, to_controller=to_controller)
            if not any(
                each.forbids(request.entry.name, request.message, request.version) for each in self._not_sent
            ):
                self._met.add((request.entry.name, request.version))
                return request

    def _asked(self, to_controller: bool) -> tuple[Entry, int]:
        return self._chosen

    def _next_asked(self) -> tuple[Entry, int]:
        if not happens(self._choices, ROUND_IN_256):
            return super()._asked(to_controller=False)
        if not self._left:
            self._left = list(self._all)
        return self._left.pop(self._choices.below(len(self._left)))

    def never_asked(self) -> list[tuple[str, int]]:
        return [
            (entry.name, version) for entry, version in self._all if (entry.name, version) not in self._met
        ]

    def _adjust(self, entry: Entry, message: Any) -> None:
        super()._adjust(entry, message)
        be_patient(entry, message)


def be_patient(entry: Entry, message: Any) -> None:
    if entry.name == "JoinGroup":
        if 6_000 <= message.session_timeout_ms <= 1_800_000:
            message.session_timeout_ms = PATIENT_MS
        message.rebalance_timeout_ms = PATIENT_MS
    elif entry.name == "Fetch":
        message.max_wait_ms = 0
    elif entry.name == "InitProducerId" and 0 < message.transaction_timeout_ms <= 900_000:
        message.transaction_timeout_ms = PATIENT_MS
    elif hasattr(message, "timeout_ms"):
        message.timeout_ms = 10_000
