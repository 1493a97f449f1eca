"""CRC-32C by the library crc32c, without what its package imports beside.

The package looks up its own version when it is imported. For that it imports the readers of e-mails and of archives,
which take a twentieth of a node's start and of its memory. So its extension module is loaded alone. If the package has
none of that name, it is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, PathFinder
from importlib.util import module_from_spec
from typing import Any

PACKAGE, EXTENSION = "crc32c", "_crc32c"


def checksum_of(package: str, extension: str) -> Callable[[Any], int]:
    """The package's function `crc32c`. Raises ImportError."""
    name = f"{package}.{extension}"
    home = PathFinder.find_spec(package)
    places = None if home is None else home.submodule_search_locations
    found = None if places is None else PathFinder.find_spec(name, places)
    if found is None or not isinstance(found.loader, ExtensionFileLoader):
        module = import_module(package)
    else:
        module = module_from_spec(found)
        found.loader.exec_module(module)
    checksum: Callable[[Any], int] = module.crc32c
    return checksum


crc32c = checksum_of(PACKAGE, EXTENSION)
"""Of anything bytes-like."""
