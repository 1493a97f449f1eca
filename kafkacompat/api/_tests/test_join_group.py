"""The protocol fields of a JoinGroup response, by version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.api.join_group import HANDLER
from kafkacompat.api.request_context import RequestContext
from kafkacompat.deferred import Deferred
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
from kafkacompat.wire.messages.join_group_response import JoinGroupResponse


@pytest.mark.parametrize(
    ("version", "chosen", "told"),
    [
        (6, None, ""),
        (6, "", ""),
        (6, "range", "range"),
        (7, None, None),
        (7, "", None),
        (9, "range", "range"),
    ],
)
def test_no_protocol_is_null_from_version_seven_on(
    version: int, chosen: str | None, told: str | None
) -> None:
    """Also if the members' protocol has an empty name (KIP-559)."""
    groups = SimpleNamespace(join_group=lambda *_: Deferred.of(JoinGroupResponse(protocol_name=chosen)))
    context = RequestContext(11, version, 0, None, 1, "L", "h")
    node: Any = SimpleNamespace(groups=groups, authorizer=None)
    answer: Any = HANDLER.function(node, context, JoinGroupRequest())
    assert answer.result().protocol_name == told
