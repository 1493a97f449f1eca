"""What makes a file the same file: host, device, inode, and a fingerprint of its first bytes. Pure; does no input or output.

A name says nothing, because rotation changes it. An inode alone does not either: the file system gives it out again
once the old file is deleted, and copy-truncate puts new content under the old one. The fingerprint tells those apart, and
finds a file again whose device number changed at a reboot or that was moved to another file system.
"""

from __future__ import annotations

import hashlib
from typing import Final

HEAD_BYTES: Final = 256
"""How much of a file's beginning the fingerprint is made of, at most."""

CHECK_BYTES: Final = 1024
"""How much before a position is compared before reading goes on there: is it still the content that was read?"""

COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4", ".lzma", ".Z", ".br")
"""Names of rotated files that a packer has made; their lines were shipped before they were packed."""


def is_compressed(path: str) -> bool:
    """Whether the name is that of a packed leftover of rotation."""
    return path.endswith(COMPRESSED_SUFFIXES)


def fingerprint(head: bytes) -> str | None:
    """16 hexadecimal digits for the first HEAD_BYTES of a file (or all there is); None while its first line is unfinished.

    Made of the first line, cut at HEAD_BYTES, and not of as many bytes as there happen to be: a file that grows keeps its
    fingerprint, so a line keeps its event id after a crash before the first state was saved.
    """
    first = head[:HEAD_BYTES]
    end = first.find(b"\n")
    if end >= 0:
        first = first[: end + 1]
    elif len(first) < HEAD_BYTES:
        return None
    return hashlib.sha256(first).hexdigest()[:16]


def digest(before: bytes) -> str:
    """16 hexadecimal digits for the (at most CHECK_BYTES) bytes before a position."""
    return hashlib.sha256(before).hexdigest()[:16]


def file_identity(host: str, device: int, inode: int, print_of_head: str, generation: int) -> str:
    """The text of the header `file`; generation counts how often content of this fingerprint began under this inode.

    Machines made from one image give out the same devices and inodes, and logs may begin with the same heading: only the host
    tells their lines apart then.
    """
    origin = hashlib.sha256(host.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    suffix = f"-{generation}" if generation else ""
    return f"{origin}-{device:x}-{inode:x}-{print_of_head}{suffix}"
