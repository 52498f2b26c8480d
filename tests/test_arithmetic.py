"""Is the arithmetic the hardware's, bit for bit: against exact rationals, one value at a time."""

from __future__ import annotations

from fractions import Fraction
from importlib import resources

import numpy as np
import pytest

from egraph_flash import arithmetic
from egraph_flash.dtypes import bf16
from tests.support import exact
from tests.support.fresh import fresh_rng, wide_f32, wide_half

Array = np.ndarray


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def bits(values: Array) -> list[int]:
    return [int(each) for each in np.asarray(values, np.float32).reshape(-1).view(np.uint32)]


def fma(a: Array, b: Array, c: Array) -> Array:
    with np.errstate(all="ignore"):
        return arithmetic.fma_f32(a, b, c)


def test_fma_is_rounded_once_on_any_bits() -> None:
    a, b, c = (wide_f32(fresh_rng(), 1500) for _ in range(3))
    wanted = [exact.fma_bits(*each) for each in zip(a, b, c, strict=True)]
    assert bits(fma(a, b, c)) == wanted


def test_fma_is_rounded_once_near_halfway_and_subnormal() -> None:
    """Sums whose double lies halfway between two singles, and results below 2^-126."""
    rng = fresh_rng()
    a = (1 + rng.integers(0, 1 << 12, 1500) * 2.0**-12).astype(np.float32)
    b = (1 + rng.integers(0, 1 << 12, 1500) * 2.0**-12).astype(np.float32)
    tiny = rng.choice([0.0, 2.0**-60, -(2.0**-60), 2.0**-100], 1500).astype(np.float32)
    scale = rng.choice(f32(1, 2.0**-63, 2.0**-70, 2.0**-74), 1500)
    for c in (tiny, (rng.integers(-8, 8, 1500) * 2.0**-24).astype(np.float32) * scale * scale):
        x, y = a * scale, b * scale
        wanted = [exact.fma_bits(*each) for each in zip(x, y, c, strict=True)]
        assert bits(fma(x, y, c)) == wanted


def test_fma_is_rounded_once_just_beside_subnormal_halfway_points() -> None:
    """c + 2^-150·(1 − 4^-k): a double rounds it to the middle of two subnormal singles."""
    rng = fresh_rng()
    k = rng.integers(15, 21, 400)
    sign = rng.choice([-1.0, 1.0], 400)
    a = (sign * (1 + 2.0**-k) * 2.0**-75).astype(np.float32)
    b = ((1 - 2.0**-k) * 2.0**-75).astype(np.float32)
    c = (rng.integers(1 << 21, 1 << 22, 400) * 2.0**-149).astype(np.float32)
    wanted = [exact.fma_bits(*each) for each in zip(a, b, c, strict=True)]
    assert bits(fma(a, b, c)) == wanted


def test_fma_double_rounding_really_occurs_in_these_inputs() -> None:
    """The known trap: rounding through double alone gets this one wrong."""
    a, c = 1 + 2.0**-12, 2.0**-80
    right = exact.fma_bits(a, a, c)
    assert bits(fma(f32(a), f32(a), f32(c))) == [right]
    assert bits(f32(a * a + c)) != [right]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_plain_operations_are_ieee_with_the_canonical_nan(name: str) -> None:
    rng = fresh_rng()
    a, b = wide_f32(rng, 800), wide_f32(rng, 800)
    with np.errstate(all="ignore"):
        got = getattr(arithmetic, f"{name}_f32")(a, b)
    for x, y, found in zip(a, b, bits(got), strict=True):
        with np.errstate(all="ignore"):
            plain = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}[name]
        if np.isnan(plain):
            assert found == exact.NAN_BITS
        elif np.isfinite(x) and np.isfinite(y) and y != 0:
            p, q = exact.fraction(x), exact.fraction(y)
            value = {"add": p + q, "sub": p - q, "mul": p * q, "div": p / q}[name]
            assert found == exact.f32_bits(value, int(np.signbit(plain)))


def test_sqrt_is_correctly_rounded() -> None:
    a = np.abs(wide_f32(fresh_rng(), 500))
    with np.errstate(all="ignore"):
        got = arithmetic.sqrt_f32(a)
    for x, root in zip(a, got, strict=True):
        if not np.isfinite(x) or x == 0:
            continue
        below, above = (exact.fraction(np.nextafter(root, np.float32(t))) for t in (0, np.inf))
        middle = exact.fraction(root)
        low, high = (below + middle) / 2, (above + middle) / 2
        assert low**2 <= exact.fraction(x) <= high**2


