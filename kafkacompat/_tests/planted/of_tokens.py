"""Bugs to plant in delegation tokens: who gets one, who changes it, and whom it lets in."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "whoever asked for a token of somebody else renews it",
        "controller/delegation_tokens.py",
        "return principal == token.owner or",
        "return principal in (token.owner, token.requester) or",
        ("controller/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "a renewal forgets a token's last moment",
        "controller/delegation_tokens.py",
        "response.expiry_timestamp_ms = min(token.max_timestamp, now_ms + period_ms)",
        "response.expiry_timestamp_ms = now_ms + period_ms",
        ("controller/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "expired tokens stay for ever",
        "controller/periodic_task_control_manager.py",
        "None if tokens.secret is None else tokens.expiry_check_interval_ms",
        "None",
        ("controller/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "who has a token is let in under the token's id",
        "security/scram_server.py",
        "            self.authorization_id = self._token.owner\n",
        "",
        ("security/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "a session outlives its token",
        "security/scram_server.py",
        "self.lifetime_ms = self._token.expires_ms - self._now_ms()",
        "self.lifetime_ms = None",
        ("security/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "a token makes tokens",
        "api/token_requests.py",
        "    if principal.token_authenticated:\n        return False\n",
        "",
        ("api/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "nobody remembers that a client has shown a token",
        "security/sasl_authenticator.py",
        "        self.token_authenticated = self._server.token_authenticated\n",
        "",
        ("security/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "everybody makes tokens of others",
        "api/create_delegation_token.py",
        "if owner[:2] != requester[:2] and access is not None:",
        "if False and access is not None:",
        ("api/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "everybody sees everybody's tokens",
        "api/describe_delegation_token.py",
        "if access is None or is_owner_or_renewer(token, sender):",
        "if True:",
        ("api/_tests/test_delegation_tokens.py",),
    ),
    PlantedBug(
        "a connection's principal forgets that a token was shown",
        "api/sasl_dispatch.py",
        "authenticator.user, authenticator.token_authenticated",
        "authenticator.user",
        ("api/_tests/test_sasl_dispatch.py",),
    ),
    PlantedBug(
        "the controller judges a forwarded request by the broker's connection",
        "api/envelope.py",
        "    inner.is_forwarded = True\n",
        "",
        ("api/_tests/test_delegation_tokens.py",),
    ),
)
