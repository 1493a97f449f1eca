"""What the listener for scrapers shows besides metrics, for a node as for a machine with several brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkacompat.config import ServerConfig
    from kafkacompat.metrics.endpoint import Page

WATCH_TOKEN_FILE = "watch.token.file"


def pages_of(config: ServerConfig, watch: Callable[[str], Page]) -> Mapping[str, Page]:
    """By their paths. `watch` makes the page for whoever has the token. Where nobody may watch, it is not called, so that none
    of its modules is imported. Raises ConfigError."""
    path = config.get_string(WATCH_TOKEN_FILE)
    if not path:
        return {}
    from kafkacompat.server.node_watch import BadTokenFile, token_of

    try:
        token = token_of(path)
    except BadTokenFile as problem:
        raise ConfigError(WATCH_TOKEN_FILE, path, f"{WATCH_TOKEN_FILE}: {problem}", whole=True) from None
    return {"/watch": watch(token)}
