"""Patterns of ListTransactions: a whole id, in what RE2/J takes and Python matches in good time."""

from __future__ import annotations

import pytest

from kafkacompat.txn.id_pattern import PATTERN_LENGTH_MAX, InvalidPattern, id_matcher


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("tx", ["tx"], ["tx1", "atx", ""]),
        ("tx-.*", ["tx-", "tx-1"], ["tx"]),
        ("(a|b)-[0-9]+", ["a-1", "b-22"], ["c-1", "a-"]),
        ("(ab)+", ["ab", "abab"], ["aba"]),
        ("(?:a+)?b", ["b", "aab"], ["a"]),
        (r"\(x\)+", ["(x)", "(x))"], ["x"]),
        ("[(+]*", ["(+(", ""], [")"]),
        ("(?i)TX", ["tx", "Tx"], ["t"]),
    ],
)
def test_a_whole_id_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = id_matcher(pattern)
    assert all(matches(text) for text in matching)
    assert not any(matches(text) for text in others)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "*",
        "[a",
        r"(a)\1",
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        "(?P<n>a)(?P=n)",
        "(a*)*",
        "(a|a)*b",
        "((a+))+",
        "(a{1,9}){2,}",
        "a" * (PATTERN_LENGTH_MAX + 1),
    ],
)
def test_what_is_no_pattern_here(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        id_matcher(pattern)
