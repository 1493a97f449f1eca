"""A schema registry by its HTTP API, which Confluent's, Karapace and Apicurio (`/apis/ccompat/v7`) have. It blocks."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kafkacompat.config import ConfigError, load_properties, resolved
from kafkacompat.config.keys import broker_keys
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.schemas.wire_format import NotRead
from kafkacompat.security.http_fetch import Bounds, FetchFailed, HttpAddress, fetch, http_address

if TYPE_CHECKING:
    from kafkacompat.security.ssl_factory import ClientContext

URL: Final = "schema.registry.url"
USER_INFO: Final = "basic.auth.user.info"
"""USER:PASSWORD, of type password."""
TOKEN: Final = "bearer.auth.token"
"""Of type password."""
OF_TLS: Final = "schema.registry."
"""Before the settings ssl.*."""
SOURCES: Final = {
    "basic.auth.credentials.source": "USER_INFO",
    "bearer.auth.credentials.source": "STATIC_TOKEN",
}
"""Where other clients find credentials, and the only place in which they are found here."""
ABOUT: Final = (OF_TLS, "basic.auth.", "bearer.auth.")
"""How the names of properties begin that say how to connect to a registry. A file may have others for other readers."""

SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of an answer: of a schema as JSON text."""
REFERENCES_MAX: Final = 64
"""Maximum number of schemas to which a schema refers, with those to which they refer."""
BOUNDS: Final = Bounds(connect_s=5.0, whole_s=10.0, bytes_max=SCHEMA_BYTES_MAX)
PATIENCE_S: Final = 30.0
"""For how long a registry that does not answer is asked again."""
ASK_AGAIN_S: Final = 1.0

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
TYPES: Final = "the types of schemas"
TYPES_TARGET: Final = "/schemas/types"
AVRO: Final = "AVRO"
REFUSED: Final = (401, 403)
ABSENT: Final = 404


