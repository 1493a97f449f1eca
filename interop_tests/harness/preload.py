"""Small C libraries for LD_PRELOAD, compiled by the machine's C compiler into the checkout's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from interop_tests.harness.kafka_jars import CHECKOUT, MissingTool, require_program

BUILD_TIMEOUT_S = 60.0


def preload_library(source: Path) -> Path:
    """The library compiled from this C file. It is compiled when the file is new or has changed."""
    folder = CHECKOUT / ".cache" / "others"
    built = folder / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = built.with_suffix(f".{os.getpid()}")
        command = [require_program("cc"), "-shared", "-fPIC", "-O1", "-o", str(part), str(source), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        if done.returncode != 0:
            raise MissingTool(f"the C compiler refuses {source.name}: {done.stderr}")
        part.rename(built)
    return built
