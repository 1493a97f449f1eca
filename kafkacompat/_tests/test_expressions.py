"""Expressions that clients and administrators give: they match a whole text, in RE2's syntax, in bounded time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacompat.expressions import LENGTH_MAX, SIZE_MAX, ExpressionRefused, Expressions, compiled


def matcher(pattern: str) -> Callable[[str], bool]:
    expression = compiled(pattern)
    return lambda text: expression.fullmatch(text) is not None


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
def test_a_whole_text_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = matcher(pattern)
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
        "a" * (LENGTH_MAX + 1),
        "(?:a?){1000}" * 7,
    ],
)
def test_expressions_that_are_refused(pattern: str) -> None:
    with pytest.raises(ExpressionRefused):
        matcher(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        ".*" * 400 + "x",
        "(a*)*b",
        "((a+))+b",
        "(a|a)*b",
        "(a|b|ab)*c",
        "(?:a?){500}a{500}",
        "(.{0,10}){0,20}c",
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Backtracking matchers would not finish."""
    matches = matcher(pattern)
    assert not any(matches(text * 100) for text in ("a", "ab", "ba"))


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:\pL{3}){3}(?:\pN{3}){3}",
        "(((((((" + r"\pL" + "{2})" * 7,
        "a{0,1000}" * 9,
        "(?:a{0,100}){10}" * 9,
        "a?" * (LENGTH_MAX // 2 - 1) + "a{1000}",
        "(.{10}){100}",
        "." * LENGTH_MAX,
    ],
)
def test_an_expression_that_takes_too_much_memory_is_refused(pattern: str) -> None:
    """The parts before RE2 notices take some milliseconds."""
    with pytest.raises(ExpressionRefused, match="too large"):
        compiled(pattern)


@pytest.mark.parametrize(
    "part",
    [r"\pL", r"\PN|", r"[^\pL]", r"[\pL\p{Greek}]", "x{1000,}", "(?:ab){999}", "x{1,99999999999999999999}"],
)
@pytest.mark.parametrize("length", [300, LENGTH_MAX, 24_000])
def test_an_expression_that_takes_long_to_compile_is_refused(
    part: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import re2

    def compile(*_: Any, **__: Any) -> None:
        raise AssertionError("it takes up to a second")

    monkeypatch.setattr(re2, "compile", compile)
    with pytest.raises(ExpressionRefused, match="too large"):
        compiled(part * (length // len(part)) if part[0] in "\\[" else part * length)


@pytest.mark.parametrize("part", ["[" + "a" * (LENGTH_MAX // 4 - 2) + "]", r"\pL|\pN|\p{Nd}", "a{0,400}"])
def test_the_bounds_are_for_all_expressions_of_one_setting(part: str) -> None:
    together = Expressions()
    together.compiled(part)
    together.compiled(part)
    with pytest.raises(ExpressionRefused, match="too large"):
        [together.compiled(part) for _ in range(3)]


def test_nothing_is_kept_of_an_expression() -> None:
    import re2

    before = re2._Regexp._make.cache_info().currsize
    compiled("abc")
    assert before == re2._Regexp._make.cache_info().currsize == 0


def test_usual_expressions_are_far_below_the_bounds() -> None:
    topics = "|".join(f"orders-{region}-{index}" for region in ("north", "south") for index in range(100))
    for pattern in (
        topics,
        r"(?:\p{Lu}|\pN|\PL)+-[a-z]{3}-v[0-9]{1,3}",
        r"[a-zA-Z0-9._-]{1,249}",
        r"tx-\w+-\d{10}",
    ):
        assert compiled(pattern).programsize < SIZE_MAX


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
def test_an_expression_matches_what_pythons_matcher_matches(pattern: str, texts: list[str]) -> None:
    """But about the empty text, in which Python finds no \\B."""
    reference = re.compile(pattern, re.ASCII)
    matches = matcher(pattern)
    assert [matches(text) for text in texts] == [reference.fullmatch(text) is not None for text in texts]


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    with contextlib.suppress(ExpressionRefused):
        matcher(pattern)(text)
