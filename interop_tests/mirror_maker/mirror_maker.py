"""MirrorMaker 2 as a process of its own, with the settings that the page shows. It may be killed with -9."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.kafka_jvm import QUICK_JVM
from interop_tests.harness.programs import build_once

HERE = Path(__file__).resolve().parent
LOGGING = HERE.parent / "streams" / "log4j2.properties"
STOP_TIMEOUT_S = 60.0


def build() -> Path:
    """The folder with MirrorMaker's jars in lib."""
    maven = require_program("mvn")
    return build_once(
        "mirror_maker",
        [HERE / "pom.xml", LOGGING],
        lambda folder: [
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}/lib"]
        ],
    )


class MirrorMaker:
    def __init__(
        self, root: Path, settings: str, jvm_options: Sequence[str] = ("-Xmx256m", *QUICK_JVM)
    ) -> None:
        folder = build()
        self._command = [
            *(require_program("java"), *jvm_options),
            f"-Dlog4j2.configurationFile={folder}/log4j2.properties",
            *("-cp", f"{folder}/lib/*", "org.apache.kafka.connect.mirror.MirrorMaker"),
        ]
        self._settings = root / "mm2.properties"
        self._settings.write_text(settings)
        self._log = root / "mm2.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> MirrorMaker:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*self._command, str(self._settings)], stdout=log, stderr=log, cwd=self._log.parent
            )
        return self

    @property
    def pid(self) -> int:
        """While it runs."""
        assert self._process is not None
        return self._process.pid

    def assert_runs(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log_text()

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")[-5000:] if self._log.exists() else ""

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
