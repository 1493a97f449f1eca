"""Asks the metrics listeners that the operator has named for the records in flight with share groups.

Only the leader of a partition knows them, and no request of the protocol tells them.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from kafkacompat.config import ConfigError
from kafkacompat.console.core.share_metrics import BadMetrics, parse_numbers
from kafkacompat.console.core.snapshot import ShareKey, ShareNumbers
from kafkacompat.console.failure import ConsoleError
from kafkacompat.security.http_fetch import Bounds, FetchFailed, HttpAddress, fetch, http_address

OPTION = "--metrics"
MAX_ADDRESSES = 100
BOUNDS = Bounds(connect_s=2.0, whole_s=4.0, bytes_max=16 * 1024 * 1024)
"""Of one answer. A node with 1,000 topics tells 3 MB."""
ASKED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class NumbersTold:
    numbers: dict[ShareKey, ShareNumbers] = field(default_factory=dict)
    error: str = ""
    """Which listeners did not answer, and why."""


def metrics_addresses(text: str) -> tuple[HttpAddress, ...]:
    """Parse URL[,URL...]. Without a path, /metrics is meant. Raises ConsoleError."""
    found = []
    for url in filter(None, (each.strip() for each in text.split(","))):
        try:
            address = http_address(OPTION, url)
        except ConfigError as error:
            raise ConsoleError(str(error)) from None
        if address is None:
            raise ConsoleError(f"{OPTION}: a URL begins with http:// or https://")
        found.append(address._replace(target="/metrics") if address.target == "/" else address)
    if not 0 < len(found) <= MAX_ADDRESSES:
        raise ConsoleError(f"{OPTION}: give 1 to {MAX_ADDRESSES} URLs, separated by commas")
    return tuple(found)


async def share_numbers_of(addresses: Sequence[HttpAddress]) -> NumbersTold:
    """Ask all of them. What one does not tell now is not known: numbers of an earlier time would mislead."""
    numbers: dict[ShareKey, ShareNumbers] = {}
    errors: list[str] = []
    limiter = trio.CapacityLimiter(ASKED_AT_ONCE)
    context = ssl.create_default_context() if any(each.scheme == "https" for each in addresses) else None

    async def ask(address: HttpAddress) -> None:
        try:
            numbers.update(
                await trio.to_thread.run_sync(
                    _told, address, context, abandon_on_cancel=True, limiter=limiter
                )
            )
        except FetchFailed as failure:
            errors.append(str(failure))
        except BadMetrics as error:
            errors.append(f"{address.place}: {error}")

    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(ask, address)
    return NumbersTold(numbers, "; ".join(sorted(errors)))


def _told(address: HttpAddress, context: ssl.SSLContext | None) -> dict[ShareKey, ShareNumbers]:
    return parse_numbers(fetch(address, BOUNDS, context, {"Accept": "text/plain"}))
