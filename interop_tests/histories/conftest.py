"""Fixtures of the tests of histories."""

from __future__ import annotations

import pytest

from interop_tests.harness.broker import chosen_kind


@pytest.fixture
def kind() -> str:
    """kafkacompat or apache."""
    return chosen_kind()
