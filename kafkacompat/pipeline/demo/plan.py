"""The demo's processes and their folders. Pure: addresses and times are parameters."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

BROKER: Final = "broker"
GENERATOR: Final = "generator"
COLLECTOR: Final = "collector"
JOBS: Final = "jobs"
CONSOLE: Final = "console"

HISTORY_S: Final = 2 * 3600.0
"""How far in the past event time starts: as much as the charts of the console show."""

HISTORY_SPEED: Final = 360.0
"""The traffic of the past is sent in 20 s. From then on events happen now, like those that a person sends. Events that stay
behind the clock would be late as soon as one event of the present has come."""

JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""With only the first compiler tier, the JVM reserves a fifth of the usual code cache. The queries of all jobs fill
that, and the JVM then ends. So the usual size is set."""

SMALL_SPARK: Final = (
    *("--shuffle-partitions", "1"),
    *("--conf", "spark.sql.codegen.wholeStage=false"),
    *("--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    *("--conf", f"spark.driver.extraJavaOptions={JVM_OPTIONS}"),
)
"""The queries of all jobs start at once on a few cores and process some hundred events per second. Compiling their code fully would
take a minute and not pay off."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One demo: its command line, and the values found on this machine."""

    data: Path
    """Contains a folder each for broker, access log, tables, checkpoints and the children's logs."""
    page_port: int
    """0 lets the console choose a port."""
    seed: int
    rate: float
    """Events per second of event time."""
    trigger_s: float
    master: str
    event_start: str
    """ISO, UTC."""
    bootstrap: str = ""
    """host:port of the broker, empty until it serves. The broker binds a free port itself: one found earlier could be
    taken by then."""

    @property
    def tables(self) -> Path:
        return self.data / "tables"

    def served_by(self, said: str) -> DemoPlan:
        """Return the plan with the address from the broker's ready line."""
        return replace(self, bootstrap=said.split("PLAINTEXT://", 1)[1].split()[0])

    def going_on(self, newest_ms: int | None) -> DemoPlan:
        """Return the plan for existing data whose newest event has this time. Older events would be late for the jobs."""
        if newest_ms is None:
            return self
        newest = datetime.fromtimestamp(newest_ms // 1000, UTC)
        start = max(datetime.fromisoformat(self.event_start), newest)
        return replace(self, event_start=start.isoformat(timespec="seconds"))

    def log(self, child: str) -> Path:
        """Return the file for a child's output."""
        return self.data / "output" / f"{child}.log"

    def command(self, child: str) -> list[str]:
        """Return the command line of a child."""
        return [sys.executable, "-m", "kafkacompat", *self._words(child)]

    def _words(self, child: str) -> list[str]:
        access_log = self.data / "access-log" / "access.log"
        match child:
            case "broker":
                return ["start", *self._broker_settings()]
            case "generator":
                return [
                    *("pipeline", "generate", "--bootstrap", self.bootstrap, "--access-log", str(access_log)),
                    *("--seed", str(self.seed), "--rate", f"{self.rate * HISTORY_SPEED:g}"),
                    *("--speed", f"{HISTORY_SPEED:g}"),
                    *("--start-time", self.event_start, "--interval", "1"),
                ]
            case "collector":
                return [
                    *("pipeline", "collect", f"{access_log}*", "--bootstrap", self.bootstrap),
                    *("--state", str(self.data / "collector"), "--host", "shop", "--interval", "1"),
                ]
            case "jobs":
                return [
                    *("pipeline", "run", "all", "--bootstrap", self.bootstrap, "--master", self.master),
                    *("--checkpoint", str(self.data / "checkpoint"), "--output", str(self.tables)),
                    *("--trigger", f"{self.trigger_s:g}", "--progress", str(self.data / "progress.jsonl")),
                    *SMALL_SPARK,
                ]
            case _:
                page = f"127.0.0.1:{self.page_port}"
                return ["console", "--bootstrap", self.bootstrap, "--listen", page]

    def _broker_settings(self) -> list[str]:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "log.dirs": str(self.data / "broker"),
        }
        return [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]


STARTING_ORDER: Final = (BROKER, CONSOLE, JOBS, COLLECTOR, GENERATOR)
"""Each child is ready before the next one starts. Traffic starts last, when all readers run."""

ENDING_ORDER: Final = (GENERATOR, COLLECTOR, JOBS, CONSOLE, BROKER)
"""From the sources of events to their storage, so that no child loses the one it talks to."""
