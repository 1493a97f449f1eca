"""The two sides of a comparison of metrics: a cluster of kafkacompat, and one of Apache Kafka under the exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from interop_tests.harness.kafka_jars import MissingTool


class Side(Protocol):
    @property
    def cluster(self) -> Any: ...

    def start(self) -> None: ...


S = TypeVar("S", bound=Side)


def started(make: Callable[[str, Path], S], kind: str, root: Path) -> Iterator[S]:
    """Yield one side, and close it afterwards. Skips the test where a tool of Kafka's cannot be had."""
    try:
        made = make(kind, root)
    except MissingTool as missing:
        pytest.skip(str(missing))
    try:
        made.start()
        yield made
    finally:
        made.cluster.close()
