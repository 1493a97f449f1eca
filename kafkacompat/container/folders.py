"""The folders of the apache/kafka image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FILE = "server.properties"


@dataclass(frozen=True, slots=True)
class Folders:
    root: Path

    @property
    def mounted_file(self) -> Path:
        """The user's settings, if there are any."""
        return self.root / "mnt/shared/config" / FILE

    @property
    def final_file(self) -> Path:
        """The settings with which the node runs."""
        return self.root / "opt/kafka/config" / FILE

    @property
    def secrets(self) -> Path:
        return self.root / "etc/kafka/secrets"
