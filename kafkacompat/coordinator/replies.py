"""Sends the replies that an operation has collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.faults import report

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.stepping.works import Steps, Work

REPLIES_AT_ONCE = 50
"""More replies of one operation are sent in steps: a rebalance may answer a group of 10,000 members at once."""
REPLY_COST = 80


def send_replies(replies: list[tuple[Any, Any]], steps: Steps) -> None:
    """(Deferred, message) pairs, in order."""
    if len(replies) > REPLIES_AT_ONCE:
        steps.start_now("answering members", _sent_in_steps(replies))
        return
    for waiter, message in replies:
        _answer(waiter, message)


def _sent_in_steps(replies: list[tuple[Any, Any]]) -> Work:
    for waiter, message in replies:
        _answer(waiter, message)
        yield REPLY_COST


def _answer(waiter: Deferred[Any], message: Any) -> None:
    try:
        waiter.resolve(message)
    except Exception as error:  # it was answered before
        report("answering a member", error)
