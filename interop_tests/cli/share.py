"""Whether the broker of this run serves share groups."""

from __future__ import annotations

import importlib.util

import pytest

from interop_tests.harness.broker import APACHE, chosen_kind

serves_share_groups = pytest.mark.skipif(
    chosen_kind() != APACHE and importlib.util.find_spec("kafkacompat.api.share_fetch") is None,
    reason="kafkacompat does not serve ShareFetch yet",
)
