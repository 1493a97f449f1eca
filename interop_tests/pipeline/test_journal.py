"""The journal of systemd, by its own daemon and journalctl in a mount namespace: entries reach their topic under one id."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.pipeline.collecting import by_event_id, read_lines

DAEMON = Path("/lib/systemd/systemd-journald")
TIME_LIMIT_S = 60.0
PROGRAM = """
set -e
mount -t tmpfs none /run
mkdir -p /run/systemd/journal /run/log/journal
{daemon} &
daemon=$!
trap 'kill $daemon' EXIT
while ! [ -S /run/systemd/journal/stdout ]; do sleep 0.1; done
say() {{ printf "$2" | systemd-cat -t "$1"; journalctl --sync; }}
collect() {{ {python} -m kafkacompat pipeline collect journal:SYSLOG_IDENTIFIER=shop journal:SYSLOG_IDENTIFIER=till --until-end \
    --host web --topic logs.journal --state {state} --bootstrap {bootstrap} --field env=test; }}
say shop 'one\\ntwo\\n'
say other 'not asked for\\n'
collect
collect
say till 'caf\\351\\n'
collect
rm {state}/positions.json
collect
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")
@pytest.mark.skipif(not DAEMON.exists() or not shutil.which("unshare"), reason="there is no systemd")
def test_entries_of_the_journal_reach_their_topic(bootstrap: str, tmp_path: Path) -> None:
    program = PROGRAM.format(
        daemon=DAEMON, python=sys.executable, state=tmp_path / "state", bootstrap=bootstrap
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", program],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=CHECKOUT,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = read_lines(bootstrap, "logs.journal")
    # Each arrived once, and once more after the state was lost, under the same id.
    assert len(found) == 6
    assert sorted(by_event_id(found).values()) == [b"caf\xe9", b"one", b"two"]
    assert {line.headers["source"] for line in found} == {b"web/journal/shop", b"web/journal/till"}
    assert {line.headers["env"] for line in found} == {b"test"}
