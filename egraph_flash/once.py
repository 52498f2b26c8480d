"""How a value that searches look up thousands of times is hashed: once."""

from __future__ import annotations

from typing import TypeVar

Kind = TypeVar("Kind")


def hashed_once(kind: type[Kind]) -> type[Kind]:
    """A frozen dataclass whose values keep their hash beside their fields.

    Not for values that go to another process, where strings have other hashes.
    """
    compute = kind.__hash__

    def kept(self: Kind) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = compute(self)
        return known

    kind.__hash__ = kept  # type: ignore[method-assign,assignment]
    return kind
