"""The switch of the modules in C.

`KAFKACOMPAT_COMPILED=off` in the environment of a process leaves all of them out, although they were compiled: to see whether a
fault is theirs. Their forms in Python do the same, more slowly.
"""

from __future__ import annotations

import os

SWITCH = "KAFKACOMPAT_COMPILED"
OFF, ON = "off", "on"


def require_switched_on() -> None:
    """Raises ImportError where the modules in C are not to be used, and ValueError if the switch has another value."""
    value = os.environ.get(SWITCH, ON)
    if value == OFF:
        raise ImportError(f"{SWITCH} is {OFF}")
    if value != ON:
        raise ValueError(f"{SWITCH} is {value!r}, and not {ON} or {OFF}")
