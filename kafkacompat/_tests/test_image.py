"""The image that the Dockerfile makes: who runs in it, what is in it, how its health is seen; and its compose files."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from kafkacompat.config import ServerConfig
from kafkacompat.container.environment import Secrets, prepare, properties_of

CHECKOUT = Path(__file__).resolve().parents[2]


def steps() -> list[tuple[str, str]]:
    """(instruction, the rest) of each line of the Dockerfile, continued ones joined."""
    text = re.sub(r"\\\n\s*", "", (CHECKOUT / "Dockerfile").read_text(encoding="utf-8"))
    return [
        (line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line and line[0] != "#"
    ]


def the(instruction: str) -> str:
    (found,) = [rest for name, rest in steps() if name == instruction]
    return found


def sent_to_the_builder(path: str) -> bool:
    """By .dockerignore, where the last line that fits decides."""
    sent = True
    for line in (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if any(fnmatch.fnmatchcase(part, pattern) for part in (path, *Path(path).parts)):
            sent = line.startswith("!")
    return sent


def test_nobody_is_root_in_it() -> None:
    assert the("USER") not in ("root", "0")
    names = [name for name, _ in steps()]
    assert names.index("USER") < names.index("CMD")


def test_the_image_takes_the_product_alone() -> None:
    copies = [rest for name, rest in steps() if name == "COPY" and not rest.startswith("--from=")]
    copied = [source for rest in copies for source in rest.split()[:-1] if source[:2] != "--"]
    assert {"kafkacompat", "requirements.lock", "pyproject.toml"} <= set(copied)
    assert all((CHECKOUT / source).exists() and sent_to_the_builder(source) for source in copied)
    left_out = (".git", ".venv", "interop_tests", "kafkacompat/_tests", "kafkacompat/log/__pycache__")
    left_out += ("kafkacompat/records/_scan.cpython-311-x86_64-linux-gnu.so",)
    assert not [path for path in left_out if sent_to_the_builder(path)]


def test_its_commands_are_there() -> None:
    check = json.loads(the("HEALTHCHECK").partition("CMD ")[2])
    assert check[:2] == ["python", "-m"]
    (command,) = json.loads(the("CMD"))
    installed = {rest.split()[-1]: rest.split()[-2] for name, rest in steps() if name == "COPY"}
    script = CHECKOUT / installed[command]
    assert os.access(script, os.X_OK)
    called = re.findall(r"python -m (\S+)", script.read_text(encoding="utf-8"))
    for module in (check[2], *called):
        assert importlib.util.find_spec(module) is not None, module


@pytest.mark.parametrize(
    "file", sorted((CHECKOUT / "deploy/compose").rglob("*.yaml")), ids=lambda file: file.parent.name
)
def test_compose_files_mount_volumes_where_the_image_has_folders(file: Path) -> None:
    services = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]
    volumes = set(json.loads(the("VOLUME")))
    for service in services.values():
        assert service["image"] == "kafkacompat"
        targets = {each.rpartition(":")[2] for each in service["volumes"]}
        assert targets <= volumes
        assert service["environment"]["KAFKA_LOG_DIRS"] in targets


@pytest.mark.parametrize(
    "file", sorted((CHECKOUT / "deploy/compose").rglob("*.yaml")), ids=lambda file: file.parent.name
)
def test_settings_of_compose_files_are_settings_with_effect(file: Path) -> None:
    services = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]
    for service in services.values():
        variables = {name: str(value) for name, value in service["environment"].items()}
        prepared = prepare(variables, None, Secrets("/nowhere", lambda path: None))
        config = ServerConfig.from_properties(properties_of(prepared), {})
        assert (list(config.unknown), list(config.without_effect), prepared.notes) == ([], [], ())
