"""A process that has imported everything and makes copies of itself: each is a broker's process, which so starts in some
hundredths of a second.

It is the parent of all of them, so it ends them without mistaking one for another process. It ends with the tests, however they
end, and then removes their folders.
"""

from __future__ import annotations

import atexit
import errno
import gc
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pkgutil import walk_packages

PARENT_LOOK_S = 1.0
"""A process that the tests have forked may hold the socket open, so the parent itself is looked at too."""
BYTES_MAX = 1 << 16
IMPORTED = ("api", "controller", "coordinator", "group", "node", "server", "share", "txn", "wire.messages")
"""The packages of which a node imports parts when it starts, and when clients come."""


class ServerEnded(ConnectionError):
    """The server was killed. What it has just made ends too."""


class ForkServer:
    """The tests' end. For any thread."""

    _numbers = itertools.count()
    """Of what is asked. An answer has the number too, because an interrupted test does not wait for its own."""

    def __init__(self, module: str) -> None:
        """`module`: its function `host` is what a process does, with its connection, its folder and the id of its parent."""
        own, others = socket.socketpair()
        with others:
            self._socket = own
            self.pid = os.getpid()
            """Of the tests that it belongs to."""
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kafkacompat.testing.forkserver", module, str(others.fileno())],
                pass_fds=[others.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # no Ctrl-C reaches it
            )
        self._lock = threading.Lock()

    def fork(self, folder: str) -> tuple[int, Connection]:
        """Another process, which takes its orders from the connection, and whose folder goes with the tests. Returns its id. Raises
        ServerEnded, OSError."""
        own, others = socket.socketpair()
        with own, others:
            pid = self._ask({"fork": folder}, [others.fileno()])
            if pid < 0:
                raise OSError(-pid, f"no process for a Kafka: {os.strerror(-pid)}")
            return pid, Connection(own.detach())

    def end(self, pid: int) -> None:
        """kill -9. Return when it has ended."""
        with suppress(OSError, ValueError):  # without this server it has ended too, or does so
            self._ask({"end": pid})

    def _ask(self, asked: dict[str, object], descriptors: list[int] | None = None) -> int:
        number = next(self._numbers)
        text = json.dumps({**asked, "number": number})
        with self._lock, suppress(ConnectionError):
            socket.send_fds(self._socket, [text.encode() + b"\n"], descriptors or [])
            while answers := self._socket.recv(BYTES_MAX):
                for line in answers.splitlines():
                    asked_as, answer = map(int, line.split())
                    if asked_as == number:
                        return answer
        self._process.wait()  # it closes its end only then, and is no longer the parent of any process
        raise ServerEnded("the process that makes brokers' processes has ended")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if os.getpid() == self.pid:
            self._socket.close()
            self._process.wait()


_server: ForkServer | None = None
_lock = threading.Lock()


def fork_server(module: str) -> ForkServer:
    """That of this process. It starts with the first call."""
    global _server
    with _lock:
        if _server is None or _server.pid != os.getpid() or not _server.is_running:
            _server = ForkServer(module)
            atexit.register(_server.stop)
        return _server


def main(module: str, descriptor: int) -> None:
    parent, own_pid = os.getppid(), os.getpid()
    tests = socket.socket(fileno=descriptor)
    host = import_module(module).host
    for name in IMPORTED:
        _import_whole(f"kafkacompat.{name}")
    gc.collect()
    gc.freeze()  # the copies share what is not looked at
    running: set[int] = set()
    """The processes that run, or have ended and were not asked for since. The numbers of all others may be anybody's."""
    folders: set[str] = set()
    """Those of processes that have ended too: others may begin on what they have written."""
    asked = b""
    received: list[int] = []
    while os.getppid() == parent:
        if not select.select([tests], [], [], PARENT_LOOK_S)[0]:
            continue
        try:
            data, descriptors, _, _ = socket.recv_fds(tests, BYTES_MAX, 1)
        except ConnectionError:
            break
        if not data:
            break
        asked += data
        received += descriptors
        if not asked.endswith(b"\n"):
            continue
        wanted, asked = json.loads(asked), b""
        if "end" in wanted:
            _end(wanted["end"], running)
            answer = 0
        else:
            connection = received.pop()
            try:
                answer = os.fork()
            except OSError as error:  # for lack of memory or processes, which passes: the others go on
                answer = -(error.errno or errno.EAGAIN)
            if not answer:
                tests.close()
                _become(host, connection, wanted["fork"], own_pid)
            os.close(connection)
            if answer > 0:
                running.add(answer)
                folders.add(wanted["fork"])
        try:
            tests.sendall(f"{wanted['number']} {answer}\n".encode())
        except ConnectionError:
            break
    for pid in list(running):
        _end(pid, running)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _import_whole(name: str) -> None:
    package = import_module(name)
    for found in walk_packages(package.__path__, f"{name}."):
        if "._tests" not in found.name:
            import_module(found.name)


def _end(pid: int, running: set[int]) -> None:
    if pid in running:
        running.remove(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become(host: Callable[[Connection, str, int], None], descriptor: int, folder: str, parent: int) -> None:
    """Be a broker's process. `parent` may have ended already. Does not return."""
    code = 1
    try:
        host(Connection(descriptor), folder, parent)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
