"""A cache for functions with few possible arguments, such as (message class, version).

It is `functools.cache` with the function's own type: mypy considers a class unhashable if its objects are.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(function: Function) -> Function:
    """Cache every result. The arguments must be hashable and few."""
    return cast(Function, cache(function))
