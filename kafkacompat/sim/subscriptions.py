"""What the members of a simulated group of both protocols subscribe to.

One topic is always there and gets partitions. Another is created later. A third is deleted and created again under the
same name, so that its partitions are known by its id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkacompat.sim.group_commits import TOPIC
from kafkacompat.sim.topics import MADE_ANEW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.sim.chance import Chance
    from kafkacompat.sim.committed_metadata import Key

LASTING = (TOPIC, "t1")
"""Never deleted."""
OTHERS = ("t1", MADE_ANEW)
EXPRESSIONS = (TOPIC, "t[01]", f"t.|{MADE_ANEW}", ".*n")
"""The last one matches no topic other than the one that comes and goes."""


def drawn_topics(chance: Chance) -> list[str]:
    return [TOPIC, *(topic for topic in OTHERS if chance.happens(0.5))]


def matches(topic: str, names: Sequence[str], expression: str | None) -> bool:
    return topic in names or (expression is not None and re.fullmatch(expression, topic) is not None)


def partitions_of(image: MetadataImage, topics: set[str]) -> list[Key]:
    return sorted(
        (topic.id, index)
        for name, topic in image.topics.items()
        if name in topics
        for index in topic.partitions
    )
