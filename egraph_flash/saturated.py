"""Saturated e-graphs, and the few that are kept so that other pins need not saturate again."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .egraph import Saturation, Session
from .errors import EgraphFlashError
from .expressions import Expr
from .frozen import Frozen, read
from .monoids import MONOIDS
from .rules import program_parts
from .terms import make, subterms

KEPT = 4  # engines a thread, of some 20 MB each

Roots = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Saturated:
    """An e-graph of some outputs after the laws have run, and its tables as they were then."""

    session: Session
    saturation: Saturation
    frozen: Frozen


def saturate(roots: Roots) -> Saturated:
    """In an engine of its own."""
    return _saturated(Session(roots))


def _saturated(session: Session) -> Saturated:
    saturation = session.saturate()
    loads = [node for node in subterms(*session.roots) if node.head == "Load"]
    return Saturated(session, saturation, read(session.engine, loads))


@contextmanager
def kept(roots: Roots) -> Iterator[Saturated]:
    """For a while, the e-graph of some outputs, saturated now or when this thread last had it.

    What is asked of it meanwhile is taken back. An engine belongs to the thread that made it, and
    to one caller at a time. It is kept after a refusal, but after no other error.
    """
    engines = _LOCAL.engines
    engine = engines.take(_laws_of_now(), roots)
    try:
        found = engine.saturated(roots)
        with found.session.restored():
            yield found
    except EgraphFlashError:
        engines.put_back(engine)
        raise
    except BaseException:
        engine.close()
        raise
    engines.put_back(engine)


class _Engine:
    """An engine that has read the laws, and in it one saturated e-graph at a time."""

    def __init__(self, laws: tuple[Any, ...]) -> None:
        self.laws = laws
        self.session = Session.of_laws()
        self.held: Saturated | None = None

    def holds(self, roots: Roots) -> bool:
        """Whether it is about just these outputs; `==` of expressions is one more expression."""
        own = () if self.held is None else self.held.session.roots
        return len(own) == len(roots) and all(map(operator.is_, own, roots))

    def saturated(self, roots: Roots) -> Saturated:
        """The e-graph of these outputs, in place of the one of others."""
        if self.held is not None and self.holds(roots):
            return replace(self.held, saturation=replace(self.held.saturation, seconds=0.0))
        if self.held is not None:
            self.held = None
            self.session.pop()
        self.session.push()
        self.held = _saturated(self.session.beside(*roots))
        return self.held

    def close(self) -> None:
        self.session.close()
        if self.held is not None:
            self.held.session.close()


class _Engines:
    """Those of one thread that are not in use, the one used last at the end."""

    def __init__(self) -> None:
        self.idle: list[_Engine] = []

    def take(self, laws: tuple[Any, ...], roots: Roots) -> _Engine:
        """One that holds these outputs, else a new one, else the one that is unused longest."""
        fit = [engine for engine in self.idle if engine.laws == laws]
        found = next((engine for engine in fit if engine.holds(roots)), None)
        if found is None and fit and len(self.idle) >= KEPT:
            found = fit[0]
        if found is None:
            return _Engine(laws)
        self.idle.remove(found)
        return found

    def put_back(self, engine: _Engine) -> None:
        self.idle.append(engine)
        while len(self.idle) > KEPT:
            self.idle.pop(0).close()

    def __del__(self) -> None:
        """At the end of the thread, and in it: a refusal's frames may hold engines for longer."""
        for engine in self.idle:
            engine.close()


class _Local(threading.local):
    def __init__(self) -> None:
        self.engines = _Engines()


_LOCAL = _Local()


def _laws_of_now() -> tuple[Any, ...]:
    """All that an engine reads, and the monoids: one that is registered anew is another term."""
    return (*map(make, MONOIDS), *program_parts())
