"""GSSAPI by Kafka's settings: how a client logs in, and how a listener authenticates.

Both name the login module of Java's Kerberos and sasl.kerberos.service.name. The Kerberos library is an extra. A setting that
asks for GSSAPI without it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.config import ConfigError
from kafkacompat.config.keys import as_list
from kafkacompat.config.properties import NOT_REGULAR, is_unusual
from kafkacompat.security.gssapi import MECHANISM, GssapiSaslServer, GssRefused
from kafkacompat.security.kerberos_names import SETTING as RULES
from kafkacompat.security.kerberos_names import KerberosPrincipal, KerberosShortNamer, MalformedPrincipal

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.security.jaas import LoginModule
    from kafkacompat.security.sasl_client import SaslClient

SERVICE_NAME = "sasl.kerberos.service.name"
EXTRA = "kafkacompat[gssapi]"


class KerberosLogin(NamedTuple):
    service: str
    """The name of the servers' service."""
    principal: str | None
    """None: the one of the ticket cache."""
    keytab: str | None
    """A path. None: the default keytab, or no keytab if there is a ticket cache."""
    uses_ticket_cache: bool
    ticket_cache: str | None
    """A path. None: the user's default cache."""

    def exchanges(self, setting: str) -> Callable[[str], SaslClient]:
        """A function that begins an exchange with a host. Raises ConfigError without the library."""
        from kafkacompat.security.gssapi import GssapiSaslClient

        initiator = kerberos_library(setting).Initiator(*self)
        return lambda host: GssapiSaslClient(partial(initiator.begin, host))


def login_of_client(module: LoginModule, setting: str, service_name: str | None) -> KerberosLogin:
    """`setting`: the one with the login module. Raises ConfigError."""
    service = service_of(module, setting, service_name)
    principal = module.options.get("principal") or None
    keytab, cache = (file_of(module, name, setting) for name in ("keyTab", "ticketCache"))
    if is_true(module, "useKeyTab"):
        if principal is None:
            raise lacks(setting, "principal")
        return KerberosLogin(service, principal, keytab, False, None)
    if not is_true(module, "useTicketCache"):
        raise lacks(setting, 'useKeyTab="true" or useTicketCache="true"')
    return KerberosLogin(service, principal, None, True, cache)


def file_of(module: LoginModule, option: str, setting: str) -> str | None:
    """The path in an option of the login module. Raises ConfigError for a named pipe or a device: the library would
    wait for it."""
    path = module.options.get(option) or None
    if path is not None and is_unusual(path.removeprefix("FILE:")):
        raise ConfigError(setting, None, f"{setting}: {option} {path}: {NOT_REGULAR}", whole=True)
    return path


def service_name_of(properties: Mapping[str, str], prefix: str) -> str | None:
    """Of a client, or of a node as a client of the listener with this prefix."""
    places = (f"{prefix}{MECHANISM.lower()}.", prefix, "") if prefix else ("",)
    return next((found for place in places if (found := properties.get(place + SERVICE_NAME))), None)


def service_of(module: LoginModule, setting: str, service_name: str | None) -> str:
    """The service's name, which servers need too. Raises ConfigError."""
    of_module = module.options.get("serviceName")
    if of_module is not None and service_name is not None and of_module != service_name:
        text = f"{setting}: its serviceName {of_module} is not the {service_name} of {SERVICE_NAME}"
        raise ConfigError(setting, None, text, whole=True)
    service = of_module or service_name
    if not service:
        text = f"{SERVICE_NAME} must be set, or the option serviceName of {setting}"
        raise ConfigError(SERVICE_NAME, None, text, whole=True)
    return service


def is_true(module: LoginModule, option: str) -> bool:
    return module.options.get(option, "").strip().lower() == "true"


def lacks(setting: str, option: str) -> ConfigError:
    return ConfigError(setting, None, f"{setting}: the login module needs the option {option}", whole=True)


def kerberos_library(setting: str) -> Any:
    """The module with the Kerberos library, which is loaded only here. Raises ConfigError."""
    try:
        from kafkacompat.security import kerberos_library
    except ImportError as missing:
        text = f"{setting}: {MECHANISM} needs the Kerberos library: install {EXTRA} ({missing})"
        raise ConfigError(setting, None, text, whole=True) from None
    return kerberos_library


def exchanges_of(
    config: ServerConfig, listener: str, module: LoginModule, setting: str
) -> tuple[Callable[[], GssapiSaslServer], Callable[[str], str]]:
    """A function that begins an exchange with a client, and one that gives principals their names. Reads the keytab.

    `setting`: the one with the login module. Raises ConfigError, also without the Kerberos library.
    """
    name = config.of_listener(listener, SERVICE_NAME, MECHANISM)
    service_of(module, setting, None if name is None else str(name))
    if not is_true(module, "useKeyTab"):
        raise lacks(setting, 'useKeyTab="true"')
    principal = module.options.get("principal", "")
    try:
        if not principal or KerberosPrincipal.parse(principal).host is None:
            raise lacks(setting, "principal, as service/host@REALM")
    except MalformedPrincipal as problem:
        raise ConfigError(setting, None, f"{setting}: {problem}", whole=True) from None
    library = kerberos_library(setting)
    rules = as_list(config.of_listener(listener, RULES, MECHANISM))
    namer = KerberosShortNamer(rules, library.default_realm())
    keytab = file_of(module, "keyTab", setting)
    try:
        acceptor = library.Acceptor(principal, keytab)
    except GssRefused as refusal:
        text = f"{setting}: no key of {principal} in {keytab or 'the default keytab'}: {refusal}"
        raise ConfigError(setting, None, text, whole=True) from None
    return lambda: GssapiSaslServer(acceptor.begin()), namer.name_of
