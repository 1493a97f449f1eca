"""`kafkacompat.dataclass` beside the standard library's: the same classes, made by both, answer alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import weakref
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from kafkacompat._tests.test_imports import ROOT, project_modules, source_of
from kafkacompat.dataclass import dataclass

Make = Callable[[Callable[..., Any]], Any]
"""Makes a class by a decorator."""


def plain(decorator: Callable[..., Any]) -> Any:
    @decorator(slots=True)
    class Plain:
        """With defaults of each kind."""

        KIND: ClassVar[str] = "plain"
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        hidden: int = field(default=4, repr=False, compare=False)
        inner: dict[str, int] = field(init=False, default_factory=dict)
        fixed: int = field(init=False, default=3)
        later: int = field(init=False, repr=False, compare=False)

    return Plain


def frozen(decorator: Callable[..., Any]) -> Any:
    @decorator(frozen=True, slots=True)
    class Frozen:
        a: int
        b: tuple[int, ...] = ()
        c: object = field(default=None, compare=False)
        inner: int = field(init=False, default=3)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError(self.a)

    return Frozen


def open_to_all(decorator: Callable[..., Any]) -> Any:
    @decorator
    class Open:
        a: int
        b: int = 0

    return Open


def by_identity(decorator: Callable[..., Any]) -> Any:
    @decorator(frozen=True, slots=True, eq=False)
    class ByIdentity:
        a: int

    return ByIdentity


def with_own_methods(decorator: Callable[..., Any]) -> Any:
    @decorator(frozen=True, slots=True)
    class Own:
        a: int
        b: int = 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and bool(self.a == other.a)  # type: ignore[attr-defined]

        def __hash__(self) -> int:
            return 17

        def __repr__(self) -> str:
            return f"<{self.a}>"

    return Own


def with_an_own_equality(decorator: Callable[..., Any]) -> Any:
    @decorator(slots=True)
    class OwnEquality:
        a: int
        b: int = 1

        def __eq__(self, other: object) -> bool:
            return True

    return OwnEquality


def derived(decorator: Callable[..., Any]) -> Any:
    @decorator(frozen=True, slots=True)
    class Base:
        a: int
        b: int = 5

    @decorator(frozen=True, slots=True)
    class Derived(Base):
        c: int = 6
        b: int = 7

    return Derived


def empty(decorator: Callable[..., Any]) -> Any:
    @decorator(slots=True)
    class Empty:
        pass

    return Empty


def referable(decorator: Callable[..., Any]) -> Any:
    @decorator(frozen=True, slots=True, weakref_slot=True)
    class Referable:
        a: int

    return Referable


MAKERS: tuple[Make, ...] = (
    *(plain, frozen, open_to_all, by_identity, with_own_methods, with_an_own_equality, derived, empty),
    referable,
)
CALLS: tuple[tuple[tuple[object, ...], dict[str, object]], ...] = (
    ((), {}),
    ((1,), {}),
    ((2,), {"b": (3,)}),
    ((2, "x"), {}),
    ((1, "x", [3]), {}),
    ((), {"a": 1}),
    ((-1,), {}),
    ((1, 2, 3, 4, 5, 6, 7, 8), {}),
    ((1,), {"a": 2}),
    ((1,), {"unknown": 2}),
)


def outcome(act: Callable[[], object]) -> tuple[str, object]:
    try:
        return "is", act()
    except Exception as error:
        return type(error).__name__, str(error)


def seen(made: Any) -> dict[str, object]:
    """What can be told of the instance but for its type."""
    one = made.__class__
    names = [each.name for each in dataclasses.fields(one)]
    return {
        "values": {name: outcome(lambda name=name: getattr(made, name)) for name in names},  # type: ignore[misc]
        "text": repr(made),
        "is hashed": outcome(lambda: isinstance(hash(made), int)),
        "set": outcome(lambda: setattr(made, "a", 9)),
        "deleted": outcome(lambda: delattr(made, "a")),
        # By a mistake of CPython 3.11 the standard library's says something else if it is frozen with slots.
        "another is set": outcome(lambda: setattr(made, "other", 9))[0] == "is",
        "has a dictionary": hasattr(made, "__dict__"),
        "may be referred to": outcome(lambda: bool(weakref.ref(made))),
    }


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_both_make_the_same(make: Make, call: tuple[tuple[object, ...], dict[str, object]]) -> None:
    ours, theirs = make(dataclass), make(dataclasses.dataclass)
    arguments, named = call
    results = [outcome(lambda kind=kind: seen(kind(*arguments, **named))) for kind in (ours, theirs)]  # type: ignore[misc]
    assert results[0] == results[1]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_both_compare_alike(make: Make) -> None:
    told = []
    for kind in (make(dataclass), make(dataclasses.dataclass)):
        values: tuple[tuple[object, ...], ...] = ((1,), (1,), (2,), (2, (3,)))
        made = [kind(*each) for each in values if len(each) <= len(dataclasses.fields(kind))]
        made += [] if dataclasses.fields(kind) else [kind(), kind()]
        told.append(
            [
                *[(one == other, one != other, one == 1) for one in made for other in made],
                *[outcome(lambda one=one, first=made[0]: hash(one) == hash(first)) for one in made],  # type: ignore[misc]
                kind.__hash__ is None,
                [each.name for each in dataclasses.fields(kind)],
                kind.__match_args__,
            ]
        )
    assert told[0] == told[1]


def test_defaults_are_made_anew() -> None:
    kind = plain(dataclass)
    assert kind(1).c is not kind(1).c
    assert kind(1).inner is not kind(1).inner


def test_a_changed_copy_has_the_rest() -> None:
    made = frozen(dataclass)(1, (2,), "c")
    changed = dataclasses.replace(made, a=5)
    assert (changed.a, changed.b, changed.c) == (5, (2,), "c")
    with pytest.raises(ValueError, match="-1"):
        dataclasses.replace(made, a=-1)


@dataclass(frozen=True, slots=True)
class Sent:
    a: int
    b: tuple[int, ...] = ()


def test_copied_and_sent_to_a_process() -> None:
    made = Sent(1, (2,))
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made  # noqa: S301


def test_a_subclass_without_the_decorator() -> None:
    class Open(frozen(dataclass)):  # type: ignore[misc]
        pass

    made = Open(1)
    made.other = 5
    assert (made.a, made.other) == (1, 5)
    assert repr(made) == f"{Open.__qualname__}(a=1, b=(), c=None, inner=3)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.a = 2


def test_a_value_that_holds_itself_is_told() -> None:
    made = plain(dataclass)(1)
    made.inner["me"] = made
    assert "inner={'me': ...}" in repr(made)


def test_nothing_is_compiled_before_the_first_call() -> None:
    """It is what takes long at a start."""
    kind = plain(dataclass)
    assert kind.__init__.__code__.co_filename.endswith("dataclass.py")
    kind(1)
    assert kind.__init__.__code__.co_filename == "<string>"


WITH_THE_STANDARD_ONE = {
    "cli/share_session.py",  # it is ordered
    "testing/plugin.py",  # nothing of the product is imported before it is used
}


def test_nodes_take_no_other() -> None:
    """One of the standard library's takes half a millisecond of every start."""
    others = {
        str(path.relative_to(ROOT))
        for path in project_modules()
        if path.relative_to(ROOT).parts[0] not in {"pipeline", "console"}
        for each in source_of(path).imports
        if each.module == "dataclasses" and "dataclass" in each.names
    }
    assert others == {*WITH_THE_STANDARD_ONE, "dataclass.py"}
