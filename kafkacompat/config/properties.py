r"""Java's .properties syntax, as in server.properties, and values from elsewhere.

Follows java.util.Properties.load: comments with # or !, separators = and : and blanks, a backslash at the end of a
line continues it, \uXXXX and the usual escapes.

`${provider:path:key}` and `${provider:key}` are fetched by the config.providers of the same settings. Follows Apache
Kafka's ConfigTransformer: placeholders in a fetched value are not replaced, and an unknown placeholder stays as it
is.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from kafkacompat.config.keys import ConfigError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = line if pending is None else pending + line
        # With an odd number of backslashes at the end, the last one escapes the line end.
        if (len(natural) - len(natural.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = None
        lines.append(line)
    if pending is not None:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    position, length = 0, len(line)
    while position < length and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    name_end = min(position, length)
    rest = line[name_end:].lstrip(_BLANKS)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANKS)
    return line[:name_end], rest


def _unescape(text: str, line: str) -> str:
    """The line says of which setting the text is. No error has what it sets, which may be a password."""
    if "\\" not in text:
        return text
    units: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            units.append(character)
            continue
        if position == len(text):
            break
        escape = text[position]
        position += 1
        if escape != "u":
            units.append(_ESCAPES.get(escape, escape))
            continue
        digits = text[position : position + 4]
        if not re.fullmatch("[0-9A-Fa-f]{4}", digits):
            setting = _split(line)[0]
            raise ConfigError(setting, None, f"malformed \\uXXXX escape in the line of {setting}", whole=True)
        units.append(chr(int(digits, 16)))
        position += 4
    # Two escapes can be the halves of one character beyond the Basic Multilingual Plane.
    return "".join(units).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_properties(text: str) -> dict[str, str]:
    """Names and values in file order. Of equal names the last one counts. Raises ConfigError for a malformed \\u
    escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        properties[_unescape(name, line)] = _unescape(value, line)
    return properties


def load_properties(path: str | Path) -> dict[str, str]:
    """The properties in a file, decoded as Java does (ISO 8859-1). Raises OSError if it cannot be read."""
    return parse_properties(_given(path).decode("latin-1"))


NOT_REGULAR = "it is no regular file"
NO_WRITER = "it is a pipe to which nothing is written"
GIVEN_BYTES_MAX = 16 << 20
"""Of a file of properties. A device may have no end."""


def _given(path: str | Path) -> bytes:
    """The content of a file that an argument names, which may be a pipe, as in `--command-config <(...)`.

    Opening a named pipe blocks until somebody writes to it, and a program that waits there hears no signal. So it is
    opened without waiting, and read only if it has a writer or has had one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb", buffering=0) as file:
        first: bytes | None = b""
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            first = file.read(1)
            if first == b"":
                raise OSError(errno.EINVAL, NO_WRITER, path)
        os.set_blocking(descriptor, True)
        content = bytearray(first or b"")
        while part := file.read(GIVEN_BYTES_MAX + 1 - len(content)):
            content += part
            if len(content) > GIVEN_BYTES_MAX:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return bytes(content)


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor to read a regular file, or a link to one. Raises OSError for anything else.

    A named pipe would block until somebody writes to it, and a device may have no end. A node must not wait for
    either. Arguments of commands may be pipes (`load_properties`).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, NOT_REGULAR, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_unusual(path: str) -> bool:
    """Whether something is there that is no regular file. For files that a library opens itself."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


# --- values from elsewhere


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


def provider_prefixes(settings: Mapping[str, str]) -> tuple[str, ...]:
    """How the settings of the providers begin that these settings use."""
    names = filter(None, (each.strip() for each in settings.get(PROVIDERS, "").split(",")))
    return tuple(f"{PROVIDERS}.{each}." for each in names)


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
            text = "" if found is None else _text(found)
            try:
                read[path] = parse_properties(text)
            except ConfigError as error:
                raise ConfigError(PROVIDERS, None, f"{path}: {error}", whole=True) from None
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
