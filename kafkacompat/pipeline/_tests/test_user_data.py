"""The location of the user's data, by the rules of the XDG base directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkacompat.pipeline.user_data import user_data


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/a"}, "/home/a/.local/share/kafkacompat"),
        ({"HOME": "/home/a", "XDG_DATA_HOME": "/data"}, "/data/kafkacompat"),
        ({"HOME": "/home/a", "XDG_DATA_HOME": "relative"}, "/home/a/.local/share/kafkacompat"),
        ({"HOME": "/home/a", "XDG_DATA_HOME": ""}, "/home/a/.local/share/kafkacompat"),
    ],
)
def test_the_folder_goes_by_the_environment(environment: dict[str, str], folder: str) -> None:
    assert user_data(environment) == Path(folder)


def test_without_a_home_the_system_is_asked() -> None:
    assert user_data({}).is_absolute()