@pytest.mark.parametrize("name", ["max", "min", "max_nan", "min_nan"])
def test_max_and_min_order_zeros_and_treat_nan_as_ptx_says(name: str) -> None:
    rng = fresh_rng()
    a, b = wide_f32(rng, 2000), wide_f32(rng, 2000)
    b[:400] = np.where(rng.random(400) < 0.5, -a[:400], a[:400])
    with np.errstate(all="ignore"):
        got = bits(getattr(arithmetic, f"{name}_f32")(a, b))
    for x, y, found in zip(a, b, got, strict=True):
        nans = int(np.isnan(x)) + int(np.isnan(y))
        if nans == 2 or (nans and "nan" in name):
            assert found == exact.NAN_BITS
        elif nans:
            assert found == bits(y if np.isnan(x) else x)[0]
        else:
            ordered = sorted((x, y), key=lambda v: (float(v), not np.signbit(v)))
            assert found == bits(ordered[-1 if name.startswith("max") else 0])[0]


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_narrowing_rounds_to_nearest_even(type: str) -> None:
    rng = fresh_rng()
    a = wide_f32(rng, 3000)
    near = (rng.normal(size=3000) * 2.0 ** rng.integers(-27, 17, 3000)).astype(np.float32)
    ties = (rng.integers(0, 1 << 9, 500) * 2.0**-8 + 2.0**-9 + 1).astype(np.float32)
    a = np.concatenate([a, near, ties])
    with np.errstate(all="ignore"):
        if type == "f16":
            got = arithmetic.f32_to_f16(a).view(np.uint16)
        else:
            got = arithmetic.f32_to_bf16(a)
    assert got.dtype == np.uint16
    mantissa, exponent_bits = (10, 5) if type == "f16" else (7, 8)
    for x, found in zip(a, got, strict=True):
        if np.isnan(x):
            assert found == 0x7FFF
        elif np.isinf(x):
            infinity = ((1 << exponent_bits) - 1) << mantissa
            assert found == infinity | (0x8000 if x < 0 else 0)
        else:
            wanted = exact.round_bits(
                exact.fraction(x), mantissa, exponent_bits, int(np.signbit(x))
            )
            assert found == wanted


def test_widening_is_exact_for_every_half() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        wide = arithmetic.f16_to_f32(every.view(np.float16))
        brain = arithmetic.bf16_to_f32(every)
        finite = np.isfinite(every.view(np.float16).astype(np.float32))
    assert wide.dtype == brain.dtype == np.float32
    assert (wide[finite].astype(np.float16).view(np.uint16) == every[finite]).all()
    assert (brain.view(np.uint32) >> 16 == every).all()  # payloads of NaN too


