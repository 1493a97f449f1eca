"""The stages of a connection's life."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    OPEN = "reads and dispatches"
    DRAINING = "reads no more; whole frames received are still served"
    PEER_GONE = "the client closed; whole frames received are still dispatched"
    ENDING = "dispatches no more; replies to earlier requests are still sent"
    CLOSED = "the socket is closed"
