"""The process of a broker for tests: `kafkacompat start`, which ends with whoever holds its standard input, and removes its folder.

python -m kafkacompat.testing.child FOLDER OPTIONS_OF_START
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
from time import sleep

STOP_S = 5.0
"""How long a stop may take when nobody waits for it any more."""


PARENT_LOOK_S = 1.0
"""A process that the parent has forked may hold the pipe open, so the parent itself is looked at too."""


def main(arguments: list[str]) -> int:
    folder, *options = arguments
    is_alone = threading.Event()
    threading.Thread(target=_end_with_parent, args=(folder, os.getppid(), is_alone), daemon=True).start()
    from kafkacompat.__main__ import main as run

    try:
        return run(["start", *options])
    finally:
        if is_alone.is_set():
            shutil.rmtree(folder, ignore_errors=True)


def _end_with_parent(folder: str, parent: int, is_alone: threading.Event) -> None:
    """Standard input ends when the parent does, however it ends: the kernel closes its pipe."""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], PARENT_LOOK_S)
        if readable and not os.read(0, 1024):
            break
    is_alone.set()
    os.kill(os.getpid(), signal.SIGTERM)
    sleep(STOP_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
