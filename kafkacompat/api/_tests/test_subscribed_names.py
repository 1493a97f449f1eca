"""The topics that a member names or matches: who may see them is asked in steps, and in silence."""

from __future__ import annotations

import logging
from types import CoroutineType
from typing import Any

import pytest

from kafkacompat.api._tests.kit import pauses_of
from kafkacompat.api._tests.test_access import allow, authorizer, context
from kafkacompat.api.access import Access, RightToTopics, describable
from kafkacompat.api.subscribed_names import ASKED_AT_ONCE, when_visible
from kafkacompat.deferred import Deferred
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.security.authorizer import AUDIT
from kafkacompat.tasks import at_once


class Counted(RightToTopics):
    def __init__(self, hidden: str = "") -> None:
        super().__init__(None, AclOperation.DESCRIBE)
        self.hidden = hidden
        self.asked: list[str] = []

    def holds(self, name: str) -> bool:
        self.asked.append(name)
        return name != self.hidden


def test_the_rights_to_many_topics_are_asked_for_in_steps() -> None:
    """With thousands of names, and lists of rights to go through, the loop would be held for long."""
    rights, answer = Counted(), Deferred.of("answer")
    names = [f"t{each}" for each in range(3 * ASKED_AT_ONCE)]
    steps: Any = when_visible(rights, [*names, *names], lambda: answer, "refused")
    assert isinstance(steps, CoroutineType)
    before = 0
    for _ in range(3):
        steps.send(None)
        assert len(rights.asked) - before <= ASKED_AT_ONCE
        before = len(rights.asked)
    assert at_once(pauses_of(steps)) == "answer"
    assert rights.asked == names
    steps = when_visible(Counted(hidden="t1200"), names, lambda: answer, "refused")
    assert at_once(pauses_of(steps)) == "refused"


@pytest.mark.parametrize("names", [None, [], ["t"], ["t"] * ASKED_AT_ONCE])
def test_few_names_are_looked_at_at_once(names: list[str] | None) -> None:
    answer: Deferred[str] = Deferred.of("answer")
    assert when_visible(Counted(), names, lambda: answer, "refused") is answer
    assert when_visible(Counted(hidden="t"), names, lambda: answer, "refused") == (
        "refused" if names else answer
    )


def test_topics_that_an_expression_matches_and_may_not_be_seen_are_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Apache Kafka. A member of a group with `.*` would cause a line for each topic of the cluster."""
    caplog.set_level(logging.INFO, AUDIT.name)
    access = Access(authorizer(allow(ResourceType.TOPIC, AclOperation.DESCRIBE, "seen")), context(68, 1))
    may_describe = describable(access)
    assert may_describe is not None
    assert may_describe(["seen", *(f"hidden{each}" for each in range(10))]) == {"seen"}
    assert caplog.messages == []
    assert not RightToTopics(access, AclOperation.DESCRIBE).holds("hidden")
    assert len(caplog.messages) == 1
