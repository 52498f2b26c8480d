"""How parts of a case are spelled: `head:argument:argument(part,part)`, read back unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One part: its head, its arguments as they are spelled, and the parts that it is made of."""

    head: str
    arguments: tuple[str, ...] = ()
    below: tuple[Part, ...] = ()

    def __str__(self) -> str:
        inside = f"({','.join(map(str, self.below))})" if self.below else ""
        return ":".join((self.head, *self.arguments)) + inside

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, self.arguments))

    def walk(self) -> Iterator[Part]:
        """This part and all that it is made of."""
        yield self
        for part in self.below:
            yield from part.walk()


def part(head: str, *arguments: object, below: tuple[Part, ...] = ()) -> Part:
    return Part(head, tuple(map(str, arguments)), below)


def read(text: str) -> Part:
    """The part that a text spells; ValueError where it spells none.

    >>> str(read("and(causal,or(window:8:3,not(keep:bmn)))"))
    'and(causal,or(window:8:3,not(keep:bmn)))'
    """
    found, rest = _read(text)
    if rest:
        raise ValueError(f"part: got {text!r}, wants nothing after {str(found)!r}")
    return found


def _read(text: str) -> tuple[Part, str]:
    end = next((place for place, sign in enumerate(text) if sign in "(),"), len(text))
    head, *arguments = text[:end].split(":")
    if not head.isidentifier() or not all(arguments):
        raise ValueError(f"part: got {text!r}, wants NAME:argument(part,part)")
    rest = text[end:]
    below: list[Part] = []
    if rest.startswith("("):
        while rest[:1] in ("(", ",") and (not below or rest[:1] == ","):
            made, rest = _read(rest[1:])
            below.append(made)
        if not rest.startswith(")"):
            raise ValueError(f"part: got {text!r}, wants a closing bracket")
        rest = rest[1:]
    return Part(head, tuple(arguments), tuple(below)), rest
