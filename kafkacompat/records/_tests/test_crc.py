"""The checksum is that of the library, whichever way it is loaded."""

from __future__ import annotations

from pathlib import Path

import crc32c as library
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.records.crc import EXTENSION, checksum_of, crc32c


def test_crc32c_is_the_checksum_of_the_standard() -> None:
    """RFC 3720, B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(memoryview(bytearray(b"123456789"))) == 0xE3069283


@given(st.binary(max_size=2000))
def test_crc32c_is_that_of_the_library(data: bytes) -> None:
    assert crc32c(data) == library.crc32c(data)


def test_a_package_without_the_extension_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "another_crc.py").write_text("def crc32c(data):\n    return len(data)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert checksum_of("another_crc", EXTENSION)(b"abc") == 3


def test_a_package_that_is_missing_fails() -> None:
    with pytest.raises(ImportError):
        checksum_of("nowhere_at_all", EXTENSION)
