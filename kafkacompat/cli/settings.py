"""A node's settings from the command line, SERVER_PROPERTIES and --override, for `start` and `format`.

This module knows files, options and error texts, not the meaning of a setting.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file, load_properties
from kafkacompat.failure import CommandFailed


def add_override(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that wins over the file; may be repeated",
    )


def load_settings(path: str | None, overrides: list[str]) -> ServerConfig:
    """Return the settings of the file, or the defaults, changed by the overrides. CommandFailed names the error."""
    try:
        properties = load_properties(path) if path is not None else defaults_without_file()
        return ServerConfig.from_properties(properties, parse_overrides(overrides))
    except OSError as error:
        raise CommandFailed(f"cannot read the settings file {path}: {error.strerror}") from error
    except ConfigError as error:
        raise CommandFailed(str(error)) from error


def parse_overrides(pairs: list[str]) -> dict[str, str]:
    """Parse key=value pairs. Raises ConfigError for a pair without '='."""
    overrides = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise ConfigError("--override", pair, "expected key=value")
        overrides[name.strip()] = value.strip()
    return overrides


def warn_of_settings(config: ServerConfig, tell: Callable[[str], object]) -> None:
    """Tell of each setting that has not the effect its author may expect."""
    for name in config.without_effect:
        tell(f"the setting {name} is accepted without effect (see docs/reference/compatibility.md)")
    for name in config.unknown:
        tell(f"the setting {name} is not one of Kafka's; it is ignored")


def warn(line: str) -> None:
    print(f"kafkacompat: warning: {line}", file=sys.stderr, flush=True)
