"""OffsetCommits that differ from an earlier one in nothing but numbers, read in one call.

A consumer commits the same partitions again and again. All bytes but the offsets and leader epochs are the same then, and with
them the response. The layout of such requests is learned from the second one with the same group, generation and member. A
request with other bytes in any place is decoded. So is one from a sender whose rights need a look.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING

from kafkacompat.api.pieces import named_by
from kafkacompat.group.service import CommitShape, PlainCommit, commit_refusal
from kafkacompat.wire.codec import decoder, encode
from kafkacompat.wire.errors import NONE, WireError
from kafkacompat.wire.layouts import layout_of
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.group.service import GroupService

FIRST_VERSION = 8
"""The first one with lengths of one byte."""
FIRST_VERSION_WITH_TOPIC_IDS = 10
SIZE_MAX = 512
"""Bytes of a request whose layout is learned: some 25 partitions."""
KEPT_MAX = 4_096
"""Members whose layouts are kept. Each takes up to some 8 kilobytes."""
PATIENCE = 64
"""Requests of a member that are decoded after one whose layout was of no use, before the next one is learned."""
NUMBERS = 12
"""Bytes of a partition's offset and leader epoch."""
CLIENT_ID = 8
"""Where its length of two bytes begins."""


def body_position(frame: memoryview) -> int:
    """Where the body begins behind a header with a short client id in ASCII and no tags, as nearly all are. 0 for other headers,
    which the usual way reads and checks."""
    try:
        position = CLIENT_ID + 2 + frame[CLIENT_ID + 1]
        if frame[CLIENT_ID] or frame[position] or not bytes(frame[CLIENT_ID + 2 : position]).isascii():
            return 0
    except IndexError:
        return 0
    return position + 1


def parse_plain(node: Node, frame: memoryview, position: int, version: int) -> PlainCommit | None:
    size, opening = len(frame) - position, node.opening
    groups: GroupService | None = getattr(node, "groups", None)  # not before the coordinators are made
    if (
        size > SIZE_MAX
        or version < FIRST_VERSION
        or node.authorizer is not None
        or groups is None
        or (opening is not None and not opening.is_open)
    ):
        return None
    try:
        end = position + frame[position] + 4  # behind the group and the generation
        key = bytes(frame[position : end + frame[end]])
    except IndexError:
        return None
    shapes = groups.commit_shapes
    known = shapes.get(key)
    if isinstance(known, CommitShape) and known.size == size and known.version == version:
        fields = known.layout.unpack_from(frame, position)
        if fields[::3] == known.between:
            image = node.image
            if known.topics is not image.topic_changes.state and not _has_topics(known, image):
                return None
            known.is_of_use = True
            return PlainCommit(known, fields[1::3], fields[2::3])
    if known is None:
        if len(shapes) >= KEPT_MAX:
            shapes.clear()
        shapes[key] = 0
    elif isinstance(known, CommitShape):
        shapes[key] = 0 if known.is_of_use else PATIENCE
    elif known:
        shapes[key] = known - 1
    else:
        shapes[key] = shape_of(frame[position:], version, groups.commit_metadata_max) or PATIENCE
    return None


def shape_of(body: memoryview, version: int, metadata_max: int) -> CommitShape | None:
    """None if the request cannot be read, if it is not as the encoder writes it, or if some of it may be refused at sight.
    `metadata_max`: UTF-16 units, of which a character may be two."""
    try:
        request: OffsetCommitRequest = decoder(OffsetCommitRequest, version)(body, 0)[0]
    except WireError:
        return None
    if encode(request, version) != body:
        return None
    topics = request.topics
    partitions = [each for topic in topics for each in topic.partitions]
    if not all(topic.partitions for topic in topics) or not partitions:
        return None
    if any(len(each.committed_metadata or "") * 2 > metadata_max for each in partitions):
        return None
    for each in partitions:
        each.committed_offset = each.committed_leader_epoch = -1
    ones = encode(request, version)
    for each in partitions:
        each.committed_offset = each.committed_leader_epoch = 0
    zeros = encode(request, version)
    made = Layout(layout_of(zeros, ones, {NUMBERS: "qi"}))
    response = named_by(commit_refusal(request, NONE), version >= FIRST_VERSION_WITH_TOPIC_IDS)
    return CommitShape(request, version, made, made.unpack(body)[::3], encode(response, version))


def _has_topics(shape: CommitShape, image: MetadataImage) -> bool:
    """Whether all topics and partitions exist. The shape gets their names and ids."""
    by_id = shape.version >= FIRST_VERSION_WITH_TOPIC_IDS
    for topic in shape.request.topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None or any(each.partition_index not in known.partitions for each in topic.partitions):
            return False
        topic.name, topic.topic_id = known.name, known.id
    shape.topics = image.topic_changes.state
    shape.records = None
    return True
