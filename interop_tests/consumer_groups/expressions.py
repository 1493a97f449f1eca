"""Scripted talks with subscriptions by regular expressions, which are resolved after the answer."""

from __future__ import annotations

from interop_tests.consumer_groups.asking import ANY, Asking, owned_in
from interop_tests.consumer_groups.scenarios import INVALID_REGEX, LEAVE

RESOLVED = "ConsumerGroupRegularExpressionKey"


def regular_expression(talk: Asking) -> None:
    """A subscription by a regular expression is resolved after the first answer."""
    talk.join("m", None, INVALID_REGEX, regex="[")
    talk.join("m", None, INVALID_REGEX, regex="a(?=b)")
    joined = talk.join("m", None, regex="t[37]", later=RESOLVED)
    assert not owned_in(joined["Assignment"])
    epoch = talk.beat("m", joined["MemberEpoch"])["MemberEpoch"]
    talk.describe()
    talk.beat("m", epoch, regex="t[37]")
    epoch = talk.beat("m", epoch, ANY, regex="t[37]", names=["t1"])["MemberEpoch"]
    talk.beat("m", epoch, INVALID_REGEX, regex="*")
    # Another member with an expression that is resolved already.
    talk.join("n", None, regex="t[37]", assignor="range")
    talk.describe()
    talk.beat("n", LEAVE)
    epoch = talk.beat("m", epoch, ANY, regex="", owned={"t1": [0]})["MemberEpoch"]
    talk.describe()
    talk.beat("m", LEAVE)
    talk.delete()


def last_member_with_an_expression(talk: Asking) -> None:
    """The records of an expression disappear with its last member."""
    joined = talk.join("m", ["t1"], regex="t3.*|nothing", later=RESOLVED)
    talk.beat("m", joined["MemberEpoch"], ANY)
    talk.describe()
    talk.beat("m", LEAVE)
    talk.describe()
    talk.join("m", None, regex="")
    talk.beat("m", LEAVE)
    talk.delete()


EXPRESSIONS = (
    regular_expression,
    last_member_with_an_expression,
)