@pytest.mark.parametrize("fraction_bits", [25, 24])
@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_tensor_core_dot_follows_the_integer_rule(type: str, fraction_bits: int) -> None:
    rng = fresh_rng()
    shape = (12, 4, 3, 16)
    a, b = wide_half(rng, shape, type), wide_half(rng, (12, 4, 16, 3), type)
    c = wide_f32(rng, (12, 4, 3, 3))
    c = np.where(np.isfinite(c), c, np.float32(0))
    c[: len(c) // 2] = (rng.normal(size=c[: len(c) // 2].shape)).astype(np.float32)
    if type == "f16":
        near = rng.normal(size=shape).astype(np.float16)
        a[::3] = near[::3]
    zero_by_large(rng, a[2::4], b[2::4], type)
    with np.errstate(all="ignore"):
        got = arithmetic.tensor_core_dot(a, b, c, fraction_bits)
    assert got.dtype == np.float32
    for place in np.ndindex(got.shape):
        batch, m, n = place[:2], place[2], place[3]
        row = [int(each) for each in a[(*batch, m)].view(np.uint16)]
        column = [
            int(each) for each in np.ascontiguousarray(b[(*batch, slice(None), n)]).view(np.uint16)
        ]
        accumulator = int(c[place].view(np.uint32))
        wanted = exact.tensor_core_bits(row, column, accumulator, type, fraction_bits)
        assert int(got[place].view(np.uint32)) == wanted, (place, row, column, accumulator)


def test_tensor_core_dot_at_the_edge_of_overflow() -> None:
    """Below 2^128 it rounds towards zero, to the largest number; from there on it is infinite."""
    a, b = np.zeros((1, 16), np.uint16), np.zeros((16, 1), np.uint16)
    a[0, 0] = bf16.encode(np.array(2.0**60))
    c = np.full((1, 1), np.finfo(np.float32).max, np.float32)
    for exponent, wanted in ((43, 0x7F7FFFFF), (44, 0x7F800000), (67, 0x7F800000)):
        b[0, 0] = bf16.encode(np.array(2.0**exponent))
        with np.errstate(all="ignore"):
            got = arithmetic.tensor_core_dot(a, b, c)
        assert bits(got) == [wanted]
        row, column = ([int(each) for each in x.ravel()] for x in (a, b))
        assert exact.tensor_core_bits(row, column, bits(c)[0], "bf16", 25) == wanted


def zero_by_large(rng: np.random.Generator, a: Array, b: Array, type: str) -> None:
    """Every other product is zero times a large number, which must not raise the exponent."""
    small, large = (2.0**-8, 2.0**15) if type == "f16" else (2.0**-40, 2.0**100)
    for values, odd in ((a, 0.0), (np.swapaxes(b, -1, -2), large)):
        drawn = np.asarray(rng.normal(size=values.shape) * small)
        drawn[..., 1::2] = odd
        narrow = drawn.astype(np.float16) if type == "f16" else bf16.encode(drawn)
        values[...] = narrow


def test_tensor_core_dot_with_infinities_and_nan() -> None:
    a, b = np.ones((1, 16), np.float16), np.ones((16, 1), np.float16)
    c = np.zeros((1, 1), np.float32)
    inf, nan = np.float16(np.inf), np.float16(np.nan)

    def one(x: np.float16, y: np.float16, z: float = 0.0) -> int:
        a[0, 3], a[0, 4] = x, y
        with np.errstate(all="ignore"):
            return bits(arithmetic.tensor_core_dot(a, b, c + np.float32(z)))[0]

    assert one(inf, np.float16(1)) == 0x7F800000
    assert one(-inf, np.float16(1)) == 0xFF800000
    assert one(inf, -inf) == exact.NAN_BITS
    assert one(nan, np.float16(1)) == exact.NAN_BITS
    assert one(np.float16(1), np.float16(1), np.inf) == 0x7F800000
    b[3] = 0
    assert one(inf, np.float16(1)) == exact.NAN_BITS


def tables() -> dict[str, Array]:
    path = resources.files("egraph_flash") / "data" / "sm90_mufu_tables.npz"
    with path.open("rb") as file, np.load(file) as held:
        return {
            name: np.concatenate([[0], held[f"{name}_d"].astype(np.int64)]).cumsum()
            + int(held[f"{name}_t0"])
            for name in ("ex2", "rcp", "rsqrt12", "rsqrt24")
        }


def test_ex2_follows_the_measured_rule() -> None:
    """As measured: fixed point, one's complement below zero, a table, a shift."""
    rng = fresh_rng()
    table = tables()["ex2"]
    x = np.concatenate(
        [
            wide_f32(rng, 2000),
            rng.uniform(-160, 140, 4000).astype(np.float32),
            np.arange(-160, 140, dtype=np.float32),
            (rng.integers(-1000, 1000, 500) * 2.0**-23).astype(np.float32),
        ]
    )
    with np.errstate(all="ignore"):
        got = bits(arithmetic.ex2_approx_ftz(x))
    for value, found in zip(x, got, strict=True):
        if np.isnan(value):
            assert found == exact.NAN_BITS
            continue
        if value >= 128 or value <= -200:
            assert found == (0x7F800000 if value > 0 else 0)
            continue
        t = int(abs(Fraction(float(value))) * 2**23)
        fixed = t if value >= 0 else (-t if t % 2**23 == 0 else -t - 1)
        mantissa = int(table[fixed % 2**23])
        result = Fraction(float(np.uint32(mantissa).view(np.float32)))
        result *= Fraction(2) ** (fixed // 2**23 - 1)
        assert found == (exact.f32_bits(result) if result >= Fraction(2) ** -126 else 0), value


def test_ex2_of_special_values() -> None:
    x = f32(-np.inf, np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, -126.0, -127.0, -149.0)
    with np.errstate(all="ignore"):
        got = arithmetic.ex2_approx_ftz(x)
    assert got.tolist() == [0.0, np.inf, 1.0, 1.0, 1.0, 1.0, 2.0, 0.5, 2.0**-126, 0.0, 0.0]


def test_mufu_functions_are_near_the_true_ones() -> None:
    """Within 2 ulp of the real function where the result is normal: scaling goes right."""
    rng = fresh_rng()
    with np.errstate(all="ignore"):
        x = rng.uniform(-125, 127, 20000).astype(np.float32)
        check_ulp(arithmetic.ex2_approx_ftz(x), np.exp2(x.astype(np.float64)), 2.2)
        y = (rng.uniform(1, 2, 20000) * 2.0 ** rng.integers(-120, 120, 20000)).astype(np.float32)
        y *= rng.choice(f32(-1, 1), y.size)
        check_ulp(arithmetic.rcp_approx_ftz(y), 1 / y.astype(np.float64), 1.0)
        z = np.abs(y)
        check_ulp(arithmetic.rsqrt_approx_ftz(z), 1 / np.sqrt(z.astype(np.float64)), 2.0)


def check_ulp(got: Array, wanted: Array, most: float) -> None:
    ulp = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    assert (np.abs(got.astype(np.float64) - wanted) <= most * ulp).all()


def test_rcp_and_rsqrt_of_special_values() -> None:
    x = f32(0.0, -0.0, 1e-40, -1e-40, np.inf, -np.inf, 1.0, -2.0, 2.0**127)
    with np.errstate(all="ignore"):
        rcp = arithmetic.rcp_approx_ftz(x)
        rsqrt = arithmetic.rsqrt_approx_ftz(x)
    inf = np.inf
    wanted = f32(inf, -inf, inf, -inf, 0.0, -0.0, 1.0, -0.5, 0.0)
    assert bits(rcp) == bits(wanted)
    assert bits(rsqrt[:5]) == bits(f32(inf, -inf, inf, -inf, 0.0))
    assert bits(rsqrt[[5, 7]]) == [exact.NAN_BITS] * 2
    assert rsqrt[6] == 1.0
