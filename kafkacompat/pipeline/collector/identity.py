"""The identity of a file: host, device, inode, and a fingerprint of its first bytes. Pure, without input or output.

A name is not enough, because rotation changes it. An inode is not enough either: the file system reuses it after a
deletion, and copy-truncate puts new content under the old inode. The fingerprint distinguishes those contents. It also
recognises a file whose device number has changed at a reboot, or that was moved to another file system.
"""

from __future__ import annotations

import hashlib
from typing import Final

HEAD_BYTES: Final = 256
"""Maximum number of bytes at a file's beginning that the fingerprint covers."""

CHECK_BYTES: Final = 1024
"""The bytes before a position that are compared before reading continues there, to check that the content is unchanged."""


def fingerprint(head: bytes) -> str | None:
    """Return 16 hexadecimal digits for the first line of a file, cut at HEAD_BYTES. None while the first line is
    incomplete.

    It does not depend on the file's current length. A growing file keeps its fingerprint, so its lines keep their
    event ids if the collector crashes before the first save.
    """
    first = head[:HEAD_BYTES]
    end = first.find(b"\n")
    if end >= 0:
        first = first[: end + 1]
    elif len(first) < HEAD_BYTES:
        return None
    return hashlib.sha256(first).hexdigest()[:16]


def digest(before: bytes) -> str:
    """Return 16 hexadecimal digits for the bytes before a position, at most CHECK_BYTES."""
    return hashlib.sha256(before).hexdigest()[:16]


def file_identity(host: str, device: int, inode: int, print_of_head: str, generation: int) -> str:
    """Return the text of the header `file`. `generation` counts the contents with this fingerprint at this inode.

    Machines made from one image have the same devices and inodes, and logs may begin with the same heading. Then only
    the host distinguishes their lines.
    """
    suffix = f"-{generation}" if generation else ""
    return f"{origin_of(host)}-{device:x}-{inode:x}-{print_of_head}{suffix}"


def origin_of(host: str) -> str:
    """Return how identities of this host begin."""
    return hashlib.sha256(host.encode("utf-8", "surrogateescape")).hexdigest()[:8]
