"""How the e-graph engine is loaded: the compiled bindings of egglog, and nothing of its Python."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

_NAME = "egglog.bindings"


def bindings() -> Any:
    """The module `egglog.bindings`, in 0.02 s.

    Importing it by name runs egglog's package first, which takes ten times as long and is not
    needed. The module is registered, since it may be loaded only once in a process.
    """
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = find_spec("egglog")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(_NAME, places) if places is not None else None
    if spec is None or spec.loader is None:
        return import_module(_NAME)  # raises what a user expects where egglog is missing
    module = module_from_spec(spec)
    sys.modules[_NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_NAME]
        raise
    return module
