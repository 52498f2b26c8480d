"""The knob codec: what is printed parses back, and what does not parse says what would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egraph_flash import optimize
from egraph_flash.choices import Drain, Exponential, Reduce, Registers, Staging
from egraph_flash.codegen.atoms import ATOMS
from egraph_flash.errors import ScheduleError
from egraph_flash.knobs import KNOBS, Place, Tile, knob_of, read_schedule, spell
from tests.support.forms import FORMS, attention, pins

COUNTS = st.integers(1, 64)
TILES = st.builds(Tile, st.sampled_from(sorted(ATOMS)), COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
VALUES = {
    "TILE": TILES,
    "REGS": st.builds(Registers, st.integers(32, 255), st.integers(1, 32)),
    "PLACE": st.builds(Place, st.sampled_from(["fuse", "cut"])),
    "STAGE": st.one_of(
        st.just(Staging()),
        st.builds(Staging, st.just(1), st.integers(1, 8), st.sampled_from(["sync", "cp", "tma"])),
        st.builds(
            Staging,
            st.integers(2, 8),
            st.integers(1, 8),
            st.sampled_from(["sync", "cp", "tma"]),
            st.just(True),
        ),
    ),
    "REDUCE": st.one_of(
        st.builds(Reduce, st.integers(1, 512), st.just(0), st.booleans()),
        st.builds(Reduce, st.just(1), st.integers(1, 1 << 20), st.booleans()),
    ),
    "DRAIN": st.builds(Drain, st.sampled_from([2, 4]), st.integers(0, 1)),
    "EXP": st.one_of(
        st.builds(Exponential, st.sampled_from(["ex2", "fold", "accurate"])),
        st.builds(Exponential, st.just("poly"), st.integers(1, 8)),
    ),
    **{
        name: st.sampled_from(list(row.values))
        for name, row in KNOBS.items()
        if row.values is not None
    },
}


def test_every_knob_has_values_here() -> None:
    assert set(VALUES) == set(KNOBS)


@given(st.data())
@pytest.mark.parametrize("name", sorted(KNOBS))
def test_printed_values_parse_back(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    assert KNOBS[name].parse(str(value)) == value
    assert read_schedule(f"{name}={value}") == {name: value}


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_field_says_what_it_moves(name: str) -> None:
    row = KNOBS[name]
    assert row.source
    assert row.fields
    assert set(row.fields.values()) <= {"movement", "bracket"}


@pytest.mark.parametrize("form", FORMS)
def test_a_kernels_schedule_pins_itself(form: str) -> None:
    """Parse, print and pin: each gives the same schedule, and the pinned kernel the same PTX."""
    from egraph_flash import f16

    expr = attention(1, 2, 40, 100, 32)
    kernel = optimize(expr, "sm_120", pins(form, 32, 32, f16))
    printed = str(kernel.schedule)
    assert spell(read_schedule(printed)) == dict(kernel.schedule)
    again = optimize(expr, "sm_120", kernel.schedule)
    assert str(again.schedule) == printed
    assert again.ptx == kernel.ptx


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("TILE", "a:fma_f32/w4/f1x8/k4", "a:<atom>/w<row warps>x<column warps>"),
        ("TILE", "a:fma_f32/w0x1/f1x8/k4", "a:<atom>"),
        ("REGS", "r31/b1", "32 <= max <= 255"),
        ("PLACE", "fold=split", "fold=fuse or fold=cut"),
        ("STAGE", "d2/cp", "d<slots>[x<blocks a slot>]"),
        ("STAGE", "d1/cp/ring", "d<slots>[x<blocks a slot>]"),
        ("STAGE", "d9/tma/ring", "2 to 8 slots"),
        ("SLAB", "pad32", "pad16"),
        ("DRAIN", "x1", "x2, x4"),
        ("EXP", "poly9", "poly<n> with 1 <= n <= 8"),
        ("BASE", "mean", "lazy"),
    ],
)
def test_malformed_values_are_refused(name: str, value: str, wanted: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        KNOBS[name].parse(value)
    assert value in str(refused.value)
    assert wanted in str(refused.value)


def test_unknown_knobs_are_refused() -> None:
    with pytest.raises(
        ScheduleError, match=r"pin COLOUR@n: no such knob; wants one of PLACE, TILE"
    ):
        knob_of("COLOUR@n")
    with pytest.raises(ScheduleError, match="wants NAME=value"):
        read_schedule("nothing")
