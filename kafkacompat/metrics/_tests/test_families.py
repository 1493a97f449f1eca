"""Labels as the names of Kafka's MBeans have them."""

from __future__ import annotations

import pytest

from kafkacompat.metrics.families import mbean_value


@pytest.mark.parametrize("plain", ["", "orders.v1", "a_b-c", "user%40x", "4.3.0 beta"])
def test_plain_values_stay(plain: str) -> None:
    assert mbean_value(plain) == plain


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("/data/kafka", '"/data/kafka"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("a*?", '"a\\*\\?"'),
        ("a\nb", '"a\\nb"'),
        ("é", '"é"'),
    ],
)
def test_others_are_quoted(text: str, quoted: str) -> None:
    assert mbean_value(text) == quoted
