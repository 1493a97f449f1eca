"""Fixtures for the tests of the three Python clients."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.harness.waiting import wait_until


class DoomedMember:
    """A group member in a separate process, which is killed with -9."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str) -> None:
        program = Path(__file__).with_name("doomed_member.py")
        self.process = subprocess.Popen(
            [sys.executable, str(program), client, bootstrap, group, topic], stdout=subprocess.PIPE, text=True
        )
        self.assigned = -1
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.assigned = int(line.split()[1])

    def wait_for_partitions(self, minimum: int = 1) -> None:
        wait_until(lambda: self.assigned >= minimum, "the member has partitions")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def doomed_member(bootstrap: str) -> Iterator[Callable[[str, str, str], DoomedMember]]:
    """doomed_member(client, group, topic) starts a member that may be killed. All members are killed when the test
    ends."""
    members: list[DoomedMember] = []

    def start(client: str, group: str, topic: str) -> DoomedMember:
        members.append(DoomedMember(client, bootstrap, group, topic))
        return members[-1]

    yield start
    for member in members:
        member.kill()
