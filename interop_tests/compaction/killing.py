"""A broker that is killed by itself at a chosen rename of a swap: a small C library, preloaded."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from interop_tests.harness.kafka_jars import CHECKOUT, MissingTool, require_program

SOURCE = Path(__file__).with_name("kill_at_rename.c")
BUILD_TIMEOUT_S = 60.0


def environment(rename: int) -> dict[str, str]:
    """For the process that is to end right after so many renames of files of a swap."""
    return {"LD_PRELOAD": str(_library()), "KILL_AT_RENAME": str(rename)}


def _library() -> Path:
    folder = CHECKOUT / ".cache" / "others"
    built = folder / f"kill_at_rename-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}.so"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = built.with_suffix(f".{os.getpid()}")
        command = [require_program("cc"), "-shared", "-fPIC", "-O1", "-o", str(part), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        if done.returncode != 0:
            raise MissingTool(f"the C compiler refuses {SOURCE.name}: {done.stderr}")
        part.rename(built)
    return built
