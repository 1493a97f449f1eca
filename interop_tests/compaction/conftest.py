"""The tools fixture: one JVM for all tools of a session."""

from interop_tests.java_tools.conftest import tools

__all__ = ["tools"]
