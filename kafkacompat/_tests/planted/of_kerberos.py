"""Bugs to plant in GSSAPI: exchanges that workers carry out, names by rules, and the layers of a connection."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

AUTHENTICATOR = "security/_tests/test_sasl_authenticator.py"
DISPATCH = "api/_tests/test_sasl_dispatch.py"
EXCHANGE = "security/_tests/test_gssapi.py"
NAMES = "security/_tests/test_kerberos_names.py"
SETTINGS = "security/_tests/test_kerberos_settings.py"

BUGS = (
    PlantedBug(
        "whom a worker has refused may go on",
        "security/sasl_authenticator.py",
        "        if isinstance(outcome, Failure):\n            self._state = _State.FAILED\n",
        "",
        (AUTHENTICATOR,),
    ),
    PlantedBug(
        "an exchange that waits for files holds the loop",
        "security/sasl_authenticator.py",
        "        if self._mechanisms[self._mechanism].blocks:",
        "        if False:",
        (AUTHENTICATOR,),
    ),
    PlantedBug(
        "who has no name is served by the name of the principal",
        "api/sasl_dispatch.py",
        "            if authenticator.nameless_because:",
        "            if False:",
        (DISPATCH,),
    ),
    PlantedBug(
        "a worker is kept busy by a client that has gone",
        "api/sasl_dispatch.py",
        """            if self._authenticators.get(connection.connection_id) is not authenticator:
                return
""",
        "",
        (DISPATCH,),
    ),
    PlantedBug(
        "a client that finds no worker waits for ever",
        "api/sasl_dispatch.py",
        """                reply.fail(CloseConnection(f"its authentication was not carried out: {problem}"))""",
        "                pass",
        (DISPATCH,),
    ),
    PlantedBug(
        "the pool of exchanges has no bound",
        "net/workers.py",
        """PoolTerms("exchanges of GSSAPI", 2, EXCHANGES_WAITING_MAX)""",
        """PoolTerms("exchanges of GSSAPI", 2)""",
        ("net/_tests/test_workers.py",),
    ),
    PlantedBug(
        "a layer that was not offered is taken",
        "security/gssapi_server.py",
        "        if not choice[0] & NO_LAYER:",
        "        if False:",
        (EXCHANGE,),
    ),
    PlantedBug(
        "data in place of the request for the offer is taken",
        "security/gssapi_server.py",
        "                if response:",
        "                if False:",
        (EXCHANGE,),
    ),
    PlantedBug(
        "a client agrees to a layer that it does not have",
        "security/gssapi_client.py",
        "or not offer[0] & NO_LAYER:",
        "or False:",
        (EXCHANGE,),
    ),
    PlantedBug(
        "a principal of any realm has a name by the default rule",
        "security/kerberos_names.py",
        "return parameters[1] if parameters[0] == self._default_realm else None",
        "return parameters[1]",
        (NAMES,),
    ),
    PlantedBug(
        "a rule applies to principals with any number of components",
        "security/kerberos_names.py",
        "        if len(parameters) - 1 != self._count:\n            return None\n",
        "",
        (NAMES,),
    ),
    PlantedBug(
        "a rule applies where its pattern matches the beginning",
        "security/kerberos_names.py",
        "not self._match.fullmatch(base):",
        "not self._match.match(base):",
        (NAMES,),
    ),
    PlantedBug(
        "a name that is not simple is taken",
        "security/kerberos_names.py",
        "                if _NOT_SIMPLE.search(name):",
        "                if False:",
        (NAMES,),
    ),
    PlantedBug(
        "values that are stated again are not taken again",
        "server/setting_changes.py",
        "return Change.STATED_AGAIN if is_stated_again else Change.NONE",
        "return Change.NONE",
        ("server/_tests/test_setting_changes.py",),
    ),
    PlantedBug(
        "a service name that contradicts the login module is taken",
        "security/kerberos_login.py",
        "and of_module != service_name:",
        "and False:",
        (SETTINGS,),
    ),
)
