"""The numbers behind the generated traffic, in one place. docs/reference/generator.md explains them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Service:
    """One service of the shop and its normal behaviour."""

    name: str
    share: float
    """Share of all samples."""
    latency_ms: float
    """Median."""
    error_rate: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Shares are probabilities. Names that end in _ms are means unless stated otherwise."""

    metrics_share: float = 0.3
    """Share of all events. The rest comes from visitors and bots."""

    users: int = 20_000
    user_exponent: float = 0.7
    """Exponent of the Zipf law: the visitor of rank r has weight r ** -exponent."""
    pages: int = 500
    page_exponent: float = 1.0
    words: int = 200
    word_exponent: float = 0.9

    actions: float = 6.0
    """Page views and searches per visit: geometric, at least 1, at most MAX_ACTIONS."""
    action_gap_ms: float = 25_000.0
    """Exponential, at most MAX_GAP_MS. For any longer session gap, a visit is therefore one session."""
    search_share: float = 0.2
    assets: float = 1.5
    """Style sheets, scripts and images per page."""
    bot_share: float = 0.05
    """Lines of bots per line of a visitor. Bots cause no activity events."""
    web_hosts: int = 3

    burst_every_ms: float = 90.0 * MINUTE_MS
    first_burst_ms: float = 4.0 * MINUTE_MS
    burst_length_ms: tuple[int, int] = (2 * MINUTE_MS, 6 * MINUTE_MS)
    burst_factor: tuple[float, float] = (3.0, 6.0)
    burst_page_share: float = 0.5
    """The share of a burst's visits that begin at the one popular page."""

    late_share: float = 0.02
    late_ms: float = 60_000.0
    very_late_share: float = 0.001
    very_late_ms: tuple[int, int] = (30 * MINUTE_MS, 120 * MINUTE_MS)
    """Uniform. Later than any sensible watermark delay."""
    network_ms: float = 200.0
    """The time that every event takes to arrive."""
    duplicate_share: float = 0.01
    duplicate_ms: float = 10_000.0
    bad_record_share: float = 0.003
    """Share of activity events and samples."""
    bad_line_share: float = 0.005
    """Share of the lines of the access log."""

    services: tuple[Service, ...] = (
        Service("frontend", 0.40, 45.0, 0.004),
        Service("search", 0.20, 80.0, 0.006),
        Service("catalog", 0.20, 30.0, 0.002),
        Service("cart", 0.12, 25.0, 0.003),
        Service("payment", 0.08, 150.0, 0.010),
    )
    hosts_per_service: int = 3
    latency_spread: float = 0.5
    """Standard deviation of the logarithm: latencies are log-normal."""
    incident_every_ms: float = 120.0 * MINUTE_MS
    """Per service, from the end of one incident to the next."""
    first_incident_ms: tuple[int, int] = (1 * MINUTE_MS, 3 * MINUTE_MS)
    """Uniform, for one service, so that something happens soon."""
    incident_length_ms: tuple[int, int] = (3 * MINUTE_MS, 8 * MINUTE_MS)
    incident_latency_factor: tuple[float, float] = (6.0, 15.0)
    incident_error_rate: tuple[float, float] = (0.2, 0.6)


MAX_ACTIONS: Final = 60
MAX_GAP_MS: Final = 10 * MINUTE_MS
DEFAULT: Final = Profile()
