"""The area of telemetry (KIP-714): which client is asked for what, and what becomes of what it pushes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started
from interop_tests.telemetry.random_talk import random_talk
from interop_tests.telemetry.sides import MAX_BYTES, TelemetrySide, offer_telemetry
from interop_tests.telemetry.talk import Talk
from interop_tests.telemetry.talks import TALKS


def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> AbstractContextManager[list[TelemetrySide]]:
    return started(TelemetrySide, folder, kinds, {"telemetry.max.bytes": str(MAX_BYTES)}, offer_telemetry)


AREA = Area("telemetry", start, random_talk, {talk.__name__: talk for talk in TALKS}, make=Talk)
