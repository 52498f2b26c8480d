"""How terms are written: `text` for machines (egglog's own syntax, parsed back by `parse`), and
`pretty` for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .monoids import MONOIDS
from .operators import OPERATORS
from .terms import HEADS, Term, make, subterms, variable


def text(term: Term) -> str:
    """The term as egglog reads it; equal terms, and only they, have equal text."""
    written: dict[Term, str] = {}
    for node in subterms(term):
        if node.head == "Var":
            written[node] = node.args[0]
            continue
        written[node] = flat_text(node, written)
    return written[term]


def flat_text(node: Term, written: dict[Term, str]) -> str:
    """One node as egglog reads it, given how its children are written."""
    sorts = HEADS[node.head].arguments
    parts = [_argument(sort, arg, written) for sort, arg in zip(sorts, node.args, strict=True)]
    return "(" + " ".join([node.head, *parts]) + ")"


def _argument(sort: str, arg: Any, written: dict[Term, str]) -> str:
    if isinstance(arg, Term):
        return written[arg]
    if sort == "f64":
        return number(arg)
    if sort == "String":
        return f'"{arg}"'
    if isinstance(arg, tuple):
        build = "vec" if sort.startswith("Vec") else "set"
        if not arg:
            return f"({build}-empty)"
        return f"({build}-of " + " ".join(written[item] for item in arg) + ")"
    return str(arg)


def number(value: float) -> str:
    """A float as egglog writes it: shortest text that reads back, with a point or an exponent."""
    return repr(value)


_TOKEN = re.compile(r'\(|\)|"[^"]*"|[^\s()]+')


def parse(source: str, variables: dict[str, str] | None = None) -> Any:
    """The term that `text` wrote. Bare names are pattern variables: `variables` gives their sorts.

    Raises ValueError with the position for anything that is not a term.
    """
    tokens = _TOKEN.findall(source)
    term, end = _parse(tokens, 0, variables or {})
    if end != len(tokens):
        raise ValueError(f"term text: unexpected {tokens[end]!r} after token {end}")
    return term


def _parse(tokens: list[str], at: int, variables: dict[str, str]) -> tuple[Any, int]:
    if at >= len(tokens):
        raise ValueError("term text: ends too early")
    token = tokens[at]
    if token != "(":
        return _atom(token, at, variables), at + 1
    head, at = tokens[at + 1], at + 2
    args: list[Any] = []
    while at < len(tokens) and tokens[at] != ")":
        arg, at = _parse(tokens, at, variables)
        args.append(arg)
    if at >= len(tokens):
        raise ValueError(f"term text: ({head} … is not closed")
    if head in ("vec-of", "set-of", "vec-empty", "set-empty"):
        return tuple(args), at + 1
    if head not in HEADS or len(args) != len(HEADS[head].arguments):
        known = "" if args else f"; the monoids are {', '.join(MONOIDS)}"
        raise ValueError(f"term text: unknown ({head} …) with {len(args)} arguments{known}")
    return make(head, *args), at + 1


def _atom(token: str, at: int, variables: dict[str, str]) -> Any:
    if token.startswith('"'):
        return token[1:-1]
    if token in variables:
        return variable(variables[token], token)
    try:
        return int(token) if re.fullmatch(r"-?\d+", token) else float(token)
    except ValueError:
        raise ValueError(f"term text: unexpected {token!r} at token {at}") from None


# ---- for people ----------------------------------------------------------------------------------

_BINDING = {"|": 1, "&": 2, "<": 3, "<=": 3, "==": 3, "!=": 3, "+": 4, "-": 4}
_UNARY, _ATOM = 6, 9


def pretty(term: Term) -> str:
    """The term in the notation of the field, on one line; shared parts are written out again."""
    done: dict[Term, tuple[str, int]] = {}
    for node in subterms(term):
        done[node] = pretty_node(node, done.__getitem__)
    return done[term][0]


Say = Callable[[Any], tuple[str, int]]


def pretty_node(node: Term, say: Say) -> tuple[str, int]:
    """How one node is written, and how tightly it binds, given the same for its children."""
    args = node.args
    if node.head in OPERATORS:
        return _operator(node, say)
    if node.head == "Num" and isinstance(args[0], Term):  # in a law
        return str(args[0].args[0]), _ATOM
    if node.head == "Num":
        return f"{args[0]:.17g}" if args[0] != round(args[0], 12) else f"{args[0]:.12g}", _ATOM
    write = _WRITERS.get(node.head)
    if write is not None:
        return write(args, lambda child: say(child)[0])  # type: ignore[no-any-return]
    return node.head, _ATOM


def _operator(node: Term, say: Say) -> tuple[str, int]:
    row = OPERATORS[node.head]
    if row.infix:
        level = _BINDING.get(row.symbol, 5)
        left, right = (say(child) for child in node.args)
        a = left[0] if left[1] >= level else f"({left[0]})"
        b = right[0] if right[1] > level else f"({right[0]})"
        return f"{a} {row.symbol} {b}", level
    inside = ", ".join(say(child)[0] for child in node.args)
    if node.head == "Neg":
        body = say(node.args[0])
        return f"-{body[0] if body[1] >= _UNARY else f'({body[0]})'}", _UNARY
    return f"{row.symbol}({inside})", _ATOM


def _level(axis: str, args: tuple[Any, ...], mark: str) -> str:
    return f"{axis}{mark}{args[1]}"


def _channels(args: tuple[Any, ...], say: Any) -> str:
    items = args[0] if isinstance(args[0], tuple) else (args[0],)
    return "{" + "; ".join(say(item) for item in items) + "}"


def _twisted(args: tuple[Any, ...], say: Any) -> str:
    bases = args[1] if isinstance(args[1], tuple) else (args[1],)
    return f"{say(args[0])}-twisted[{', '.join(say(base) for base in bases)}] {say(args[2])}"


_WRITERS: dict[str, Any] = {
    "Var": lambda args, say: (args[0], _ATOM),
    "Known": lambda args, say: (str(args[0]), _ATOM),
    "Symbol": lambda args, say: (args[0], _ATOM),
    "Ax": lambda args, say: (str(args[0]), _ATOM),
    "Outer": lambda args, say: (_level(say(args[0]), args, "/"), _ATOM),
    "Inner": lambda args, say: (_level(say(args[0]), args, "%"), _ATOM),
    "Array": lambda args, say: (str(args[0]), _ATOM),
    "Rep": lambda args, say: (str(args[0]), _ATOM),
    "Idx": lambda args, say: (say(args[0]), _ATOM),
    "Len": lambda args, say: (f"|{say(args[0])}|", _ATOM),
    "Load": lambda args, say: (f"{say(args[0])}[{', '.join(map(say, args[1]))}]", _ATOM),
    "Cast": lambda args, say: (f"{args[0]}({say(args[1])})", _ATOM),
    "Red": lambda args, say: (f"{_reduction(args)}_{say(args[1])}({say(args[2])})", _ATOM),
    "Get": lambda args, say: (f"{say(args[0])}.⟨{say(args[1])}⟩", _ATOM),
    "Mat": lambda args, say: (f"store({say(args[0])})", _ATOM),
    "Risk": lambda args, say: (f"cancels({say(args[0])})", _ATOM),
    "Ch": lambda args, say: (f"{_reduction(args)} {say(args[1])}", _ATOM),
    "Tw": lambda args, say: (_twisted(args, say), _ATOM),
    "Lift": lambda args, say: (_channels(args, say), _ATOM),
    "Fold": lambda args, say: (f"fold[{args[1].head} {say(args[0])}] {say(args[2])}", _ATOM),
}


def _reduction(args: tuple[Any, ...]) -> str:
    return MONOIDS[args[0].head].symbol if args[0].head in MONOIDS else str(args[0].args[0])
