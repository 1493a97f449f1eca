"""The Dockerfile, read line by line. No container engine is at hand, so nothing builds it here."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest

from kafkacompat.container.environment import DEFAULTS
from kafkacompat.container.tools.__main__ import TOOLS

CHECKOUT = Path(__file__).resolve().parents[3]
USER, USER_ID = "appuser", 1000
LINKED = re.compile(r"for each in ([a-z -]+);\s+do ln -s kafka-tool /opt/kafka/bin/kafka-\$each\.sh")


def instructions() -> list[tuple[str, str]]:
    text = (CHECKOUT / "Dockerfile").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined)]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    begin = max(at for at, (name, _) in enumerate(found) if name == "FROM")
    return found[begin:]


def copied() -> list[tuple[list[str], str]]:
    """(sources, destination) of what is copied from the checkout."""
    found = []
    for name, rest in instructions():
        words = [word for word in rest.split() if not word.startswith("--")]
        if name == "COPY" and "--from=" not in rest:
            found.append((words[:-1], words[-1]))
    return found


def command_of(instruction: str) -> list[str]:
    (rest,) = [rest for name, rest in final_stage() if name == instruction]
    return list(json.loads(rest[rest.index("[") :]))


def is_sent(path: str) -> bool:
    """Whether .dockerignore leaves a path of the checkout to the builder. Later lines win."""
    sent = True
    for line in (CHECKOUT / ".dockerignore").read_text("utf-8").splitlines():
        if line.startswith("!"):
            sent = sent or path.split("/")[0] == line[1:]
        elif fnmatch(path, line) or fnmatch(path, line.replace("**/", "*/")):
            sent = False
    return sent


def test_files_that_the_image_copies_exist_and_are_sent_to_the_builder() -> None:
    sources = [source for some, _ in copied() for source in some]
    assert len(sources) > 5
    for source in sources:
        assert (CHECKOUT / source).exists(), source
        assert is_sent(source), source
    assert not is_sent("kafkacompat/container/_tests")
    assert not is_sent("interop_tests")


def test_the_node_runs_as_its_own_user() -> None:
    stage = final_stage()
    users = [(at, rest) for at, (name, rest) in enumerate(stage) if name == "USER"]
    assert [rest for _, rest in users] == [USER]
    # Whatever needs root comes before.
    assert max(at for at, (name, _) in enumerate(stage) if name in ("RUN", "COPY")) < users[0][0]
    (made,) = [rest for name, rest in stage if name == "RUN" and "useradd" in rest]
    assert f"useradd --uid {USER_ID} " in made
    owned = {
        folder
        for words in re.findall(rf"install -d -o {USER} -g root -m 775 ([^&]+)", made)
        for folder in words.split()
    }
    volumes = command_of("VOLUME")
    assert set(volumes) <= owned
    assert DEFAULTS["log.dirs"] in owned


def test_the_commands_are_those_of_the_package() -> None:
    (start,) = command_of("CMD")
    assert (["deploy/image/run"], start) in copied()
    script = (CHECKOUT / "deploy" / "image" / "run").read_text("utf-8")
    assert script.splitlines()[-1] == 'exec python -m kafkacompat.container "$@"'
    assert find_spec("kafkacompat.container.__main__") is not None
    (check,) = [rest for name, rest in final_stage() if name == "HEALTHCHECK"]
    command = json.loads(check[check.index("[") :])
    assert command[:2] == ["python", "-m"]
    assert find_spec(command[2]) is not None
    (port,) = [rest for name, rest in final_stage() if name == "EXPOSE"]
    assert DEFAULTS["advertised.listeners"].endswith(f":{port}")


def test_each_tool_is_linked_and_each_link_is_a_tool() -> None:
    (run,) = [rest for name, rest in final_stage() if name == "RUN" and "ln -s" in rest]
    found = LINKED.search(run)
    assert found is not None
    assert {f"kafka-{each}" for each in found[1].split()} == set(TOOLS)


@pytest.mark.parametrize(
    "path", sorted(CHECKOUT.glob("deploy/compose/*/compose.yaml")), ids=lambda path: path.parent.name
)
def test_services_differ_from_those_of_apache_kafka_in_one_line(path: Path) -> None:
    """The image's name, and where to build it."""
    text = path.read_text("utf-8")
    images = re.findall(r"(?m)^ +image: (.+)$", text)
    assert set(images) == {"kafkacompat"}
    context = re.findall(r"(?m)^ +build: (.+)$", text)
    assert context
    assert {(path.parent / each).resolve() for each in context} == {CHECKOUT}
