"""Share groups while leaders, share coordinators and group coordinators die, hang and move by chance.

A seed determines what happens to which node, but not what it interrupts. A failure of an oracle ends the run.

python -m interop_tests.share_groups.chaos [--seed N] [--seconds 120] [--kinds kafkacompat kafkacompat apache]
[--log FOLDER]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.test_mixed import SETTINGS as MIXED
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.share_groups.at_work import AtWork
from interop_tests.share_groups.changes import (
    COORDINATOR,
    GROUPS,
    LEADER,
    elected,
    killed,
    paused,
    reassigned,
    stopped,
    survive,
)
from interop_tests.share_groups.scene import SETTINGS, Scene

CHANGES = (killed, killed, stopped, paused, elected, reassigned)
HESITATION_S = 0.3


def wait_a_little(chance: random.Random, bound_s: float) -> None:
    time.sleep(chance.uniform(0, bound_s))


def run(seed: int, seconds: float, root: Path, kinds: Sequence[str]) -> str:
    """One run with its files below `root`. Returns what was done."""
    chance = random.Random(seed)
    is_mixed = len({*kinds}) > 1
    settings = (MIXED if is_mixed else {}) | SETTINGS
    cluster = Cluster(kinds, root / "cluster", len(kinds), settings=settings)
    done: Counter[str] = Counter()
    work = None
    try:
        scene = Scene(cluster.start())
        work = AtWork(scene, root)
        nodes = sorted(cluster.nodes)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            scene.place(*(chance.choice(nodes) for _ in range(3)))
            change, topics = chance.choice(CHANGES), chance.choice((LEADER, COORDINATOR, GROUPS))
            what = f"{change.__name__} {topics[0]}"
            name = f"{sum(done.values())}-{what.replace(' ', '-')}"
            hesitate = partial(wait_a_little, chance, chance.choice((0.0, HESITATION_S)))
            survive(scene, work, change, topics, name, hesitate)
            done[what] += 1
        work.finish()
    finally:
        if work is not None:
            work.abandon()
        cluster.close()
    changes = ", ".join(f"{what}: {count}" for what, count in sorted(done.items()))
    return f"seed {seed}: {changes}; deposed leaders: {len(work.crew.excused)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--kinds", nargs="+", choices=(KAFKACOMPAT, APACHE), default=[KAFKACOMPAT] * 3)
    parser.add_argument("--log", type=Path, help="keep the files of a run that fails here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="share-chaos-") as folder:
        root = Path(folder) / "run"
        root.mkdir()
        try:
            print(run(arguments.seed, arguments.seconds, root, arguments.kinds))
        except BaseException:
            print(f"seed {arguments.seed} fails", flush=True)
            if arguments.log is not None:
                shutil.move(root, arguments.log / f"seed-{arguments.seed}")
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
