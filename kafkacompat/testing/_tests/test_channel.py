"""Calls between two ends in this process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any

import pytest

from kafkacompat.testing.channel import Channel, ChannelEnded


class Unknown:
    """A value of a module that the other process does not have."""

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _imported, ()


def _imported() -> object:
    raise ModuleNotFoundError("no module of this name")


def serve(name: str, *arguments: Any) -> Any:
    match name:
        case "unknown":
            return Unknown()
        case "unsendable":
            return threading.Lock()
        case "fail":
            raise LookupError(*arguments)
    return arguments


@pytest.fixture
def channel() -> Iterator[Channel]:
    near, far = Pipe()
    ends = [Channel(each, serve, lambda _: sys.exit()) for each in (near, far)]

    def run(end: Channel) -> None:
        with suppress(SystemExit):
            end.run()

    threads = [threading.Thread(target=run, args=[end]) for end in ends]
    for thread in threads:
        thread.start()
    yield ends[0]
    for end in ends:
        end.tell("end")
    for thread in threads:
        thread.join()
    with pytest.raises(ChannelEnded):
        ends[0].call("echo")
    for end in ends:
        end.close()


def test_what_cannot_be_received_fails_for_its_caller_only(channel: Channel) -> None:
    for call in (lambda: channel.call("echo", Unknown()), lambda: channel.call("unknown")):
        with pytest.raises(ModuleNotFoundError, match="no module of this name"):
            call()
        assert channel.call("echo", 1) == (1,)


def test_what_cannot_be_sent_fails_for_its_caller_only(channel: Channel) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        channel.call("echo", threading.Lock())
    with pytest.raises(RuntimeError, match="cannot pickle"):
        channel.call("unsendable")
    with pytest.raises(LookupError, match=r"^1$"):
        channel.call("fail", 1)