class UnknownSchema(NotRead):
    """The registry has no such schema. The message says which."""

    prefix = "unknown schema: "


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is, and how to connect to it."""

    url: str
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """By the names of Confluent's clients. They may contain passwords."""
    path: str | None = None
    """The file that has them."""

    @classmethod
    def given(cls, url: str | None, path: str | None) -> RegistrySettings | None:
        """From the command line: an address, a file of properties, or both. None for neither. Raises ConfigError with the
        setting, but without secrets."""
        properties: dict[str, str] = {}
        if path is not None:
            try:
                properties = resolved(load_properties(path))
            except OSError as error:
                text = f"cannot read the file {path} of --registry-config: {error.strerror}"
                raise ConfigError("--registry-config", path, text, whole=True) from None
        place = url or properties.get(URL)
        if place is None:
            if path is None:
                return None
            raise ConfigError(URL, None, f"{path}: {URL} is not set, and there is no --registry", whole=True)
        kept = {name: value for name, value in properties.items() if _is_kept(name, value)}
        settings = cls(place, tuple(sorted(kept.items())), None if path is None else os.path.abspath(path))
        settings.address()
        settings.headers()
        return settings

    def newest(self) -> RegistrySettings:
        """As the file is now, for the same registry. ConfigError."""
        return self if self.path is None else self.given(self.url, self.path) or self

    def encoded(self) -> str:
        """As a line for another process, with the secrets."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, line: str | bytes) -> RegistrySettings:
        told = json.loads(line)
        return cls(**{**told, "properties": tuple(map(tuple, told["properties"]))})

    def address(self) -> HttpAddress:
        """The beginning of every URL. ConfigError."""
        found = http_address(URL, self.url.rstrip("/"))
        if found is None or "?" in self.url:
            raise ConfigError(URL, None, f"{URL}: it is not http://HOST:PORT/PATH or https://", whole=True)
        return found._replace(target=found.target.rstrip("/"))

    def headers(self) -> dict[str, str]:
        """With the credentials. ConfigError."""
        given = dict(self.properties)
        if USER_INFO in given and TOKEN in given:
            raise ConfigError(
                TOKEN, None, f"{TOKEN}: {USER_INFO} is set too, and one of them is enough", whole=True
            )
        headers = {"Accept": ACCEPT}
        if USER_INFO in given:
            if ":" not in given[USER_INFO]:
                raise ConfigError(USER_INFO, None, f"{USER_INFO}: it is not USER:PASSWORD", whole=True)
            headers["Authorization"] = "Basic " + base64.b64encode(given[USER_INFO].encode()).decode()
        elif TOKEN in given:
            if not (given[TOKEN].isascii() and given[TOKEN].isprintable()):
                raise ConfigError(
                    TOKEN, None, f"{TOKEN}: it has characters that no header may have", whole=True
                )
            headers["Authorization"] = f"Bearer {given[TOKEN]}"
        return headers

    def context(self) -> ClientContext | None:
        """For https. ConfigError."""
        if self.address().scheme != "https":
            return None
        from kafkacompat.security.ssl_factory import ClientContext, ssl_settings

        return ClientContext(ssl_settings(dict(self.properties), OF_TLS))


def _is_kept(name: str, value: str) -> bool:
    """Whether a property of a file says how to connect. ConfigError for one that would be ignored."""
    source = SOURCES.get(name)
    if source is not None and value.strip() != source:
        raise ConfigError(name, None, f"{name}: it is not {source}", whole=True)
    if source is not None or name == URL or not name.startswith(ABOUT):
        return False
    is_of_tls = name.startswith(f"{OF_TLS}ssl.") and name.removeprefix(OF_TLS) in broker_keys()
    if is_of_tls or name in (USER_INFO, TOKEN):
        return True
    known = ", ".join((URL, USER_INFO, TOKEN, *SOURCES, f"{OF_TLS}ssl.*"))
    raise ConfigError(name, None, f"{name} is not supported; how to connect is in {known}", whole=True)


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as the registry has it. `references` are the schemas that it needs by name, each after those that it needs."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry:
    """One registry. PipelineFailed, with the place and what was asked for, if it does not answer as a registry does."""

    def __init__(
        self,
        settings: RegistrySettings,
        patience_s: float = PATIENCE_S,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """patience_s: for how long it is asked again if it does not answer. ConfigError."""
        self._settings = settings
        self._address = settings.address()
        settings.headers()
        self._context = settings.context()
        self._patience_s = patience_s
        self._now = now
        self._wait = wait
        self._unread = ""
        """Why the file of the settings cannot be used any more."""

    @property
    def place(self) -> str:
        """For messages."""
        return self._address.url

    def check(self) -> None:
        """Raise PipelineFailed unless there is a registry that accepts the credentials."""
        try:
            found = self._asked(TYPES_TARGET, TYPES)
        except _Absent:
            found = None
        if not isinstance(found, list):
            raise self._strange(TYPES)

    def schema(self, number: int) -> SchemaText:
        """Return the schema with this id, and what it refers to. UnknownSchema."""
        what = f"schema id {number}"
        try:
            found = self._asked(f"/schemas/ids/{number}", what)
        except _Absent:
            raise UnknownSchema(f"the registry has no schema with id {number}") from None
        kind, text, references = self._read(found, what)
        needed: dict[str, str] = {}
        self._gather(what, references, needed, frozenset())
        return SchemaText(kind, text, tuple(needed.items()))

    def _gather(
        self, what: str, references: list[Any], needed: dict[str, str], above: frozenset[tuple[str, int]]
    ) -> None:
        for reference in references:
            try:
                name, subject, version = (
                    str(reference["name"]),
                    str(reference["subject"]),
                    int(reference["version"]),
                )
            except (KeyError, TypeError, ValueError):
                raise self._strange(what) from None
            if name in needed:
                continue
            if len(needed) + len(above) >= REFERENCES_MAX or (subject, version) in above:
                raise UnknownSchema(f"{what} refers to itself, or to more than {REFERENCES_MAX} others")
            asked = f"version {version} of subject {subject}, to which {what} refers"
            try:
                found = self._asked(f"/subjects/{quote(subject, safe='')}/versions/{version}", asked)
            except _Absent:
                raise UnknownSchema(f"the registry has no {asked}") from None
            _, text, others = self._read(found, asked)
            self._gather(what, others, needed, above | {(subject, version)})
            needed[name] = text

    def _read(self, found: Any, what: str) -> tuple[str, str, list[Any]]:
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise self._strange(what)
        references = found.get("references") or []
        if not isinstance(references, list):
            raise self._strange(what)
        return str(found.get("schemaType") or AVRO).upper(), found["schema"], references

    def _asked(self, target: str, what: str) -> Any:
        """Return the JSON of the answer. _Absent."""
        address = self._address._replace(target=self._address.target + target)
        end_s = self._now() + self._patience_s
        while True:
            self._renew()
            context = None if self._context is None else self._context.newest()
            try:
                return json.loads(fetch(address, BOUNDS, context, self._settings.headers()))
            except FetchFailed as failure:
                if failure.status == ABSENT and (target == TYPES_TARGET or self._is_there(context)):
                    raise _Absent from None
                where = f"{what} of the schema registry {self.place}"
                if failure.status in REFUSED:
                    raise PipelineFailed(
                        f"{where}: status {failure.status}: it does not accept the credentials of --registry-config"
                        f"{self._unread}"
                    ) from None
                is_final = failure.is_final and failure.status != ABSENT
                if is_final or self._now() + ASK_AGAIN_S > end_s:
                    raise PipelineFailed(f"{where}: {failure}") from None
            except (ValueError, RecursionError):
                raise self._strange(what) from None
            self._wait(ASK_AGAIN_S)

    def _is_there(self, context: Any) -> bool:
        """Whether a registry answers. A proxy says that something is not found, too, while the registry behind it starts."""
        address = self._address._replace(target=self._address.target + TYPES_TARGET)
        try:
            return isinstance(json.loads(fetch(address, BOUNDS, context, self._settings.headers())), list)
        except (FetchFailed, ValueError, RecursionError):
            return False

    def _renew(self) -> None:
        """Take the credentials and the stores that the file has now. They stay as they are where it cannot be read: on
        other machines there is none."""
        try:
            newest = self._settings.newest()
            if newest != self._settings:
                self._context = newest.context()
                self._settings = newest
            self._unread = ""
        except ConfigError as error:
            self._unread = f"; {error}"

    def _strange(self, what: str) -> PipelineFailed:
        return PipelineFailed(f"{what} of {self.place}: the answer is not that of a schema registry")


class _Absent(Exception):
    """The registry has nothing there."""


def registry_at(settings: RegistrySettings, **options: Any) -> SchemaRegistry:
    """Return the registry. PipelineFailed names a wrong property."""
    try:
        return SchemaRegistry(settings, **options)
    except ConfigError as error:
        raise PipelineFailed(str(error)) from None
