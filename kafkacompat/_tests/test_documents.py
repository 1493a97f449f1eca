"""What the documents name is there."""

from __future__ import annotations

import argparse
import ast
import builtins
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacompat.cli import reference

CHECKOUT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_TEST = re.compile(r"`((?:kafkacompat|interop_tests)/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_a_document_names_is_there() -> None:
    named = {
        found
        for document in (CHECKOUT / "docs").rglob("*.md")
        for found in NAMED_TEST.findall(document.read_text(encoding="utf-8"))
    }
    assert named, "the notes of the field name tests"
    missing = [
        f"{file}::{test}"
        for file, test in sorted(named)
        if not re.search(rf"def {test}\b", (CHECKOUT / file).read_text(encoding="utf-8"))
    ]
    assert not missing


def documents() -> list[Path]:
    return [*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")]


def prose_of(document: Path) -> str:
    """Without blocks of code: a setting may look like a link."""
    return re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors_of(document: Path) -> set[str]:
    """As GitHub and mkdocs make them of headings."""
    headings = re.findall(r"^#+ (.*)$", prose_of(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_of_the_documents_leads_somewhere() -> None:
    broken = []
    for document in documents():
        for link in LINK.findall(prose_of(document)):
            path, _, anchor = link.partition("#")
            if path.startswith(("http:", "https:", "mailto:")):
                continue
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append(f"{document.relative_to(CHECKOUT)}: {link}")
    assert not broken


def test_the_page_of_commands_says_what_the_commands_say() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), (
        "python -m kafkacompat.cli.reference"
    )


def test_every_argument_of_a_command_has_a_meaning() -> None:
    assert "|  |" not in reference.page()


def glossary() -> list[str]:
    """The names of code in the first column of the tables."""
    lines = (CHECKOUT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8").splitlines()
    return [name for line in lines if line.startswith("| ") for name in CODE.findall(line.split("|")[1])]


def is_there(name: str) -> bool:
    """A module by its path in the package, perhaps with a class of it; or a class, function or module by its name."""
    path, _, inside = name.partition(".")
    if "/" in path:
        module = CHECKOUT / "kafkacompat" / f"{path}.py"
        if not module.exists():
            return not inside and (CHECKOUT / "kafkacompat" / path).is_dir()
        return not inside or bool(re.search(rf"(class|def) {inside}\b", module.read_text(encoding="utf-8")))
    return all(part in NAMES or part in MODULES for part in name.split("."))


SOURCES = [path for path in (CHECKOUT / "kafkacompat").rglob("*.py") if "_tests" not in path.parts]
MODULES = {path.stem for path in SOURCES}
NAMES = {
    name
    for path in SOURCES
    for found in re.findall(
        r"\b(?:class|def) (\w+)|^ +(\w+):", path.read_text(encoding="utf-8"), re.MULTILINE
    )
    for name in found
}
CODE = re.compile(r"`([\w./]+)`")


def test_the_names_of_the_glossary_are_there() -> None:
    named = glossary()
    assert len(named) > 20
    assert [name for name in named if not is_there(name)] == []


PACKAGES = {path.name for path in (CHECKOUT / "kafkacompat").iterdir() if path.is_dir()}
FILES = {path.name for path in (CHECKOUT / "kafkacompat").rglob("*.py")}
PAGES_ON_THE_CODE = (
    "ARCHITECTURE.md",
    "simulation.md",
    "explanation/design-decisions.md",
    "explanation/performance.md",
)


@pytest.mark.parametrize("page", PAGES_ON_THE_CODE)
def test_the_places_in_the_code_that_a_page_names_are_there(page: str) -> None:
    names = set(CODE.findall((CHECKOUT / "docs" / page).read_text(encoding="utf-8")))
    places = [name for name in names if name.split("/")[0] in PACKAGES or name.endswith(".py")]
    assert places
    missing = [
        name
        for name in places
        if not any((base / name).exists() for base in (CHECKOUT, CHECKOUT / "kafkacompat"))
        and not (name in FILES if name.endswith(".py") else is_there(name))
    ]
    assert missing == []


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables below a heading of a page."""
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8").partition(f"{heading}\n")[2]
    lines = re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_every_package_and_module_of_the_checkout_is_on_the_map_of_the_code() -> None:
    told = {
        name.rstrip("/") for row in rows_of("ARCHITECTURE.md", "## Packages") for name in CODE.findall(row[0])
    }
    package = CHECKOUT / "kafkacompat"
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert told == modules | packages


def test_the_oracles_of_the_simulations_are_on_the_page_that_a_failed_seed_leads_to() -> None:
    """A failure begins with the oracle's name."""
    told = {
        name
        for heading in ("### The oracles", "### The oracles of the cluster")
        for row in rows_of("simulation.md", heading)
        for name in row[0].split(", ")
    }
    oracles = {
        call.args[0].value
        for path in (CHECKOUT / "kafkacompat" / "sim").rglob("*.py")
        if "_tests" not in path.parts
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Breach"
        if isinstance(call.args[0], ast.Constant)
    }
    assert len(oracles) > 100
    assert oracles - told == set()


def docstrings(path: Path) -> list[str]:
    """Those of a module, its classes and its functions, that of the module first."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]


def test_the_modules_that_docstrings_name_are_there() -> None:
    missing = [
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in SOURCES
        if "messages" not in path.parts
        for text in docstrings(path)
        for name in re.findall(r"\b[\w/]+\.py\b", text)
        if not any((base / name).exists() for base in (CHECKOUT, CHECKOUT / "kafkacompat", *path.parents[:2]))
        and name not in FILES
    ]
    assert missing == []


def test_the_modules_that_a_package_names_are_there() -> None:
    missing = [
        f"{path.relative_to(CHECKOUT)}: {name}"
        for path in SOURCES
        if path.name == "__init__.py"
        for name in CODE.findall(docstrings(path)[0])
        if re.fullmatch(r"[a-zA-Z]\w*", name) and name != "kafkacompat"
        if not is_there(name) and not hasattr(builtins, name)
    ]
    assert missing == []


def test_the_places_that_the_page_for_contributors_names_are_there() -> None:
    """A file by its path in the checkout or in a package, or by its name. A name of code by any use of it."""
    package, others = CHECKOUT / "kafkacompat", ("interop_tests", "docs", "deploy")
    known = {path.name for base in ("kafkacompat", *others) for path in (CHECKOUT / base).rglob("*")}
    code = [*package.rglob("*.py"), *package.rglob("*.js")]
    code += (CHECKOUT / "interop_tests").rglob("*.py")
    words = {word for path in code for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    text = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    inside = ("docs", "interop_tests", "kafkacompat/pipeline", "kafkacompat/cli")
    bases = (CHECKOUT, package, *(CHECKOUT / each for each in inside))
    missing = []
    for name in set(CODE.findall(text)) - {"apache/kafka", "logs/events"}:
        if name.startswith(".") or name.endswith("..."):
            continue
        is_file = "/" in name or re.search(r"\.(py|tsv|json|md|js)$", name)
        if is_file and any((base / each).exists() for base in bases for each in (name, f"{name}.py")):
            continue
        parts = [name] if is_file else [part for part in name.split(".") if part]
        if not (name in known or all(part in words for part in parts)):
            missing.append(name)
    assert missing == []


COMMANDS = dict(reference.parsers())
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = ("", "console")
SPAN = re.compile(r"`(kafkacompat [^`]* --[^`]*)`")
BANNER = re.compile(r"kafkacompat \d")
PUNCTUATION = frozenset("();<>|&")


def shell_lines(text: str) -> Iterator[str]:
    """What a reader types: the lines with a prompt, or all lines of a block without one."""
    for block in (block for language, block in BLOCK.findall(text) if language in SHELL):
        lines = block.replace("\\\n", " ").splitlines()
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        yield from prompted or [line for line in lines if not BANNER.match(line)]


def commands_in(line: str) -> Iterator[list[str]]:
    """The words after `kafkacompat` of each call of it in a line of shell."""
    # Not as POSIX has it, so that a quoted mark keeps its quotes and passes for no operator.
    words = shlex.shlex(line, posix=False, punctuation_chars=True)
    words.whitespace_split = True
    simple: list[str] = []
    for word in [*words, ";"]:
        if not set(word) <= PUNCTUATION:
            simple += shlex.split(word)
            continue
        if simple[:1] == ["do"]:
            del simple[0]
        if simple[:1] == ["kafkacompat"]:
            yield simple[1:]
        simple = []


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of a command, and what is left for it."""
    length = 2 if words[0] == "pipeline" else 1
    return COMMANDS[" ".join(["kafkacompat", *words[:length]])], words[length:]


def typed() -> list[tuple[str, list[str]]]:
    """Each call of the command in the documents, by its document."""
    return [
        (document.name, words)
        for document in documents()
        for line in shell_lines(document.read_text(encoding="utf-8"))
        if re.search(r"\bkafkacompat ", line)
        for words in commands_in(line)
    ]


@pytest.mark.parametrize("document", sorted({name for name, _ in typed()}))
def test_the_commands_of_a_document_can_be_called_so(document: str) -> None:
    """Whether they do what it says is for interop_tests/cli/test_pages.py, of those that take no long time."""
    for words in (words for name, words in typed() if name == document):
        parser, rest = parser_of(words)
        try:
            parser.parse_args(rest)
        except SystemExit as refused:
            pytest.fail(f"{document}: kafkacompat {shlex.join(words)}: {refused.__context__}")


def test_the_options_that_documents_name_are_there() -> None:
    named = [
        (document.name, found)
        for document in documents()
        for found in SPAN.findall(document.read_text(encoding="utf-8"))
    ]
    assert named
    for document, span in named:
        words = [word for word in span.split() if word[0].isalpha()]
        known = {
            option
            for command, parser in COMMANDS.items()
            if words[: len(command.split())] == command.split()
            for action in parser._actions
            for option in action.option_strings
        }
        told = re.findall(r"(?<![\w-])--[\w-]+", span)
        assert set(told) <= known, (document, span)


MODULE = re.compile(r"python3? -m ((?:kafkacompat|interop_tests|benchmarks)[\w.]*)([^`\n|]*)")
OPTION = re.compile(r"(?<![\w-])--[\w-]+")
MAKE = re.compile(r"`(?:\w+=\S+ )?make ([a-z]+)|^make ([a-z]+)", re.MULTILINE)


def sources_of(module: str) -> str:
    """What a module that is run, or a package, consists of. Empty if it cannot be run."""
    path = CHECKOUT / module.replace(".", "/")
    if (path / "__main__.py").exists():
        return "\n".join(each.read_text(encoding="utf-8") for each in sorted(path.glob("*.py")))
    file = path.with_suffix(".py")
    return file.read_text(encoding="utf-8") if file.exists() else ""


def test_the_modules_that_documents_run_are_there_and_take_the_options() -> None:
    named = [
        (document.name, module, OPTION.findall(rest))
        for document in documents()
        for module, rest in MODULE.findall(document.read_text(encoding="utf-8"))
    ]
    assert len(named) > 20
    for document, module, options in named:
        sources = sources_of(module)
        assert sources, (document, module)
        assert [each for each in options if f'"{each}"' not in sources] == [], (document, module)


def test_the_targets_of_make_that_documents_name_are_there() -> None:
    targets = set(
        re.findall(r"^([a-z]+):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        (document.name, one or other)
        for document in documents()
        for one, other in MAKE.findall(document.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert {each for each in named if each[1] not in targets} == set()


def test_the_site_has_every_document() -> None:
    listed = re.findall(
        r": ([\w./-]+\.md)$", (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    documents = {str(path.relative_to(CHECKOUT / "docs")) for path in (CHECKOUT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(documents)


def test_a_reader_finds_every_tutorial() -> None:
    tutorials = {f"tutorials/{path.name}" for path in (CHECKOUT / "docs" / "tutorials").glob("*.md")}
    assert len(tutorials) > 3
    for page, base in (("README.md", "docs/"), ("docs/index.md", "")):
        links = set(LINK.findall(prose_of(CHECKOUT / page)))
        assert {each for each in tutorials if f"{base}{each}" not in links} == set(), page


NOT_READ_BY_A_TEST = {
    "tutorials/first-cluster.md": "interop_tests/cli/test_cluster.py has its commands with other ports, and waits between them",
    "how-to/tier-a-topic.md": "it has settings and no commands: interop_tests/cluster/test_tiered.py has them",
}
"""Pages whose steps are in no test that reads them, with the reason."""


def test_every_page_with_steps_is_followed_by_a_test() -> None:
    """A test reads the page that it follows, so that a change of the page changes the test."""
    tests = [
        *(CHECKOUT / "interop_tests").rglob("*.py"),
        *(CHECKOUT / "kafkacompat").rglob("_tests/test_*.py"),
    ]
    read = {
        name
        for path in tests
        if path != Path(__file__).resolve()
        for name in re.findall(r'"(?:[\w-]+/)*([\w-]+\.md)"', path.read_text(encoding="utf-8"))
    }
    pages = {
        f"{folder}/{path.name}"
        for folder in ("tutorials", "how-to")
        for path in (CHECKOUT / "docs" / folder).glob("*.md")
    }
    assert {page for page in pages if page.partition("/")[2] not in read} == set(NOT_READ_BY_A_TEST)
    named = [name for why in NOT_READ_BY_A_TEST.values() for name in re.findall(r"[\w/]+\.py", why)]
    assert [name for name in named if not (CHECKOUT / name).exists()] == []


ATTACKER = re.compile(r"^\| ([a-z][^|]*?) \|", re.MULTILINE)


def test_every_attack_that_is_said_to_be_prevented_has_tests() -> None:
    def attackers(page: str, heading: str) -> list[str]:
        text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
        return ATTACKER.findall(text.partition("\n## ")[0])

    told = attackers("how-to/secure-a-cluster.md", "Which attacks are prevented")
    assert len(told) > 5, told
    assert attackers("testing.md", "Attackers") == told
