"""One data folder that Apache Kafka and kafkacompat serve in turn, on the same ports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from interop_tests.harness.broker import APACHE, CLUSTER_ID, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.kafka_jars import KAFKA_VERSION
from interop_tests.harness.kafka_jvm import kafka_java

FORMAT_TIMEOUT_S = 60
# 143 is 128 + SIGTERM: the exit status of a JVM that was stopped by SIGTERM.
CLEAN_STATUS = {APACHE: 143, KAFKACOMPAT: 0}

ONE_PARTITION_EACH = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class SwitchingBroker(BrokerProcess):
    """A node that runs one program after the other. dynamic: the quorum's voter is in the metadata log and not in the
    settings."""

    def __init__(
        self,
        first: str,
        root: Path,
        dynamic: bool,
        settings: dict[str, str] | None = None,
        version: str = KAFKA_VERSION,
        format_options: Sequence[str] = (),
    ) -> None:
        """first is the kind of broker that formats the folder. version is Apache Kafka's."""
        super().__init__(first, root, ONE_PARTITION_EACH | (settings or {}))
        self.version = version
        if dynamic:
            del self.settings["controller.quorum.voters"]
            self.settings["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{self.controller_port}"
        self._format(dynamic, format_options)
        self._formatted = True

    def become(self, kind: str) -> SwitchingBroker:
        """Stop the node by SIGTERM if it runs, and start the other program on the folder."""
        if self.process is not None:
            status = self.stop()
            assert status == CLEAN_STATUS[self.kind], (
                f"{self.kind} ended with {status}:\n{self.log_text()[-4000:]}"
            )
        self.kind = kind
        self.start()
        return self

    def _format(self, dynamic: bool, options: Sequence[str]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.settings_path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        if self.kind == APACHE:
            command = [*kafka_java(version=self.version), "kafka.tools.StorageTool", "format"]
        else:
            command = [sys.executable, "-m", "kafkacompat", "format"]
        command += ["-t", CLUSTER_ID, "-c", str(self.settings_path), *options]
        command += ["--standalone"] if dynamic else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
