"""The scripts of `kafkacompat completion`. bash runs its own; of the others the contents are checked."""

from __future__ import annotations

import shutil
import subprocess

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


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["kafkacompat", "to"], {"topics"}),
        (["kafkacompat", "topics", "des"], {"describe"}),
        (["kafkacompat", "topics", "create", "--part"], {"--partitions"}),
        (["kafkacompat", "pipeline", "ge"], {"generate"}),
        (["kafkacompat", "completion", "z"], {"zsh"}),
    ],
)
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
