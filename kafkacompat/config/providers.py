"""Values from elsewhere: `${provider:path:key}` and `${provider:key}`, fetched by the config.providers of the same
settings.

Follows Apache Kafka's ConfigTransformer: placeholders in a fetched value are not replaced, and an unknown placeholder
stays as it is.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping

from kafkacompat.config.errors import ConfigError
from kafkacompat.config.files import open_regular
from kafkacompat.config.properties import parse_properties

PROVIDERS = "config.providers"
ALLOWED_PATHS = "allowed.paths"
ALLOWLIST_PATTERN = "allowlist.pattern"
_PACKAGE = "org.apache.kafka.common.config.provider."
_PLACEHOLDER = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_log = logging.getLogger(__name__)

Provider = Callable[[str, str], "str | None"]
"""(path, key) -> value, or None if there is none. Raises ConfigError."""


def resolved(settings: Mapping[str, str], of: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings with their placeholders replaced. `of` has the config.providers to use; by default the settings'
    own.

    Raises ConfigError, without any value, for a provider that is unsupported or cannot fetch.
    """
    providers = _providers(settings if of is None else of)
    if not providers:
        return dict(settings)

    def fetched(placeholder: re.Match[str]) -> str:
        name, path, key = placeholder.groups()
        provider = providers.get(name)
        value = None if provider is None else provider(path or "", key)
        return placeholder[0] if value is None else value

    return {name: _PLACEHOLDER.sub(fetched, text) for name, text in settings.items()}


def _providers(settings: Mapping[str, str]) -> dict[str, Provider]:
    """As in Apache Kafka, a name without a class is ignored."""
    found: dict[str, Provider] = {}
    for each in settings.get(PROVIDERS, "").split(","):
        name = each.strip()
        setting = f"{PROVIDERS}.{name}.class"
        class_name = settings.get(setting, "").strip()
        if not class_name:
            continue
        make = _MADE_BY.get(class_name)
        if make is None:
            raise ConfigError(setting, class_name, f"only {', '.join(_MADE_BY)} are served")
        prefix = f"{PROVIDERS}.{name}.param."
        found[name] = make(prefix, settings)
    return found


def _of_files(prefix: str, settings: Mapping[str, str]) -> Provider:
    """FileConfigProvider: the path is that of a properties file, which is read once per resolution."""
    allowed = _allowed_paths(prefix, settings)
    read: dict[str, Mapping[str, str]] = {}

    def get(path: str, key: str) -> str | None:
        if path not in read:
            found = allowed(path)
            read[path] = {} if found is None else parse_properties(_text(found))
        return read[path].get(key)

    return get


def _of_directories(prefix: str, settings: Mapping[str, str]) -> Provider:
    """DirectoryConfigProvider: the path is that of a directory. The key is the name of a file in it, whose contents
    are the value."""
    allowed = _allowed_paths(prefix, settings)

    def get(path: str, key: str) -> str | None:
        directory = allowed(path)
        if directory is None:
            return None
        # The key is a file name in the directory. A key that leads out of it has no value.
        if not key or key in (".", "..") or os.sep in key or not os.path.isfile(os.path.join(directory, key)):
            return None
        return _text(os.path.join(directory, key))

    return get


def _of_environment(prefix: str, settings: Mapping[str, str]) -> Provider:
    """EnvVarConfigProvider: the key is the name of an environment variable. There is no path."""
    setting = prefix + ALLOWLIST_PATTERN
    try:
        pattern = re.compile(settings.get(setting, ".*"))
    except re.error as error:
        raise ConfigError(setting, settings[setting], f"this is no pattern: {error}") from None

    def get(path: str, key: str) -> str | None:
        if path:
            raise ConfigError(
                PROVIDERS, None, f"variables of the environment have no path: {path}", whole=True
            )
        return os.environ.get(key) if pattern.fullmatch(key) else None

    return get


_MADE_BY: Mapping[str, Callable[[str, Mapping[str, str]], Provider]] = {
    f"{_PACKAGE}FileConfigProvider": _of_files,
    f"{_PACKAGE}DirectoryConfigProvider": _of_directories,
    f"{_PACKAGE}EnvVarConfigProvider": _of_environment,
}


def _allowed_paths(prefix: str, settings: Mapping[str, str]) -> Callable[[str], str | None]:
    """A function that returns the path to read, or None if it is not allowed."""
    setting = prefix + ALLOWED_PATHS
    allowed = [os.path.normpath(each) for each in settings.get(setting, "").split(",") if each]
    for each in allowed:
        if not os.path.isabs(each):
            raise ConfigError(setting, each, "the path is not absolute")
        if not os.path.exists(each):
            raise ConfigError(setting, each, "the path does not exist")

    def checked(path: str) -> str | None:
        if not path or not allowed:
            return path or None
        normal = os.path.normpath(path)
        if any(normal == each or normal.startswith(each.rstrip(os.sep) + os.sep) for each in allowed):
            return normal
        _log.warning("%s allows no access to %s", setting, path)
        return None

    return checked


def _text(path: str) -> str:
    try:
        with open(open_regular(path), encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no UTF-8"
        raise ConfigError(
            PROVIDERS, None, f"{path}, which a placeholder names, cannot be read: {reason}", whole=True
        ) from None
