"""Calls between two processes of the same code, which trust each other, over a socket.

What one of them tells comes before the answer to a call that began later. So whoever has had an answer knows what was told before.
"""

from __future__ import annotations

import copyreg
import io
import itertools
import pickle
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

Serve = Callable[..., Any]
"""The answer to what is called or told, by its name and arguments."""


class ChannelEnded(Exception):
    """The other process has ended."""


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table.copy()  # pickle reads it from the class
    dispatch_table[memoryview] = lambda view: (bytes, (bytes(view),))


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


class Channel:
    """One end. `run` in a thread of its own, and then anything from any thread."""

    def __init__(self, connection: Connection, serve: Serve, told: Serve) -> None:
        """`serve` answers calls, each in a thread of its own. `told` takes what is told, in order, and raises nothing."""
        self._connection = connection
        self._serve = serve
        self._told = told
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self.ended = threading.Event()
        """Set when everything was told that the other process has said."""

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """What the other process answers. Raises what it raises, ChannelEnded."""
        future: Future[Any] = Future()
        with self._lock:
            if self.ended.is_set():
                raise ChannelEnded
            number = next(self._numbers)
            self._waiting[number] = future
        try:
            self._send(("call", number, _pickled((name, arguments, named))))
            has_failed, data = future.result()
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        value = pickle.loads(data)  # noqa: S301  # of a process of ours
        if has_failed:
            raise value
        return value

    def tell(self, name: str, *arguments: Any) -> None:
        """Nothing is answered. When the other process has ended, nothing happens."""
        with suppress(ChannelEnded):
            self._send(("tell", name, arguments))

    def _send(self, message: Any) -> None:
        data = _pickled(message)
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError:
            raise ChannelEnded from None

    def run(self) -> None:
        """Until the other process ends, or this end is closed."""
        try:
            self._receive()
        finally:
            with self._lock:
                self.ended.set()
                waiting = list(self._waiting.values())
            for future in waiting:
                if not future.done():
                    future.set_exception(ChannelEnded())

    def _receive(self) -> None:
        while True:
            try:
                data = self._connection.recv_bytes()
            except (EOFError, OSError):
                return
            kind, *rest = pickle.loads(data)  # noqa: S301  # as above
            if kind == "tell":
                name, arguments = rest
                self._told(name, *arguments)
            elif kind == "call":
                threading.Thread(target=self._answer, args=rest, daemon=True).start()
            else:
                number, *answer = rest
                with self._lock:
                    future = self._waiting.get(number)
                if future is not None:
                    future.set_result(answer)

    def _answer(self, number: int, data: bytes) -> None:
        has_failed, value = False, None
        try:
            name, arguments, named = pickle.loads(data)  # noqa: S301  # it may name what only the other process has
            value = self._serve(name, *arguments, **named)
        except BaseException as error:
            has_failed, value = True, error
        try:
            told = _pickled(value)
            if has_failed:
                pickle.loads(told)  # noqa: S301
        except Exception as error:  # what cannot be sent, or not be received
            text = "".join(traceback.format_exception(value if has_failed else error))
            has_failed, told = True, _pickled(RuntimeError(text))
        with suppress(ChannelEnded):
            self._send(("answer", number, has_failed, told))

    def close(self) -> None:
        self._connection.close()
