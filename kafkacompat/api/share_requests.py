"""What the requests of share groups' members have in common: who may send them, and what they may read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.api.access import Access, RightToTopics
from kafkacompat.security.acl import AclOperation

if TYPE_CHECKING:
    from kafkacompat.api.context import Node

SHARE_VERSION = "share.version"
FIRST_LEVEL_WITH_SHARE_GROUPS = 1
FIRST_VERSION_WITH_RENEW = 2
MEMBER_ID_MAX = 36
"""The length of a uuid as people read it."""


def serves_share_groups(node: Node) -> bool:
    """Whether the cluster has finalized them."""
    return node.image.features.get(SHARE_VERSION, 0) >= FIRST_LEVEL_WITH_SHARE_GROUPS


def serves_share_fetches(node: Node) -> bool:
    """Whether this node also leads share-partitions."""
    return serves_share_groups(node) and node.shares is not None


def is_valid_member_id(member_id: str | None) -> bool:
    """Its length counts in UTF-16 units, as in Java."""
    if not member_id:
        return False
    return len(member_id.encode("utf-16-le", "surrogatepass")) // 2 <= MEMBER_ID_MAX


def readable(access: Access | None) -> Callable[[str], bool] | None:
    """Return whether the sender may read a topic. None if it may read all of them."""
    return None if access is None else RightToTopics(access, AclOperation.READ).holds
