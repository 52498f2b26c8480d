"""Which stages are alike, the same but for names, and what the schedule of one says of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from .candidates import Candidate
from .canonical import Naming
from .choices import Choices
from .stages import Stage
from .terms import Term


@dataclass(frozen=True, eq=False)
class Likeness:
    """A stage by its structure: `stage` is equal for all that are alike, `naming` leads there."""

    naming: Naming
    stage: Stage

    @classmethod
    def of(cls, stage: Stage) -> Likeness:
        naming = Naming(list(_terms(stage)), lying=True)
        return cls(naming, _renamed(stage, naming.canonical))

    def told(self, candidate: Candidate, choices: Choices, like: Likeness) -> Any:
        """A geometry and a realization of a stage that is `like` this one, as this one's."""

        def mine(term: Any) -> Any:
            return self.naming.original(like.naming.canonical(term))

        own = {name: array for array, name in self._arrays.items()}
        streams = tuple((own[like._arrays[name]], staging) for name, staging in choices.stage)
        return _renamed(candidate, mine), replace(choices, stage=streams)

    @cached_property
    def _arrays(self) -> dict[str, str]:
        """The names that arrays have here, by their own."""
        pairs = self.naming.forward.items()
        return {old.args[0]: new.args[0] for old, new in pairs if old.head == "Array"}


def _terms(value: Any) -> Iterator[Term]:
    """The terms in a stage, in the order of its fields."""
    if isinstance(value, Term):
        yield value
    elif is_dataclass(value) or isinstance(value, tuple):
        for part in value if isinstance(value, tuple) else _fields(value).values():
            yield from _terms(part)


def _renamed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A stage or a geometry with other terms in the places of its own."""
    if isinstance(value, Term):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_renamed(part, change) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{n: _renamed(part, change) for n, part in _fields(value).items()})
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
