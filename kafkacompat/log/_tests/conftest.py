"""Property tests without a time limit per example: a busy machine is no defect of the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no_deadline", deadline=None)
settings.load_profile("no_deadline")
