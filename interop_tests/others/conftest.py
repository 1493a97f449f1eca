"""The programs, built once per session."""

from __future__ import annotations

import pytest

from interop_tests.harness.programs import franz_go_program, kafkajs_program, sarama_program


@pytest.fixture(scope="session")
def franz_go() -> list[str]:
    """The command of the franz-go program."""
    return franz_go_program()


@pytest.fixture(scope="session")
def kafkajs() -> list[str]:
    """The command of the kafkajs program."""
    return kafkajs_program()


@pytest.fixture(scope="session", params=["old", "new"])
def sarama(request: pytest.FixtureRequest) -> list[str]:
    """The command of the Sarama program, with Sarama 1.41 and with a new release."""
    return sarama_program(request.param)
