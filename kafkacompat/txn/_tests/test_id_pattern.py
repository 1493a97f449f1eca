"""Patterns of ListTransactions: they match a whole id, in RE2's syntax, in bounded time."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacompat.txn.id_pattern import PATTERN_LENGTH_MAX, InvalidPattern, id_matcher


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("tx", ["tx"], ["tx1", "atx", ""]),
        ("", [""], ["a"]),
        ("tx-.*", ["tx-", "tx-1"], ["tx", "tx-\n"]),
        ("(?s)tx-.*", ["tx-\n"], ["tx"]),
        ("(a|b)-[0-9]+", ["a-1", "b-22"], ["c-1", "a-"]),
        ("(ab)+", ["ab", "abab"], ["aba", ""]),
        ("a(b|)c", ["abc", "ac"], ["abbc"]),
        ("(?:a+)?b", ["b", "aab"], ["a"]),
        (r"\(x\)+", ["(x)", "(x))"], ["x"]),
        ("[(+]*", ["(+(", ""], [")"]),
        ("(?i)TX", ["tx", "Tx"], ["t"]),
        ("a(?i:b)c", ["abc", "aBc"], ["Abc", "abC"]),
        ("(a(?i)b)c", ["abc", "aBc"], ["abC"]),
        ("(?i-i)a", ["a"], ["A"]),
        ("(?i)[^a]", ["b"], ["a", "A"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("a{1,3}?", ["a", "aaa"], ["", "aaaa"]),
        ("a{0}", [""], ["a"]),
        ("a{,3}|x{|{1x}", ["a{,3}", "x{", "{1x}"], ["", "a"]),
        ("[]a-c-]+", ["]", "b-"], ["[", "d"]),
        ("[^]a]", ["b", "\n"], ["]", "a"]),
        (r"[\d\-x-z]+", ["1-y"], ["w"]),
        (r"[[:alpha:]_]+|[[:^digit:]]{4}", ["ab_", "....", "abc"], ["a1", "..1."]),
        (r"\w+\.\D\S\W", ["a_1.xy-"], ["a_1.1y-", "ä.xy-"]),
        (r"\pL+", ["aä"], ["1"]),
        (r"\p{Lu}\P{Lu}[\p{Nd}\PL]", ["Aa1", "Aa-"], ["aa1", "Aaa"]),
        (r"\p{^Nd}\p{Any}", ["aa"], ["1a"]),
        (r"\Qa.b\E.", ["a.bc"], ["aabc"]),
        (r"\Qa*", ["a*"], ["aa"]),
        (r"\x41\x{e4}\101\t\.", ["AäA\t."], ["AäA\tx"]),
        (r"\B", [""], ["a"]),
        (r"\Aa\bb|^a$|a\b-\Bc?\z", ["a"], ["ab", "a-c"]),
        ("(?m)a$\n^b", ["a\nb"], ["a", "ab"]),
        ("a$\n", [], ["a\n", "a"]),
        ("(?P<one>a)(?<two>b)", ["ab"], ["a"]),
        ("(^)*a(?U)b+?", ["ab", "abb"], ["b"]),
        ("ä.", ["ä\U0001f600"], ["ä"]),
    ],
)
def test_a_whole_id_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = id_matcher(pattern)
    assert [text for text in matching if not matches(text)] == []
    assert [text for text in others if matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)b",
        "(a",
        "*",
        "a|*",
        "(+a)",
        "a**",
        "a*+",
        "a{2}{3}",
        "a{2,1}",
        "a{1001}",
        "(a{100}){100}",
        "[a",
        "[",
        "[z-a]",
        r"[a-\d]",
        "[[:nothing:]]",
        r"(a)\1",
        r"\q",
        r"\Z",
        "\\",
        r"\x{110000}",
        r"\x4",
        r"\p{Klingon}",
        r"\p",
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        "(?P<n>a)(?P=n)",
        "(?P<>a)",
        "(?i-)a",
        "(?",
        "(?i",
        "(a{500}b){3}",
        "|{1}",
        "a" * (PATTERN_LENGTH_MAX + 1),
        "(?:a?){1000}" * 7,
    ],
)
def test_what_is_no_pattern_here(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        id_matcher(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        ".*" * 400 + "x",
        "(a*)*b",
        "((a+))+b",
        "(a|a)*b",
        "(a|b|ab)*c",
        "(?:a?){500}a{500}",
        "(.{0,10}){0,100}c",
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Backtracking matchers would not finish."""
    matches = id_matcher(pattern)
    assert not any(matches(text * 100) for text in ("a", "ab", "ba"))


def test_a_pattern_that_takes_too_much_memory_is_refused() -> None:
    with pytest.raises(InvalidPattern):
        id_matcher(r"(?:\pL{30}){30}(?:\pN{30}){30}")


def either_of(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repetition = st.sampled_from(["*", "+", "?", "*?", "{2}", "{0,2}", "{1,}"])
    return st.one_of(
        st.lists(parts, max_size=3).map("".join),
        st.lists(parts, min_size=2, max_size=3).map(lambda found: f"(?:{'|'.join(found)})"),
        st.tuples(parts, repetition).map(lambda found: f"(?:{found[0]}){found[1]}"),
    )


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "_", ".", "[ab]", "[^a]", r"\w", r"\W", r"\b", r"\B", "^", r"\A", ""]),
    either_of,
    max_leaves=8,
)


@settings(max_examples=1000)
@given(PATTERNS, st.lists(st.text("ab_-\n", min_size=1, max_size=5), min_size=1, max_size=6))
@example("(?:(?:a)*?)*", ["a", "b"])
def test_it_agrees_with_another_matcher(pattern: str, texts: list[str]) -> None:
    """But about the empty text, in which Python finds no \\B."""
    reference = re.compile(pattern, re.ASCII)
    matches = id_matcher(pattern)
    assert [matches(text) for text in texts] == [reference.fullmatch(text) is not None for text in texts]


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    with contextlib.suppress(InvalidPattern):
        id_matcher(pattern)(text)
