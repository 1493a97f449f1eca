"""A cache for functions of few possible arguments, such as (message class, version).

It is `functools.cache` with the function's own type, because mypy takes a class whose objects are unhashable for unhashable itself.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(function: Function) -> Function:
    """Remember every result; the arguments must be hashable and few."""
    return cast(Function, cache(function))
