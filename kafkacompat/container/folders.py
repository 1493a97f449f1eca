"""The folders of the apache/kafka image."""

from __future__ import annotations

from pathlib import Path

from kafkacompat.dataclass import dataclass

FILE = "server.properties"
LOG4J_FILES = ("log4j2.yaml", "tools-log4j2.yaml")


@dataclass(frozen=True, slots=True)
class Folders:
    root: Path

    @property
    def mounted_file(self) -> Path:
        """The user's settings, if there are any."""
        return self.root / "mnt/shared/config" / FILE

    def mounted_without_effect(self) -> list[Path]:
        """The other files that the apache/kafka image takes from there."""
        return [path for each in LOG4J_FILES if (path := self.mounted_file.parent / each).exists()]

    @property
    def final_file(self) -> Path:
        """The settings with which the node runs."""
        return self.root / "opt/kafka/config" / FILE

    @property
    def secrets(self) -> Path:
        return self.root / "etc/kafka/secrets"
