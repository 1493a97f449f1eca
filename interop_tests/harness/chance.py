"""Repeatable random choices. A test that kills at random moments prints its seed, and KAFKACOMPAT_SEED repeats the
run.

`make test` uses the same seed each time, so a failure is caused by the change under test. `make soak` uses new seeds.
"""

from __future__ import annotations

import os
import random


def seeded_chance() -> random.Random:
    """A generator with the seed in KAFKACOMPAT_SEED, else a new seed in a soak, else always the same seed. The test's
    output names it."""
    anew = random.randrange(1 << 30) if os.environ.get("KAFKACOMPAT_SOAK") else 1
    seed = int(os.environ.get("KAFKACOMPAT_SEED") or anew)
    print("seed", seed)
    return random.Random(seed)
