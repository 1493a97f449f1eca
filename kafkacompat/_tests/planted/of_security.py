"""Bugs to plant in security: who is let in, and what the others are told."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

AUTHENTICATOR = "security/_tests/test_sasl_authenticator.py"

BUGS = (
    PlantedBug(
        "an option of the login module that names no user lets somebody in",
        "security/plain.py",
        "self._options.get(USER_PREFIX + user)",
        "self._options.get(USER_PREFIX + user, self._options.get(USER_PREFIX[:4] + user))",
        ("security/_tests/test_plain.py",),
    ),
    PlantedBug(
        "whoever has a password acts for anybody",
        "security/plain.py",
        '        if authorization_id not in ("", user):',
        "        if False:",
        ("security/_tests/test_plain.py",),
    ),
    PlantedBug(
        "a proof of SCRAM is not looked at",
        "security/scram_server.py",
        "        if not compare_digest(mechanism.digest(client_key), credential.stored_key):",
        "        if False:",
        ("security/_tests/test_scram.py",),
    ),
    PlantedBug(
        "a client may answer with the nonce of another exchange",
        "security/scram_server.py",
        "        if nonce != self._nonce:",
        "        if False:",
        ("security/_tests/test_scram.py",),
    ),
    PlantedBug(
        "the client is told why its SCRAM failed, which tells who exists",
        "security/sasl_authenticator.py",
        "        except SaslError:\n            again =",
        "        except SaslError as error:\n            return self._refused(header, str(error))\n            again =",
        (f"{AUTHENTICATOR}::test_whether_a_user_exists_is_not_told",),
    ),
    PlantedBug(
        "an exchange that failed may be tried again on its connection",
        "security/sasl_authenticator.py",
        "            self._state = _State.FAILED",
        "            pass",
        (AUTHENTICATOR,),
    ),
    PlantedBug(
        "a session that is begun anew may become another's",
        "security/sasl_authenticator.py",
        "        if user is not None and self._before is not None and user != self._before[1]:",
        "        if False:",
        (f"{AUTHENTICATOR}::test_nobody_becomes_another",),
    ),
    PlantedBug(
        "a session that is begun anew may change its mechanism",
        "security/sasl_authenticator.py",
        "        if self._before is not None and self._before[0] != request.mechanism:",
        "        if False:",
        (f"{AUTHENTICATOR}::test_a_session_keeps_its_mechanism",),
    ),
    PlantedBug(
        "a user that is named twice in a request keeps what was said first",
        "controller/scram_credentials.py",
        "            if records.pop(each.name, None) is not None:",
        "            if each.name in records:",
        ("controller/_tests/test_scram_credentials.py::test_whoever_is_named_twice_is_left_as_before",),
    ),
    PlantedBug(
        "what was sent of a password is kept",
        "controller/scram_credentials.py",
        "        stored_key=credential.stored_key,",
        "        stored_key=bytes(upsertion.salted_password),",
        ("controller/_tests/test_scram_credentials.py",),
    ),
    PlantedBug(
        "a value of a JAAS option is told by the error about it",
        "security/jaas.py",
        '        raise JaasError("Invalid login module control flag in JAAS config")',
        '        raise JaasError(f"Invalid login module control flag {flag.text} in JAAS config")',
        ("security/_tests/test_jaas.py::test_no_error_tells_a_secret",),
    ),
)
