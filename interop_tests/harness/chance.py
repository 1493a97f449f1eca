"""Chance that can be had again: a test that kills at random prints its seed, and KAFKACOMPAT_SEED repeats it."""

from __future__ import annotations

import os
import random


def seeded_chance() -> random.Random:
    """Seeded by KAFKACOMPAT_SEED, or anew; the test's output names the seed."""
    seed = int(os.environ.get("KAFKACOMPAT_SEED") or random.randrange(1 << 30))
    print("seed", seed)
    return random.Random(seed)
