"""The area of quotas: they are changed, described, and met by clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.quotas.random_talk import random_talk
from interop_tests.quotas.request_talk import request_talk
from interop_tests.quotas.sides import QuotaSide, secured_settings
from interop_tests.quotas.talk import Talk
from interop_tests.side_by_side.area import SOAK, Area, seeds
from interop_tests.side_by_side.brokers import BOTH, started_brokers


@contextmanager
def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> Iterator[list[QuotaSide]]:
    ports: list[int] = []

    def prepare(broker: BrokerProcess) -> None:
        ports.append(free_port())
        broker.settings |= secured_settings(broker, ports[-1])

    with started_brokers(folder, kinds, prepare=prepare) as brokers:
        yield [QuotaSide(broker, port) for broker, port in zip(brokers, ports, strict=True)]


def each_api(talk: Talk) -> None:
    """Under a request quota."""
    (seed,) = seeds((1,), 1)
    talk.place = f"each API, with seed {seed}"
    request_talk(talk, seed, newest_only=not SOAK)


AREA = Area("quotas", start, random_talk, {"each_api": each_api}, make=Talk, goes_on=True)
