"""`kafkacompat start`: settings in, a serving broker out; one line when it serves, one when it cannot.

It knows settings and the composition root; what a broker does it does not know.
"""

from __future__ import annotations

import argparse
import sys

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file, load_properties


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "properties",
        nargs="?",
        metavar="SERVER_PROPERTIES",
        help="Kafka's settings; without a file: node 1, both roles, 127.0.0.1:9092, ./kafkacompat-data",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that wins over the file",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        overrides = parse_overrides(arguments.override)
        properties = (
            load_properties(arguments.properties) if arguments.properties else defaults_without_file()
        )
        config = ServerConfig.from_properties(properties, overrides)
    except (ConfigError, OSError) as error:
        return refuse(str(error))
    for name in config.without_effect:
        complain(f"the setting {name} is accepted without effect (see docs/compatibility.md)")
    for name in config.unknown:
        complain(f"the setting {name} is not one of Kafka's; it is ignored")

    from kafkacompat.broker import StartRefused, serve_until_stopped

    try:
        serve_until_stopped(config, format_if_empty=not arguments.properties, announce=announce)
    except StartRefused as error:
        return refuse(str(error))
    return 0


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """key=value pairs as a mapping; ConfigError for a pair without '='."""
    overrides = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise ConfigError("--override", pair, "expected key=value")
        overrides[name.strip()] = value.strip()
    return overrides


def announce(line: str) -> None:
    print(line, flush=True)


def complain(line: str) -> None:
    print(f"kafkacompat: warning: {line}", file=sys.stderr, flush=True)


def refuse(reason: str) -> int:
    print(f"kafkacompat: {reason}", file=sys.stderr, flush=True)
    return 1
