"""Which topics differ between two images. Pure.

Most changes concern one topic of thousands, so the records that led from one image to the next say which. A walk over
all topics is needed only if there were other images in between, or a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkacompat.controller.image import MetadataImage, TopicImage
    from kafkacompat.ids import Uuid


class ChangedTopic(NamedTuple):
    former: TopicImage | None
    """None if the topic was created."""
    present: TopicImage | None
    """None if the topic was deleted."""


def changed_topics(old: MetadataImage, new: MetadataImage) -> list[ChangedTopic]:
    """All topics that differ, each id once: first the deleted ones, because one that was created may have the name of
    one of them."""
    if old.topics_by_id is new.topics_by_id:
        return []
    changed = []
    for topic_id in _candidates(old, new):
        former, present = old.topics_by_id.get(topic_id), new.topics_by_id.get(topic_id)
        if former is not present:
            changed.append(ChangedTopic(former, present))
    changed.sort(key=_is_present)
    return changed


def is_next(old: MetadataImage, new: MetadataImage) -> bool:
    """Whether the new image's `topic_changes` are those since the old image."""
    return new.topic_changes.since is old.topic_changes.state


def _candidates(old: MetadataImage, new: MetadataImage) -> Iterable[Uuid]:
    return new.topic_changes.ids if is_next(old, new) else _all_ids(old, new)


def _all_ids(old: MetadataImage, new: MetadataImage) -> Iterator[Uuid]:
    yield from (topic_id for topic_id in old.topics_by_id if topic_id not in new.topics_by_id)
    yield from new.topics_by_id


def _is_present(each: ChangedTopic) -> bool:
    return each.present is not None
