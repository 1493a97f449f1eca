"""A real Prometheus that scrapes nodes on loopback, with the alert rules of the checkout."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interop_tests.harness.kafka_jars import CHECKOUT, MissingTool, require_program
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until

RULES = CHECKOUT / "deploy" / "prometheus" / "alerts.yml"
RULE_TESTS = RULES.with_name("alerts_test.yml")
EXAMPLE = RULES.with_name("prometheus.yml")
DASHBOARD = CHECKOUT / "deploy" / "grafana" / "kafkacompat.json"
TIMEOUT_S = 30.0
INTERVAL = "1s"


def program(name: str) -> str:
    """The path of prometheus or promtool."""
    try:
        return require_program(name)
    except MissingTool as error:
        raise MissingTool(f"{error}: apt-get install prometheus (make prometheus)") from error


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


SHORTER = ((r"(?m)^( +for:) .*$", r"\1 1s"), (r"\[\d+m\]", "[20s]"), ("> 1800000", "> 10000"))
"""What is put into the rules, so that tests need no minutes: alerts wait for one second, counters are compared with those
of 20 s ago, and half an hour is ten seconds."""


class Prometheus:
    """Scrapes the ports each second, with rules that need less time (SHORTER)."""

    def __init__(
        self, root: Path, ports: Sequence[int], shorter: Sequence[tuple[str, str]] = SHORTER
    ) -> None:
        """`shorter`: () for the rules with their own times."""
        self.root = root
        self.port = free_port()
        root.mkdir(parents=True)
        rules = RULES.read_text("utf-8")
        for pattern, short in shorter:
            rules = re.sub(pattern, short, rules)
        (root / "alerts.yml").write_text(rules, "utf-8")
        targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
        (root / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {INTERVAL}, evaluation_interval: {INTERVAL}}}\n"
            "rule_files: [alerts.yml]\n"
            "scrape_configs:\n"
            f"  - {{job_name: kafka, static_configs: [{{targets: [{targets}]}}]}}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Prometheus:
        command = [
            program("prometheus"),
            f"--config.file={self.root / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.root / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with open(self.root / "prometheus.log", "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root)
        try:
            wait_until(self._is_ready, "Prometheus is ready")
        except AssertionError as error:
            self.kill()
            raise AssertionError((self.root / "prometheus.log").read_text()[-3000:]) from error
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
            self._process = None

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=TIMEOUT_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression: str) -> dict[str, float]:
        """The values of an instant query by their labels, as JSON with sorted keys."""
        return {
            json.dumps(each["metric"], sort_keys=True): float(each["value"][1])
            for each in self._get("query", query=expression)["result"]
        }

    def firing(self, port: int | None = None) -> set[str]:
        """The names of the alerts that fire: all, or those of the node with this port for scrapes."""
        return {
            each["labels"]["alertname"]
            for each in self._get("alerts")["alerts"]
            if each["state"] == "firing"
            and (port is None or each["labels"].get("instance") == f"127.0.0.1:{port}")
        }

    def ever(self, state: str) -> dict[str, str]:
        """The severity of each alert that was `firing` or `pending` at any time, by name."""
        query = f'count by(alertname, severity) (count_over_time(ALERTS{{alertstate="{state}"}}[1h]))'
        found = map(json.loads, self.query(query))
        return {each["alertname"]: each["severity"] for each in found}

    def targets(self) -> dict[str, str]:
        """The last error of each target's scrape, by address; empty: it succeeded."""
        active = self._get("targets")["activeTargets"]
        return {
            each["labels"]["instance"]: "" if each["health"] == "up" else each["lastError"] or each["health"]
            for each in active
        }

    def wait_until_scraped(self) -> None:
        """Until the last scrape of every target has succeeded. The first ones come some seconds after the start."""
        wait_until(
            lambda: (found := self.targets()) and not any(found.values()), "all targets are scraped", 120.0
        )

    def wait_until_firing(self, *names: str, port: int | None = None, timeout_s: float = 60.0) -> None:
        """`port`: of the node whose alerts they are."""
        wait_until(lambda: set(names) <= self.firing(port), f"{names} fire", timeout_s, interval_s=0.25)

    def wait_until_resolved(self, *names: str, port: int | None = None, timeout_s: float = 60.0) -> None:
        wait_until(lambda: not set(names) & self.firing(port), f"{names} end", timeout_s, interval_s=0.25)


def dashboard_queries() -> list[tuple[str, str]]:
    """(panel, expression) of the dashboard, with Grafana's variables replaced."""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*"))
        for panel in panels
        for target in panel.get("targets", ())
    ]
