"""Chance that can be had again: a test that kills at random prints its seed, and KAFKACOMPAT_SEED repeats it.

`make test` draws the same each time, so that a failure belongs to the change under test; `make soak` draws anew.
"""

from __future__ import annotations

import os
import random


def seeded_chance() -> random.Random:
    """Seeded by KAFKACOMPAT_SEED, else anew in a soak, else always alike; the test's output names the seed."""
    anew = random.randrange(1 << 30) if os.environ.get("KAFKACOMPAT_SOAK") else 1
    seed = int(os.environ.get("KAFKACOMPAT_SEED") or anew)
    print("seed", seed)
    return random.Random(seed)
