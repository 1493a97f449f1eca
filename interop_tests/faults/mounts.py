"""Small file systems of a test's own. Mounting needs root's rights, so a machine without them says so."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from interop_tests.harness.kafka_jars import MissingTool


def may_mount() -> bool:
    """Whether this process can mount: tried once, in a namespace that ends at once."""
    done = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return os.geteuid() == 0 and done.returncode == 0


@contextlib.contextmanager
def mounted_tmpfs(path: Path, size: str) -> Iterator[Path]:
    """A tmpfs of that size, '8m' say, gone when the block ends. MissingTool where mounting is not allowed."""
    if not may_mount():
        raise MissingTool("mounting a file system needs root's rights")
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        # Lazily: a process that is being killed may still hold a file.
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextlib.contextmanager
def pinned(path: Path) -> Iterator[None]:
    """A directory that can be used but not be renamed, until the block ends: it is a mount point. MissingTool as above."""
    if not may_mount():
        raise MissingTool("mounting a file system needs root's rights")
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def remount(path: Path, options: str) -> None:
    """Change a mount: 'ro', 'rw', 'size=16m'."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(path)], check=True)
