"""CPU seconds of this process and of all that it has started. Processors are busy during the whole suite, so only these count."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def spent_s() -> float:
    """Of this process and of every process below it. A process that has ended counts where its parent has waited for it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text(errors="replace")
        except OSError:
            continue
        # The name of a program may contain anything, so what follows begins at the last parenthesis.
        fields = text.rpartition(")")[2].split()
        children[int(fields[1])].append(int(folder.name))
        # Own user and system time, and those of its children that have ended.
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    below, total = [os.getpid()], 0
    while below:
        pid = below.pop()
        total += ticks.get(pid, 0)
        below += children[pid]
    return total / TICKS_A_SECOND
