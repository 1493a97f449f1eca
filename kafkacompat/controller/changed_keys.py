"""Which resources have other settings, and which access control entries differ, between two images. Pure.

As for topics (`changed_topics`), the records that led from one image to the next say which. A walk over everything is
needed only if there were other images in between, or a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.controller.image import KeyChanges, MetadataImage
    from kafkacompat.ids import Uuid

K = TypeVar("K")
V = TypeVar("V")


def changed_configs(old: MetadataImage, new: MetadataImage) -> list[tuple[int, str]]:
    """The resources, by type and name, whose settings differ."""
    return _changed(old.configs, new.configs, old.config_changes, new.config_changes)


def changed_acls(old: MetadataImage, new: MetadataImage) -> list[Uuid]:
    """The ids of entries that were added or removed."""
    return _changed(old.acls, new.acls, old.acl_changes, new.acl_changes)


def _changed(
    old: Mapping[K, V], new: Mapping[K, V], before: KeyChanges[K], changes: KeyChanges[K]
) -> list[K]:
    if old is new:
        return []
    is_next = changes.since is before.state
    candidates = changes.keys if is_next else (*(key for key in old if key not in new), *new)
    return [key for key in candidates if old.get(key) is not new.get(key)]
