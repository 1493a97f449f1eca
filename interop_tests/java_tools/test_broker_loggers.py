"""Levels of loggers by kafka-configs (KIP-412): of the root logger, and of some other one, whose names differ by broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop_tests.harness.java_tools import KafkaTools

ROOT = "root"
BROKER = ("--entity-type", "broker-loggers", "--entity-name", "1")


@pytest.fixture
def configs(tools: KafkaTools, bootstrap: str) -> Iterator[KafkaConfigs]:
    configs = KafkaConfigs(tools, bootstrap)
    before = configs.levels()[ROOT]
    yield configs
    configs.alter("--add-config", f"{ROOT}={before}")


class KafkaConfigs:
    def __init__(self, tools: KafkaTools, bootstrap: str) -> None:
        self._tools, self._bootstrap = tools, bootstrap

    def alter(self, *words: str) -> tuple[int, str]:
        done = self._tools.run(
            "ConfigCommand",
            "--bootstrap-server",
            self._bootstrap,
            "--alter",
            *BROKER,
            *words,
            status=None,
        )
        return done.status, done.out + done.err

    def some_logger(self) -> str:
        return min(self.levels().keys() - {ROOT})

    def levels(self) -> dict[str, str]:
        done = self._tools.run("ConfigCommand", "--bootstrap-server", self._bootstrap, "--describe", *BROKER)
        lines = [line.split()[0] for line in done.out.splitlines() if line.startswith("  ")]
        return dict(each.split("=", 1) for each in lines)


def test_levels_are_told_changed_and_removed(configs: KafkaConfigs) -> None:
    name = configs.some_logger()
    status, told = configs.alter("--add-config", f"{ROOT}=ERROR,{name}=DEBUG")
    assert status == 0, told
    levels = configs.levels()
    assert (levels[ROOT], levels[name]) == ("ERROR", "DEBUG")
    assert configs.alter("--delete-config", name)[0] == 0
    assert configs.levels()[name] == "ERROR", "that of the root logger"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--add-config", "no.such.logger=INFO"), "Invalid broker logger(s): no.such.logger"),
        (("--add-config", "{some}=LOUD"), "Cannot set the log level of"),
        (("--delete-config", ROOT), "root"),
    ],
)
def test_a_logger_that_cannot_be_changed_is_refused(
    configs: KafkaConfigs, words: tuple[str, str], reason: str
) -> None:
    before = configs.levels()
    option, change = words
    status, told = configs.alter(option, change.format(some=configs.some_logger()))
    assert status == 1
    assert reason in told
    assert configs.levels() == before
