"""Small file systems for tests. Mounting needs root, so on other machines the tests report a missing tool."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from interop_tests.harness.kafka_jars import MissingTool


def may_mount() -> bool:
    """Whether this process can mount. It tries once, in a namespace that ends immediately."""
    done = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return os.geteuid() == 0 and done.returncode == 0


@contextlib.contextmanager
def mounted_tmpfs(path: Path, size: str) -> Iterator[Path]:
    """A tmpfs of that size, for example '8m'. It is removed when the block ends. MissingTool if mounting is not
    permitted."""
    if not may_mount():
        raise MissingTool("mounting a file system needs root's rights")
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        # Unmount lazily, because a process that is being killed may still have an open file.
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextlib.contextmanager
def pinned(path: Path) -> Iterator[None]:
    """A directory that can be used but not renamed until the block ends, because it is a mount point. MissingTool as
    above."""
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
