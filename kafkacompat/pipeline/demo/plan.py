"""Which processes the demo is made of, and where they keep what. Pure: addresses and times come in."""

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

PAST_S_MAX: Final = 24 * 3600.0
"""How far back event time begins at most."""

JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""A JVM that compiles to the first level only takes a fifth of the usual code cache, which 13 queries fill: it ends then."""

SMALL_SPARK: Final = (
    *("--shuffle-partitions", "1"),
    *("--conf", "spark.sql.codegen.wholeStage=false"),
    *("--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    *("--conf", f"spark.driver.extraJavaOptions={JVM_OPTIONS}"),
)
"""13 queries start at once on a few cores and see some hundred events a second: compiling their code well would take a minute
and never pay."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One demo: its command line with what was found out on this machine."""

    data: Path
    """Broker, access log, tables, checkpoint and the children's logs, each in a folder."""
    page_port: int
    """0 for one that the console finds."""
    seed: int
    rate: float
    speed: float
    trigger_s: float
    master: str
    event_start: str
    """ISO, UTC."""
    bootstrap: str = ""
    """host:port of the broker; empty until it serves. It binds a free port itself: one looked for before may be taken."""

    @property
    def tables(self) -> Path:
        return self.data / "tables"

    def served_by(self, said: str) -> DemoPlan:
        """The plan with the address in the line in which the broker says that it serves."""
        return replace(self, bootstrap=said.split("PLAINTEXT://", 1)[1].split()[0])

    def going_on(self, newest_ms: int | None) -> DemoPlan:
        """The plan over data whose newest event is that old: to the jobs, what lies behind what they have seen is late."""
        if newest_ms is None:
            return self
        newest = datetime.fromtimestamp(newest_ms // 1000, UTC)
        start = max(datetime.fromisoformat(self.event_start), newest)
        return replace(self, event_start=start.isoformat(timespec="seconds"))

    def log(self, child: str) -> Path:
        """Where a child's output goes."""
        return self.data / "output" / f"{child}.log"

    def command(self, child: str) -> list[str]:
        """The command line of a child."""
        return [sys.executable, "-m", "kafkacompat", *self._words(child)]

    def _words(self, child: str) -> list[str]:
        access_log = self.data / "access-log" / "access.log"
        match child:
            case "broker":
                return ["start", *self._broker_settings()]
            case "generator":
                return [
                    *("pipeline", "generate", "--bootstrap", self.bootstrap, "--access-log", str(access_log)),
                    *("--seed", str(self.seed), "--rate", f"{self.rate:g}", "--speed", f"{self.speed:g}"),
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
"""Each is ready before the next begins: traffic starts when there is somebody to see it."""

ENDING_ORDER: Final = (GENERATOR, COLLECTOR, JOBS, CONSOLE, BROKER)
"""From where events come to where they are kept, so that nobody loses the one it talks to."""
