"""How many examples a test of the compiled modules draws. Under sanitizers drawing one costs ten times as much, and the same
examples are drawn without them, so `make test` takes the first quarter there."""

from __future__ import annotations

import os

FEWER = "KAFKACOMPAT_FEWER_EXAMPLES"


def examples(most: int) -> int:
    return most // 4 if os.environ.get(FEWER) else most
