"""In which order the blocks of a fold are worked on: groups of blocks, slots, and the skew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..axes import Axis
from ..choices import Choices, Staging
from ..errors import ScheduleError
from ..skipping import Extent
from ..terms import rewrite, subterms, variable
from .tile import (
    Acquire,
    Ahead,
    Block,
    Contract,
    InnerFold,
    LaneFold,
    Loop,
    Map,
    Op,
    Pipe,
    Rebase,
    Release,
    RowFold,
    Slab,
    Sweep,
    read_by,
)

Pairs = tuple[tuple[Any, Any], ...]


def pipelined(
    axis: Axis,
    block: int,
    ops: Sequence[Op],
    carried: Pairs,
    state: Sequence[Any],
    choices: Choices,
    tiles: Sequence[Any] = (),
) -> Loop:
    """The loop that runs `ops` for each block of the axis.

    `carried` pairs each tile of the state with the one that replaces it; `state` are all tiles
    that one block hands to the next, `tiles` the loads that may be staged beside operands. Raises
    ScheduleError where a skew has nothing to move.
    """
    order = _Order(axis, block, choices, streamed(ops, axis, choices, tiles))
    if choices.skew == "off" or not axis.size:
        return order.plain(tuple(ops), carried)
    early, late = split(ops, state)
    return order.skewed(early, late, carried)


def swept(
    axis: Axis,
    block: int,
    ops: Sequence[Op],
    plain: Sequence[Op],
    carried: Pairs,
    state: Sequence[Any],
    choices: Choices,
    extent: Extent,
    tiles: Sequence[Any] = (),
) -> Sweep:
    """The same over that part of the axis which a tile needs; `plain` are the operations where
    what `extent` assumes holds."""
    order = _Order(axis, block, choices, streamed(ops, axis, choices, tiles))
    if choices.skew == "off":
        return order.sweep(extent, tuple(ops), tuple(plain), carried)
    return order.skewed_sweep(extent, split(ops, state), split(plain, state), carried)


def streamed(
    ops: Sequence[Op], axis: Axis, choices: Choices, tiles: Sequence[Any]
) -> dict[Any, Staging]:
    """What is staged: operands of contractions that are plain loads along the axis, and tiles."""
    operands = [
        side
        for op in ops
        if isinstance(op, Contract)
        for side in (op.contraction.left, op.contraction.right)
        if side.head == "Load" and axis in side.axes
    ]
    found = {load: choices.staging(str(load.args[0].args[0])) for load in (*operands, *tiles)}
    return {load: staging for load, staging in found.items() if staging.depth}


def split(ops: Sequence[Op], state: Sequence[Any]) -> tuple[list[Op], list[Op]]:
    """The operations that do not depend on the state, and the others."""
    tainted = set(state)
    early: list[Op] = []
    late: list[Op] = []
    for op in ops:
        if isinstance(op, Rebase):
            late.append(op)
            tainted |= {op.base, *(tile for tile, _, _ in op.moved)}
        elif read_by(op) & tainted:
            late.append(op)
            tainted |= {op.into} if hasattr(op, "into") else set()
        elif isinstance(op, Contract | InnerFold | Map | RowFold | LaneFold):
            early.append(op)
    if not any(isinstance(op, Contract | InnerFold) for op in early):
        raise ScheduleError(
            "SKEW=on: every part of the body that costs something depends on the carried state; "
            "the nearest legal value is off"
        )
    return early, late


class _Order:
    def __init__(
        self, axis: Axis, block: int, choices: Choices, staged: dict[Any, Staging]
    ) -> None:
        self.axis, self.block, self.staged, self.skew = axis, block, staged, choices.skew
        self.full, rest = divmod(axis.size, block)
        self.count = self.full + bool(rest)
        steps = {staging.steps for staging in staged.values()}
        if len(steps) > 1:
            raise ScheduleError(
                f"STAGE: got slots of {' and '.join(map(str, sorted(steps)))} blocks for operands "
                "of one loop; wants the same for all of them"
            )
        self.stride = steps.pop() if steps else 1

    def plain(self, ops: tuple[Op, ...], carried: Pairs) -> Loop:
        """Each block from beginning to end."""
        pipes = self.pipes(dict.fromkeys(self.staged, 0))
        block = Block(0, 0, ops, carried)
        return self.loop(pipes, (), block, self.full)

    def skewed(self, early: list[Op], late: list[Op], carried: Pairs) -> Loop:
        """What is early, one block ahead: its results are carried to the next round."""
        leads = self.leads(early, late)
        first, block, last = self.skew_blocks(early, late, carried, leads)
        pipes = self.pipes(leads)
        first = replace(first, masked=self.full == 0)
        return self.loop(pipes, (first,), block, max(self.full - 1, 0), last)

    def leads(self, early: list[Op], late: list[Op]) -> dict[Any, int]:
        """How many blocks each staged operand is ahead of the others of its slot."""
        leads = {load: int(_reads(early, load)) for load in self.staged}
        both = [load for load, lead in leads.items() if lead and _reads(late, load)]
        if both:
            raise ScheduleError(f"SKEW=on: the staged operand {both[0]} is read early and late")
        return leads

    def skew_blocks(
        self, early: list[Op], late: list[Op], carried: Pairs, leads: dict[Any, int]
    ) -> tuple[Block, Block, Block]:
        """What runs before the first block, what each block is, and what the last one is."""
        made = [op.into for op in early if hasattr(op, "into")]
        kept = [tile for tile in made if any(tile in read_by(op) for op in late)]
        renamed = {tile: variable("Expr", f"{tile.args[0]}_next") for tile in made}
        ahead = Ahead(tuple(_renamed(op, renamed) for op in early))
        place = max((i + 1 for i, op in enumerate(late) if isinstance(op, Rebase)), default=0)
        place = len(late) if self.skew == "last" else place
        pairs = (*carried, *((tile, renamed[tile]) for tile in kept))
        block = Block(0, 0, (*late[:place], ahead, *late[place:]), pairs)
        step = None if any(leads.values()) else 0
        return Block(0, step, tuple(early)), block, replace(block, ops=tuple(late), carried=carried)

    # ---- sweeps ----------------------------------------------------------------------------------

    def sweep(
        self, extent: Extent, ops: tuple[Op, ...], plain: tuple[Op, ...], carried: Pairs
    ) -> Sweep:
        pipes = self.pipes(dict.fromkeys(self.staged, 0))
        masked = self.group(pipes, Block(0, 0, ops, carried, True, True))
        return self.swept(extent, pipes, (), masked, self.group(pipes, Block(0, 0, plain, carried)))

    def skewed_sweep(
        self,
        extent: Extent,
        masked: tuple[list[Op], list[Op]],
        plain: tuple[list[Op], list[Op]],
        carried: Pairs,
    ) -> Sweep:
        leads = self.leads(*masked)
        pipes = self.pipes(leads)
        first, block, last = (
            replace(each, masked=True, masked_ahead=True)
            for each in self.skew_blocks(*masked, carried, leads)
        )
        _, fast, _ = self.skew_blocks(*plain, carried, leads)
        both, fewer = (self.group(pipes, each) for each in (block, fast))
        end = self.group(pipes, block, last)
        return self.swept(extent, pipes, (first,), both, fewer, end)

    def swept(
        self,
        extent: Extent,
        pipes: tuple[Pipe, ...],
        before: tuple[Op, ...],
        masked: tuple[Op, ...],
        plain: tuple[Op, ...],
        last: tuple[Op, ...] = (),
    ) -> Sweep:
        ends = (extent.live, extent.full, extent.bound, extent.scan)
        return Sweep(self.axis, self.block, self.stride, pipes, *ends, before, masked, plain, last)

    def group(self, pipes: tuple[Pipe, ...], block: Block, last: Block | None = None) -> Any:
        """A group of blocks alike, from one slot; its last block may be another."""
        blocks = [replace(block, at=step, step=step) for step in range(self.stride)]
        if last is not None:
            blocks[-1] = replace(last, at=self.stride - 1, step=self.stride - 1)
        acquired = (Acquire(pipe, None) for pipe in pipes)
        return (*acquired, *blocks, *(Release(pipe, None) for pipe in pipes))

    def pipes(self, leads: dict[Any, int]) -> tuple[Pipe, ...]:
        """Operands of equal staging come together."""
        groups = -(-self.count // self.stride)
        return tuple(
            Pipe(
                tuple(
                    Slab(load, leads[load]) for load, mine in self.staged.items() if mine == each
                ),
                each,
                groups,
            )
            for each in dict.fromkeys(self.staged.values())
        )

    def loop(
        self,
        pipes: tuple[Pipe, ...],
        before: tuple[Op, ...],
        block: Block,
        regular: int,
        last: Block | None = None,
    ) -> Loop:
        """`regular` blocks alike, as many as fill whole groups of them in a loop, then the rest.

        `last` is what the last block of all is, where it differs.
        """
        rounds = regular // self.stride
        rounds = rounds if rounds > 1 else 0  # a loop of one round is none
        body = self.group(pipes, block)
        after = tuple(self.remaining(pipes, rounds, block, last))
        return Loop(
            self.axis, self.block, self.stride, rounds, pipes, before, body if rounds else (), after
        )

    def remaining(
        self, pipes: tuple[Pipe, ...], rounds: int, block: Block, last: Block | None
    ) -> Iterator[Op]:
        for group in range(rounds, -(-self.count // self.stride)):
            yield from (Acquire(pipe, group) for pipe in pipes)
            first = group * self.stride
            for at in range(first, min(first + self.stride, self.count)):
                kind = last if last is not None and at == self.count - 1 else block
                yield replace(
                    kind,
                    at=at,
                    step=at - first,
                    masked=at >= self.full,
                    masked_ahead=at + 1 >= self.full,
                )
            yield from (Release(pipe, group) for pipe in pipes)


def _reads(ops: Sequence[Op], load: Any) -> bool:
    return any(
        load in (op.contraction.left, op.contraction.right)
        if isinstance(op, Contract)
        else isinstance(op, Map) and any(node is load for node in subterms(op.expr))
        for op in ops
    )


def _renamed(op: Any, names: dict[Any, Any]) -> Any:
    """The operation with its tiles under other names."""
    changed: dict[str, Any] = {"into": names[op.into]}
    for name in ("tile", "part", "start", "handoff"):
        if getattr(op, name, None) is not None:
            changed[name] = names.get(getattr(op, name), getattr(op, name))
    for name in ("expr", "red"):
        if getattr(op, name, None) is not None:
            changed[name] = rewrite(getattr(op, name), names)
    return replace(op, **changed)
