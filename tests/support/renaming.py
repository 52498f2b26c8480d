"""The same expression under other names, and what of a kernel's text no name may change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from egraph_flash.terms import Term, make, rewrite, subterms

LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))


def renamed(roots: tuple[Any, ...], names: Iterator[str]) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    """The terms with other names for their axes and tensors, and the way back."""
    back: dict[Term, Term] = {}
    change: dict[Term, Term] = {}
    for node in (n for n in subterms(*roots) if n.head in ("Ax", "Array")):
        change[node] = make(node.head, next(names), *node.args[1:])
        back[change[node]] = node
    return tuple(rewrite(root, change) for root in roots), back


def random_names(rng: np.random.Generator) -> Iterator[str]:
    """Identifiers in no order of the alphabet, no two of them the same."""
    seen: set[str] = set()
    while True:
        name = "".join(rng.choice(LETTERS, 6))
        if name not in seen:
            seen.add(name)
            yield name


def instructions(ptx: str) -> tuple[str, ...]:
    """The lines of a module without comments, its entries and parameters numbered in order."""
    bare = re.sub(r"\s*//.*", "", ptx)
    found = re.findall(r"\.entry (\w+)|\.param \..* (\w+)[\[\d\],]*$", bare, re.MULTILINE)
    numbers = {entry or param: f"name{at}" for at, (entry, param) in enumerate(found)}
    spelled = re.sub(r"(?<![%.\w])\w+", lambda word: numbers.get(word[0], word[0]), bare)
    return tuple(line.strip() for line in spelled.splitlines() if line.strip())
