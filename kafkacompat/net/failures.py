"""The reasons why a request of this node got no response. Declarations only."""

from __future__ import annotations


class ChannelError(Exception):
    """A request without a response."""


class ConnectionLost(ChannelError):
    """Unreachable, refused, or lost: the request may or may not have been handled."""


class ChannelFull(ConnectionLost):
    """REQUESTS_WAITING_MAX requests are waiting. This one was not sent."""


class RequestTimedOut(ChannelError):
    """No response in time: the request may or may not have been handled."""


class UnsupportedByPeer(ChannelError):
    """The peer does not support the API, or no version of it that can express this request. It was not sent."""
