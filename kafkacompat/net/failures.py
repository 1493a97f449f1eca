"""Why a request of this node to another got no response. Declarations only."""

from __future__ import annotations


class ChannelError(Exception):
    """A request that has no response."""


class ConnectionLost(ChannelError):
    """Not reachable, refused, or lost: the request may or may not have been handled."""


class ChannelFull(ConnectionLost):
    """REQUESTS_WAITING_MAX requests are waiting already; this one was not sent."""


class RequestTimedOut(ChannelError):
    """No response in time: the request may or may not have been handled."""


class UnsupportedByPeer(ChannelError):
    """The peer does not serve the API, or no version of it that can carry this request; it was not sent."""
