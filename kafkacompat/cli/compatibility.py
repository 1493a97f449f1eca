"""The generated parts of docs/reference/compatibility.md: python -m kafkacompat.cli.compatibility [--check] [PAGE]

The tables of APIs, features and settings come from the declarations that the broker itself uses. They are written between the
page's markers.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kafkacompat.api.api_versions import SERVED_FEATURES
from kafkacompat.api.registry import BROKER_APIS_WITH_TELEMETRY, CONTROLLER_APIS, TELEMETRY_ENTRIES, Entry
from kafkacompat.config import own_table, without_effect_table
from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.wire.apis import APIS, Api, ApiKey

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "compatibility.md"
_PART = "<!-- begin {name}: written by python -m kafkacompat.cli.compatibility -->\n"
_END = "<!-- end {name} -->"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines.extend(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(lines) + "\n"


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _served(api: Api) -> str:
    entry = BROKER_APIS_WITH_TELEMETRY.by_key.get(int(api.key))
    if entry is None:
        return "-"
    text = _range(entry.min_version, entry.max_version)
    if entry in TELEMETRY_ENTRIES:
        return f"{text}, with `metrics.listener.port`"
    advertised = entry.advertised_min_version
    return text if advertised == entry.min_version else f"{text} (advertised from {advertised})"


def apis() -> str:
    """The APIs of Kafka's broker listeners with the versions served here, then the APIs between nodes."""
    current = [api for api in APIS.values() if api.latest >= api.oldest]
    # WriteTxnMarkers goes from broker to broker, but kafka-transactions also sends it, to abort hanging transactions.
    for_clients = [
        api
        for api in current
        if api.on_broker
        and (api.forwardable or not api.cluster_action or api.key == ApiKey.WRITE_TXN_MARKERS)
    ]
    other = [api for api in current if api not in for_clients]
    served = sum(int(api.key) in BROKER_APIS_WITH_TELEMETRY.by_key for api in for_clients)
    rows = [
        (str(int(api.key)), api.name, _range(api.oldest, api.latest), _served(api)) for api in for_clients
    ]
    among_brokers = [api for api in other if int(api.key) in BROKER_APIS_WITH_TELEMETRY.by_key]
    brokers = _named(BROKER_APIS_WITH_TELEMETRY.by_key[int(api.key)] for api in among_brokers)
    between = _named(CONTROLLER_APIS.entries)
    known = {**BROKER_APIS_WITH_TELEMETRY.by_key, **CONTROLLER_APIS.by_key}
    unknown = ", ".join(f"{api.name} ({int(api.key)})" for api in other if int(api.key) not in known)
    return (
        f"{served} of the {len(for_clients)} APIs that Kafka 4.4 has for clients are served. `-` means not advertised.\n\n"
        + _table(("key", "API", "Apache Kafka 4.4", "kafkacompat"), rows)
        + f"\nBrokers also serve these APIs, to each other: {brokers}.\n"
        + f"\nControllers serve these APIs with these versions: {between}.\n"
        + (f"\nThese APIs between nodes are neither served nor advertised: {unknown}.\n" if unknown else "")
    )


def _named(entries: Iterable[Entry]) -> str:
    return ", ".join(
        f"{entry.name} ({entry.key}) {_range(entry.min_version, entry.max_version)}" for entry in entries
    )


def features() -> str:
    """Each feature with the levels that the node understands, and whether ApiVersions names it."""
    rows = [
        (f"`{name}`", _range(low, high), "yes" if name in SERVED_FEATURES else "no")
        for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
    ]
    return _table(("feature", "levels understood", "advertised in ApiVersions"), rows)


def settings() -> str:
    """The settings that are accepted without effect: a table for brokers, topics and groups each."""
    parts = []
    table = without_effect_table()
    for kind in ("broker", "topic", "group"):
        rows = [(f"`{name}`", f"`{text}`" if text else "") for each, name, text in table if each == kind]
        parts.append(f"{kind.capitalize()} settings ({len(rows)}):\n\n{_table(('setting', 'default'), rows)}")
    return "\n".join(parts)


def own_settings() -> str:
    """The settings that Kafka 4.4 does not have."""
    rows = [
        (f"`{name}`", "node" if kind == "broker" else kind, f"`{default}`" if default else "", meaning)
        for kind, name, default, meaning in own_table()
    ]
    return _table(("setting", "of", "default", "meaning"), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "apis": apis,
    "features": features,
    "own settings": own_settings,
    "settings": settings,
}


def rewritten(page: str) -> str:
    """The page with its generated parts renewed. ValueError if a marker is missing."""
    for name, write in PARTS.items():
        begin, end = _PART.format(name=name), _END.format(name=name)
        marked = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        page, count = marked.subn(lambda _, text=f"{begin}\n{write()}\n{end}": text, page)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"the page must have {begin.strip()} and {end} once")
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page. With --check change nothing: return 0 if it is up to date, 1 if not."""
    parser = argparse.ArgumentParser(prog="kafkacompat.cli.compatibility", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; status 1 when the page is out of date"
    )
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    parsed = parser.parse_args(arguments)
    page = parsed.page.read_text("utf-8")
    wanted = rewritten(page)
    if page == wanted:
        return 0
    if parsed.check:
        print(f"{parsed.page} is out of date: python -m kafkacompat.cli.compatibility", file=sys.stderr)
        return 1
    parsed.page.write_text(wanted, "utf-8")
    print(f"{parsed.page} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
