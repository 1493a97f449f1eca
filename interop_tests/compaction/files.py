"""The output of Kafka's DumpLogSegments for a folder with compacted topics."""

from __future__ import annotations

import re
from pathlib import Path

from interop_tests.harness.java_tools import KafkaTools, dump_faults

GAPS = re.compile(r"^Non-consecutive offsets in .*$")
"""Messages about gaps that cleaning causes. The tool prints them for every cleaned segment, also for those of Apache
Kafka."""


def check_files(tools: KafkaTools, data_dir: Path) -> int:
    """Check that there is no fault in any segment, index or snapshot of users' topics, and that offsets rise. Returns
    the number of files."""
    count = 0
    for folder in sorted(data_dir.iterdir()):
        if not folder.is_dir() or not re.search(r"-\d+$", folder.name) or folder.name.startswith("__"):
            continue
        paths = sorted(
            path
            for path in folder.iterdir()
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        )
        output = tools.run("DumpLogSegments", "--files", ",".join(map(str, paths)), "--deep-iteration")
        faults = [line for line in dump_faults(output) if not GAPS.match(line)]
        assert faults == [], f"{folder.name}: {faults[:10]}"
        steps = re.findall(r"^ {2}(\d+) is followed by (\d+)$", output.out, re.M)
        assert all(int(one) < int(two) for one, two in steps), steps
        assert not [name for name in folder.iterdir() if name.suffix in (".cleaned", ".swap")]
        count += len(paths)
    return count
