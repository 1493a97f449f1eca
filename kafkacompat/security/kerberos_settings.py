"""GSSAPI on a listener, by Kafka's settings: the login module of Java's Kerberos with a keytab, and the rules for names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError
from kafkacompat.config.keys import as_list
from kafkacompat.security.gssapi_contexts import MECHANISM, GssRefused
from kafkacompat.security.gssapi_server import GssapiSaslServer
from kafkacompat.security.kerberos_login import (
    SERVICE_NAME,
    file_of,
    is_true,
    kerberos_library,
    lacks,
    service_of,
)
from kafkacompat.security.kerberos_names import SETTING as RULES
from kafkacompat.security.kerberos_names import KerberosPrincipal, KerberosShortNamer, MalformedPrincipal

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.security.jaas import LoginModule


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
