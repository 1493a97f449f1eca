"""The base of all clients of a run: a name in the history, random numbers, settings, and a thread that works until the
end."""

from __future__ import annotations

import itertools
import logging
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kafka.errors import KafkaError as KafkaPythonError

from interop_tests.harness.librdkafka import CONNECTED_TO_ALL
from interop_tests.histories.history import Recorder

# A run causes lost connections, so these messages are expected.
logging.getLogger("kafka").setLevel(logging.CRITICAL)
OPERATION_TIMEOUT_S = 15.0
PAUSE_S = 0.03
"""The pause between two operations of a client, because the clients share the machine."""
AFTER_FAILURE_S = 0.2
Key = tuple[int, str]
"""The key of FindCoordinator: a type, and the id of a group or a transactional id."""
OF_A_GROUP, OF_A_TRANSACTION = 0, 1
EXPECTED = (KafkaException, KafkaPythonError)


class StartAgain(Exception):
    """The outcome of the client's last write is unknown. A new client must be created."""


@dataclass
class Surroundings:
    """State that the clients of a run share."""

    bootstrap: str
    recorder: Recorder
    seed: int
    ended: threading.Event = field(default_factory=threading.Event)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Values to write and offsets to commit. They are unique and increasing."""
    faults: list[str] = field(default_factory=list)
    """Unexpected failures of clients: a bug of the test program, or a hang."""
    log_path: Path = Path(os.devnull)
    """The file for failures that are expected because of faults."""

    def log(self, text: str) -> None:
        with open(self.log_path, "a") as file:
            file.write(f"{self.recorder.now() / 1e9:8.3f} {text}\n")


class Client:
    """A thread that executes the operations of one process after another. Subclasses bring a client and its
    operations."""

    def __init__(self, surroundings: Surroundings, name: str) -> None:
        self.name = name
        self.chance = random.Random(f"{surroundings.seed} {name}")
        self._all = surroundings
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def recorder(self) -> Recorder:
        return self._all.recorder

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive() and not self.hangs_by_itself():
            frame = sys._current_frames().get(self._thread.ident or 0)
            where = "".join(traceback.format_stack(frame)[-3:]) if frame else ""
            self._all.faults.append(f"{self.name} hangs:\n{where}")

    def hangs_by_itself(self) -> bool:
        """Whether a known bug of the client explains its hang, and the documented workaround helps."""
        return False

    def life(self, process: str) -> Any:
        """A context manager that returns a function, which executes one or more operations."""
        raise NotImplementedError

    def _run(self) -> None:
        for number in itertools.count():
            if self._all.ended.is_set():
                return
            try:
                with self.life(f"{self.name}-{number}") as operate:
                    self._operate(operate)
            except (StartAgain, *EXPECTED) as error:
                if is_misuse(error):
                    self._all.faults.append(f"{self.name}: {error!r}")
                    return
                self._all.log(f"{self.name}-{number} ends: {error!r} {error.__cause__ or ''}")
                self._all.ended.wait(AFTER_FAILURE_S)
            except Exception as error:
                self._all.faults.append(f"{self.name}: {error!r}")
                return

    def _operate(self, operate: Callable[[], None]) -> None:
        while not self._all.ended.is_set():
            operate()
            self._all.ended.wait(self.chance.uniform(0, 2 * PAUSE_S))

    def librdkafka(self, **settings: Any) -> dict[str, Any]:
        """Settings of any librdkafka client, with underscores instead of dots."""
        return {
            "bootstrap.servers": self._all.bootstrap,
            "socket.timeout.ms": 60_000,
            **CONNECTED_TO_ALL,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def kafka_python(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._all.bootstrap.split(","),
            "metadata_max_age_ms": 2000,
            "reconnect_backoff_max_ms": 500,
            **settings,
        }


def is_misuse(error: Exception) -> bool:
    """Whether the client refuses its settings, or a call in its present state. No fault of a node explains that."""
    code = error.args[0].code() if isinstance(error, KafkaException) else None
    return code in (KafkaError._INVALID_ARG, KafkaError._STATE)


@contextmanager
def closing(client: Any, close: Callable[[], Any]) -> Iterator[Any]:
    """A client that is closed at the end. Errors are ignored, because its nodes may be down."""
    try:
        yield client
    finally:
        try:
            close()
        except EXPECTED:
            logging.getLogger(__name__).debug("could not be closed", exc_info=True)


def name_of(topic: str, partition: int) -> str:
    """The name of a partition in a history."""
    return f"{topic}-{partition}"
