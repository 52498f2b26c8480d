"""Which expression `FILE.py:NAME` means, and what its file says beside it."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .dtypes import Array
from .errors import EgraphFlashError, InputError
from .expressions import Expr, Output


class LoadError(EgraphFlashError, ValueError):
    """A `FILE.py:NAME` that leads to no expression, or a pin that is not spelled `KNOB=value`."""


@dataclass(frozen=True)
class Loaded:
    """An expression (or a tuple of several outputs), its name, and the module that defines it.

    A file may say more about its expressions, in dictionaries by name: `PLAIN`, a function of the
    inputs that computes the same in the inputs' own dtype; `PEERS`, a `peers.Peer`; `INPUTS`, a
    function of a numpy Generator that makes random inputs; `CHECKS`, a function of a kernel, its
    inputs and its result that says what is wrong with it, or None. `text` is what NAME("text")
    gives to the function NAME, and to each of these as `text`.
    """

    name: str
    expression: Any
    module: ModuleType
    text: str | None = None

    def beside(self, table: str) -> Any | None:
        """What the file's dictionary `table` has for this expression; None for nothing."""
        rows = getattr(self.module, table, None)
        found = rows.get(self.name) if isinstance(rows, Mapping) else None
        if self.text is None or not callable(found):
            return found
        return functools.partial(found, text=self.text)


def load(spec: str) -> Loaded:
    """The expression that `FILE.py:NAME` names, or that the function NAME returns.

    `FILE.py:NAME("text")` calls the function NAME with that text. Raises LoadError for a file or
    name that is not there, for a text that the function does not take, and for what is no
    expression.
    """
    parts = re.fullmatch(r'(.+):([^:()"]+)(?:\("([^"]*)"\))?', spec)
    if parts is None:
        raise LoadError(f'expression: got {spec!r}, wants FILE.py:NAME or FILE.py:NAME("text")')
    file, name, text = parts.groups()
    path = Path(file)
    if not path.is_file():
        raise LoadError(f"expression: no such file {file!r}; wants FILE.py:NAME")
    module = _execute(path)
    found = getattr(module, name, None)
    if found is None:
        raise LoadError(f"{file}: no expression called {name!r}; it has {_listed(module)}")
    if text is not None and (not callable(found) or is_expression(found)):
        raise LoadError(f"{file}: {name!r} is a {type(found).__name__}, which takes no text")
    if callable(found) and not is_expression(found):
        found = found() if text is None else _called(found, name, text)
    if not is_expression(found):
        raise LoadError(
            f"{file}: {name!r} is a {type(found).__name__}, wants an expression or a tuple of "
            f"them; it has {_listed(module)}"
        )
    return Loaded(name, found, module, text)


def _called(function: Callable[[str], Any], name: str, text: str) -> Any:
    try:
        return function(text)
    except EgraphFlashError:
        raise
    except (TypeError, ValueError) as error:
        raise LoadError(f"{name}({text!r}): {error}") from error


def is_expression(value: Any) -> bool:
    """Whether `optimize` takes it: an expression, an ordered output, or a tuple of these."""
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(item, Expr | Output) for item in value)
    return isinstance(value, Expr | Output)


def _listed(module: ModuleType) -> str:
    return ", ".join(name for name, value in vars(module).items() if is_expression(value)) or "none"


def _execute(path: Path) -> ModuleType:
    """Run a file as a module, with its own folder first on the path, as `python FILE.py` does."""
    spec = importlib.util.spec_from_file_location(f"_egraph_flash_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise LoadError(f"expression: {path} is no Python file; wants FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except EgraphFlashError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        at = next((f.lineno for f in reversed(frames) if f.filename == str(path)), None)
        line = getattr(error, "lineno", None) or at
        raise LoadError(f"{path}, line {line}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def parse_pins(spelled: Sequence[str]) -> dict[str, str]:
    """Pins from `KNOB=value` texts; the value may hold further `=`.

    >>> parse_pins(["PLACE=fold=cut", "REGS=r128/b2"])
    {'PLACE': 'fold=cut', 'REGS': 'r128/b2'}
    """
    pins: dict[str, str] = {}
    for text in spelled:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise LoadError(f"pin: got {text!r}, wants KNOB=value, such as PLACE=fold=cut")
        if name in pins:
            raise LoadError(f"pin: got {name} twice, as {pins[name]!r} and {value!r}")
        pins[name] = value
    return pins


def parse_lengths(spelled: Sequence[str]) -> dict[str, int]:
    """Lengths from `NAME=number` texts.

    >>> parse_lengths(["seq=100"])
    {'seq': 100}
    """
    lengths: dict[str, int] = {}
    for text in spelled:
        name, _, number = text.partition("=")
        if not name.isidentifier() or not number.isdecimal():
            raise LoadError(f"length: got {text!r}, wants NAME=number, such as seq=100")
        if name in lengths:
            raise LoadError(f"length: got {name} twice, as {lengths[name]} and {number}")
        lengths[name] = int(number)
    return lengths


def parse_row(spelled: str) -> tuple[str, dict[str, str]]:
    """One row of a benchmark, `label:KNOB=value;KNOB=value`, as its label and pins.

    >>> parse_row("materialized:PLACE=fold=cut")
    ('materialized', {'PLACE': 'fold=cut'})
    """
    label, separator, pins = spelled.partition(":")
    if not separator or not label:
        raise LoadError(f"row: got {spelled!r}, wants label:KNOB=value;KNOB=value")
    return label, parse_pins([pin for pin in pins.split(";") if pin])


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file; InputError where it is not there or is no such file."""
    try:
        with np.load(path) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"inputs: {path} does not read as .npz: {error}") from error
