"""The scripts of `kafkacompat completion`. bash and fish run theirs, zsh reads its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kafkacompat.__main__ import COMMANDS, main
from kafkacompat.cli.completion import SHELLS, script


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_command_and_the_options_of_actions(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert name in text
    for option in ("replication-factor", "command-config", "files-per-batch"):
        assert option in text


WORDS = [
    (["kafkacompat", "to"], {"topics"}),
    (["kafkacompat", "topics", "des"], {"describe"}),
    (["kafkacompat", "topics", "create", "--part"], {"--partitions"}),
    (["kafkacompat", "consume", "--sha"], {"--share"}),
    (["kafkacompat", "groups", "alter", "g", "--uns"], {"--unset"}),
    (["kafkacompat", "produce", "--compression", "zs"], {"zstd"}),
    (["kafkacompat", "pipeline", "ge"], {"generate"}),
    (["kafkacompat", "completion", "z"], {"zsh"}),
    (["kafkacompat", "--vers"], {"--version"}),
]
FILE = "x.properties"
WORDS_WITH_FILES = [
    (["kafkacompat", "dump", FILE[:2]], {FILE}),
    (["kafkacompat", "topics", "list", "--command-config", FILE[:2]], {FILE}),
]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(("words", "expected"), WORDS + WORDS_WITH_FILES)
def test_fish_completes_a_word(words: list[str], expected: set[str], tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    (tmp_path / "kafkacompat.fish").write_text(script("fish"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source kafkacompat.fish; complete -C '{' '.join(words)}'"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == expected, done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_can_read_its_script(tmp_path: Path) -> None:
    (tmp_path / "_kafkacompat").write_text(script("zsh"))
    done = subprocess.run(
        ["zsh", "-f", "-n", "_kafkacompat"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(("words", "expected"), WORDS)
def test_bash_completes_a_word(words: list[str], expected: set[str]) -> None:
    line = " ".join(words)
    program = f"""
{script("bash")}
COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}
name=$(complete -p kafkacompat | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$name kafkacompat '{words[-1]}' '{words[-2]}'
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert {each.strip() for each in done.stdout.split()} == expected, done.stderr
