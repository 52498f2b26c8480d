"""How two states of a twisted carrier combine, derived by transport of structure.

A twisted channel is kept in coordinates at the group element of its own bases. Write `Move(b, p,
q, x)` for the action that takes the channel x over the bases b from coordinates at p to
coordinates at q. Two states combine by moving both to a common origin, adding, and moving the sum
to the element of the combined bases:

    x ⊕ y  =  Move(B, 0, g(B), Move(b, g(b), 0, x) + Move(c, g(c), 0, y))       B = b ⊕ c

Two facts about actions, which hold for every representation, are all that is needed: moves
compose, and a move of a sum is the sum of the moves of its parts, each over its own bases. The
table says what a move away from a channel's own element is. No combine is written anywhere:
`combination.derive` saturates with these laws and extracts the form whose exponents are all safe.
"""

from __future__ import annotations

from ..expressions import Expr, lift
from ..monoids import MONOIDS
from ..notation import text
from ..representations import REPRESENTATIONS, Representation
from .law import Row, Steering
from .patterns import E

Bases = tuple[Expr, ...]
_SOURCE = "a representation is a group action that is linear on each channel"

# A head of this derivation alone: it never leaves the e-graph.
DECLARATIONS = """
(constructor Move (Exprs Expr Expr Expr) Expr)
(relation merged (Exprs Exprs Exprs))
(relation over (Expr Exprs))
"""


def merged(rep: Representation, left: Bases, right: Bases) -> Bases:
    """The bases of the combined state."""
    found: list[Expr] = []
    for kind, b, c in zip(rep.monoids, left, right, strict=True):
        if kind in MONOIDS:
            found.append(MONOIDS[kind].combine(b, c))
            continue
        twist = REPRESENTATIONS[kind]
        count = len(twist.monoids)
        below = tuple(found[:count])
        found.append(
            twist.transport(b, left[:count], below) + twist.transport(c, right[:count], below)
        )
    return tuple(found)


def laws(rep: Representation) -> tuple[Row, ...]:
    """The laws of moves, for one representation. The last one is its row of the table."""
    bases = tuple(E(f"b{place}") for place in range(len(rep.monoids)))
    x, to = E("x q")
    element = rep.parameter(*bases)
    moved = rep.act(bases, element - to, x)
    rules = (
        ("compose", "(= e (Move b q t (Move b p q x)))", "(union e (Move b p t x))"),
        (
            "add",
            "(= e (Move m p q (Add x y))) (merged m b c) (over x b) (over y c)",
            "(union e (Add (Move b p q x) (Move c p q y)))",
        ),
        ("over", "(= e (Move b p q x)) (over x b)", "(over e b)"),
        (
            f"move-{rep.name.lower()}",
            f"(= e (Move b p q x)) {_parts_of('b', bases)} (= p {text(element)})",
            f"(union e {text(moved)})",
        ),
    )
    return tuple(
        Steering(f"combine/{name}", "combine", _SOURCE, x, premises, actions)
        for name, premises, actions in rules
    )


def definition(rep: Representation, left: Bases, right: Bases, x: Expr, y: Expr) -> str:
    """The combined channel by definition, as egglog text."""
    both, zero = merged(rep, left, right), text(lift(0.0))

    def move(bases: Bases, start: str, end: str, value: str) -> str:
        return f"(Move {_vector(bases)} {start} {end} {value})"

    def unpacked(bases: Bases, value: Expr) -> str:
        return move(bases, text(rep.parameter(*bases)), zero, text(value))

    total = f"(Add {unpacked(left, x)} {unpacked(right, y)})"
    return move(both, zero, text(rep.parameter(*both)), total)


def assumptions(rep: Representation, left: Bases, right: Bases, x: Expr, y: Expr) -> str:
    """Which channel stands over which bases, as egglog text."""
    b, c, both = _vector(left), _vector(right), _vector(merged(rep, left, right))
    return f"(merged {both} {b} {c}) (over {text(x)} {b}) (over {text(y)} {c})"


def _parts_of(vector: str, bases: Bases) -> str:
    """The premise that these are the elements of a vector."""
    pairs = enumerate(map(text, bases))
    return " ".join(f"(= {base} (vec-get {vector} {place}))" for place, base in pairs)


def _vector(bases: Bases) -> str:
    return f"(vec-of {' '.join(map(text, bases))})"
