"""How two states of a twisted carrier combine, derived by transport of structure.

A twisted channel is kept in coordinates at the point of its own bases. Write `Move(b, p, q, x)` for
the action that takes the channel x over the bases b from coordinates at p to coordinates at q. Two
states combine by moving both to a common point o, adding, and moving the sum to the point of the
combined bases:

    x ⊕ y  =  Move(B, o, g(B), Move(b, g(b), o, x) + Move(c, g(c), o, y))       B = b ⊕ c

The common point is the origin of a group, and g(B) itself where moves lead upwards alone. Two facts
about actions, which hold for every representation, are all that is needed: moves compose, and a
move of a sum is the sum of the moves of its parts, each over its own bases; + is the channel's
monoid. The table says what a move away from a channel's own point is. No combine is written
anywhere: `combination.derive` saturates with these laws and extracts the form whose exponents are
all safe.
"""

from __future__ import annotations

from ..carriers import plain
from ..expressions import Expr
from ..monoids import MONOIDS
from ..notation import text
from ..representations import REPRESENTATIONS, Representation
from ..terms import variable
from .law import Row, Steering
from .patterns import E

Bases = tuple[Expr, ...]
_SOURCE = "a representation is a group action that is linear on each channel"

# A head of this derivation alone: it never leaves the e-graph.
DECLARATIONS = """
(constructor Move (Exprs Exprs Exprs Expr) Expr)
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
    x, own = E("x"), rep.point(*bases)
    to = tuple(E(f"q{place}") for place in range(len(own)))
    moved = rep.act(bases, own, to, x)
    rules = (
        ("compose", "(= e (Move b q t (Move b p q x)))", "(union e (Move b p t x))"),
        (
            "add",
            f"(= e (Move m p q {_both(rep, 'x', 'y')})) (merged m b c) (over x b) (over y c)",
            f"(union e {_both(rep, '(Move b p q x)', '(Move c p q y)')})",
        ),
        ("over", "(= e (Move b p q x)) (over x b)", "(over e b)"),
        (
            f"move-{rep.name.lower()}",
            f"(= e (Move b p q x)) {_parts_of('b', bases)} (= p {_vector(own)})"
            f" {_parts_of('q', to)}",
            f"(union e {text(moved)})",
        ),
    )
    return tuple(
        Steering(f"combine/{name}", "combine", _SOURCE, x, premises, actions)
        for name, premises, actions in rules
    )


def definition(rep: Representation, left: Bases, right: Bases, x: Expr, y: Expr) -> str:
    """The combined channel by definition, as egglog text."""
    both = merged(rep, left, right)
    end = _vector(rep.point(*both))
    common = _vector(rep.origin) if rep.is_group else end

    def move(bases: Bases, start: str, to: str, value: str) -> str:
        return f"(Move {_vector(bases)} {start} {to} {value})"

    def unpacked(bases: Bases, value: Expr) -> str:
        return move(bases, _vector(rep.point(*bases)), common, text(value))

    return move(both, common, end, _both(rep, unpacked(left, x), unpacked(right, y)))


def _both(rep: Representation, left: str, right: str) -> str:
    """Two values, as egglog text, combined in the channel's monoid."""
    return text(plain(rep.monoid, variable("Expr", left), variable("Expr", right)))


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
