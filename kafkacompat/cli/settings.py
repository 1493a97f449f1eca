"""A node's settings from the command line, SERVER_PROPERTIES and --override, for `start` and `format`.

This module knows files, options and error texts, not the meaning of a setting.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file, load_properties
from kafkacompat.failure import CommandFailed

LAYOUT_FILE = "cluster.json"
"""In the folder of the nodes that one command runs: which nodes there are."""
BROKERS_SETTING = "num.brokers"
METRICS_LINE = "metrics "
"""Begins the line by which one of several brokers tells on which port its metrics are."""
SERVES_LINE = "serves: "
"""Begins the line by which one of several brokers tells that it serves."""


def add_override(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that wins over the file; may be repeated",
    )


def add_brokers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--brokers",
        metavar="N|auto",
        help=f"the setting {BROKERS_SETTING}: that many brokers on this machine, as one; auto: one for each processor",
    )


def overrides_of(arguments: argparse.Namespace) -> list[str]:
    """Return the overrides of the command line, of which --brokers is one."""
    brokers = [] if arguments.brokers is None else [f"{BROKERS_SETTING}={arguments.brokers}"]
    return [*arguments.override, *brokers]


def load_settings(
    path: str | None, overrides: list[str], defaults: Callable[[], Mapping[str, str]] = defaults_without_file
) -> ServerConfig:
    """Return the settings of the file, or the defaults, changed by the overrides. CommandFailed names the error."""
    try:
        return ServerConfig.from_properties(written_settings(path, overrides, defaults))
    except ConfigError as error:
        raise CommandFailed(str(error)) from error


def written_settings(
    path: str | None, overrides: list[str], defaults: Callable[[], Mapping[str, str]] = defaults_without_file
) -> dict[str, str]:
    """Return the settings of `load_settings` as they are written, without the values of providers. Raises CommandFailed."""
    try:
        properties = load_properties(path) if path is not None else defaults()
        return {**properties, **parse_overrides(overrides)}
    except OSError as error:
        raise CommandFailed(f"cannot read the settings file {path}: {error.strerror}") from error
    except ConfigError as error:
        raise CommandFailed(str(error)) from error


def is_laid_out(config: ServerConfig) -> bool:
    """Whether the brokers of a machine have their directories below those of the settings."""
    return os.path.exists(os.path.join(config.log_dirs[0], LAYOUT_FILE))


def runs_several(config: ServerConfig) -> bool:
    """Whether the settings or the folder ask for the brokers of a machine, which may be one."""
    return is_laid_out(config) or config.get_string(BROKERS_SETTING) != "1"


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
