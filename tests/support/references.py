"""What each instruction should give, written from the PTX manual in plain Python integers.

A reference takes one thread's words by operand name and returns its output words by name. Rows
that look across lanes take whole warps: lists of 32 such threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from egraph_flash.codegen.isa import Instr
from tests.support import exact

Words = dict[str, list[int]]
Reference = Callable[[Words], Words]
WarpReference = Callable[[list[Words]], list[Words]]
SPELLED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def as_float(word: int) -> float:
    return float(np.uint32(word).view(np.float32))


def float_word(value: float) -> int:
    """A number that is an f32 already, as bits; a NaN is the canonical one."""
    return exact.NAN_BITS if math.isnan(value) else int(np.float32(value).view(np.uint32))


def compare(name: str, a: float, b: float) -> bool:
    less, equal = a < b, a == b
    return {
        "lt": less, "le": less or equal, "eq": equal,
        "gt": b < a, "ge": b < a or equal, "ne": less or b < a,
    }[name]  # fmt: skip


def typed(word: int, kind: str) -> int:
    """An integer word as a number of its type."""
    bits = int(kind[1:])
    return signed(word, bits) if kind[0] == "s" else word


def integer(row: Instr) -> Reference:
    """add, sub, mul, mad, div, rem, min, max, neg, abs of an integer type."""
    name, *parts = row.mnemonic.split(".")
    kind = parts[-1]
    bits = int(kind[1:])

    def reference(words: Words) -> Words:
        a, b, c = (words.get(each, [0])[0] for each in "abc")
        a, b = typed(a, kind), typed(b, kind)
        if "wide" in parts:
            wide = signed(c, 64) if kind[0] == "s" else c
            return {"d": [(a * b + (wide if name == "mad" else 0)) % 2**64]}
        quotient = abs(a) // abs(b or 1) * (1 if (a < 0) == (b < 0) else -1)
        product = a * b >> bits if "hi" in parts else a * b
        value = {
            "add": a + b, "sub": a - b, "mul": product, "mad": a * b + c, "div": quotient,
            "rem": a - b * quotient, "min": min(a, b), "max": max(a, b), "neg": -a, "abs": abs(a),
        }[name]  # fmt: skip
        return {"d": [value % 2**bits]}

    return reference


def logic(row: Instr) -> Reference:
    """and, or, xor, not, shl, shr."""
    name, kind = row.mnemonic.split(".")
    bits = 1 if kind == "pred" else int(kind[1:])

    def reference(words: Words) -> Words:
        a, b = words["a"][0], words.get("b", [0])[0]
        if name == "shr":
            return {"d": [(typed(a, kind) >> min(b, bits)) % 2**bits]}
        value = {
            "and": a & b, "or": a | b, "xor": a ^ b, "not": ~a, "shl": a << min(b, bits),
        }[name]  # fmt: skip
        return {"d": [value % 2**bits]}

    return reference


def setp(row: Instr) -> Reference:
    _, name, kind = row.mnemonic.split(".")

    def reference(words: Words) -> Words:
        a, b = words["a"][0], words["b"][0]
        if kind != "f32":
            return {"d": [int(compare(name, typed(a, kind), typed(b, kind)))]}
        x, y = as_float(a), as_float(b)
        nan = math.isnan(x) or math.isnan(y)
        if name in ("num", "nan"):
            return {"d": [int(nan == (name == "nan"))]}
        if nan:
            return {"d": [int(name.endswith("u"))]}
        return {"d": [int(compare(name.removesuffix("u"), x, y))]}

    return reference


def float_operation(row: Instr) -> Reference:
    """add, sub, mul, fma, div, sqrt, rcp in `.rn`, neg, abs, max, min, ex2 and friends."""
    name = row.mnemonic.split(".")[0]

    def reference(words: Words) -> Words:
        a, b, c = (as_float(words.get(each, [0])[0]) for each in "abc")
        if name in ("max", "min"):
            return {"d": [_extremum(name, "NaN" in row.mnemonic, a, b)]}
        if name in ("neg", "abs"):
            return {"d": [float_word(-a if name == "neg" else abs(a))]}
        if name == "fma":
            return {"d": [exact.fma_bits(a, b, c)]}
        return {"d": [_rounded(name, a, b)]}

    return reference


def _extremum(name: str, nan_wins: bool, a: float, b: float) -> int:
    nans = [math.isnan(each) for each in (a, b)]
    if all(nans) or (any(nans) and nan_wins):
        return exact.NAN_BITS
    if any(nans):
        return float_word(b if nans[0] else a)
    ordered = sorted((a, b), key=lambda each: (each, math.copysign(1, each)))
    return float_word(ordered[-1 if name == "max" else 0])


def _rounded(name: str, a: float, b: float) -> int:
    with np.errstate(all="ignore"):
        x, y = np.float64(a), np.float64(b)
        near = {
            "add": x + y, "sub": x - y, "mul": x * y, "div": x / y, "rcp": 1 / x,
            "sqrt": np.sqrt(x),
        }[name]  # fmt: skip
    if not np.isfinite(near) or near == 0 or name == "sqrt":
        with np.errstate(all="ignore"):
            return float_word(float(np.float32(near)))  # f64 sqrt rounds once more harmlessly
    p, q = exact.fraction(a), exact.fraction(b)
    exactly: dict[str, Callable[[], Fraction]] = {
        "add": lambda: p + q, "sub": lambda: p - q, "mul": lambda: p * q,
        "div": lambda: p / q, "rcp": lambda: 1 / p,
    }  # fmt: skip
    value = exactly[name]()
    return exact.f32_bits(value, int(near < 0))


def convert(row: Instr) -> Reference:
    """cvt between integers, to and from f32, f16 and bf16."""
    *how, d, a = row.mnemonic.split(".")[1:]

    def reference(words: Words) -> Words:
        x = words["a"][0]
        if d in ("f16x2", "bf16x2"):
            upper, lower = (_narrow(words[each][0], d[:-2]) for each in "ab")
            return {"d": [upper << 16 | lower]}
        if d in ("f16", "bf16"):
            return {"d": [_narrow(x, d)]}
        if a in ("f16", "bf16"):
            return {"d": [_widen(x, a)]}
        if a == "f32":
            return {"d": [_to_integer(how[0], d, as_float(x))]}
        value = typed(x, a)
        if d == "f32":
            return {"d": [exact.f32_bits(Fraction(value))]}
        return {"d": [value % 2 ** int(d[1:])]}

    return reference


def _narrow(word: int, kind: str) -> int:
    value = as_float(word)
    mantissa, exponent_bits = (10, 5) if kind == "f16" else (7, 8)
    if math.isnan(value):
        return 0x7FFF
    if math.isinf(value):
        return ((1 << exponent_bits) - 1) << mantissa | (0x8000 if value < 0 else 0)
    return exact.round_bits(exact.fraction(value), mantissa, exponent_bits, word >> 31)


def halves(row: Instr) -> Reference:
    """A product in each 16-bit half."""
    kind = row.mnemonic.rsplit(".", 1)[1][:-2]
    mantissa, exponent_bits = (10, 5) if kind == "f16" else (7, 8)

    def product(one: int, other: int) -> int:
        x, y = (as_float(_widen(half, kind)) for half in (one, other))
        near = x * y
        if not math.isfinite(near):
            return _narrow(float_word(near), kind)
        exactly = exact.fraction(x) * exact.fraction(y)
        return exact.round_bits(exactly, mantissa, exponent_bits, (one ^ other) >> 15)

    def reference(words: Words) -> Words:
        a, b = words["a"][0], words["b"][0]
        upper, lower = product(a >> 16, b >> 16), product(a & 0xFFFF, b & 0xFFFF)
        return {"d": [upper << 16 | lower]}

    return reference


def _widen(word: int, kind: str) -> int:
    if kind == "bf16":
        return word << 16  # payloads of NaN too, as an H200 does
    return float_word(float(np.uint16(word).view(np.float16)))


def _to_integer(how: str, d: str, value: float) -> int:
    rounds: dict[str, Callable[[float], int]] = {
        "rni": round,
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
    }
    if d == "f32":
        if not math.isfinite(value):
            return float_word(value)
        return float_word(math.copysign(float(rounds[how](value)), value))
    if math.isnan(value):
        return 0
    low, high = (-(2**31), 2**31 - 1) if d == "s32" else (0, 2**32 - 1)
    if math.isinf(value):
        return (high if value > 0 else low) % 2**32
    return min(max(rounds[how](value), low), high) % 2**32


def mma(row: Instr) -> WarpReference:
    """D = A B + C, each output by the integer rule, fragments by the manual's formulas."""
    kind = row.name.rsplit("_", 1)[1]

    def half(word: int, upper: int) -> int:
        return word >> 16 if upper else word & 0xFFFF

    def reference(warp: list[Words]) -> list[Words]:
        a = [[0] * 16 for _ in range(16)]
        b = [[0] * 8 for _ in range(16)]
        for lane, words in enumerate(warp):
            group, thread = lane >> 2, lane & 3
            for i in range(8):
                row_ = group + (0 if i < 2 or 4 <= i < 6 else 8)
                a[row_][thread * 2 + (i & 1) + (8 if i >= 4 else 0)] = half(
                    words["a"][i // 2], i & 1
                )
            for i in range(4):
                b[thread * 2 + (i & 1) + (8 if i >= 2 else 0)][group] = half(
                    words["b"][i // 2], i & 1
                )
        results = []
        for lane, words in enumerate(warp):
            out = []
            for i in range(4):
                m, n = (lane >> 2) + (8 if i >= 2 else 0), (lane & 3) * 2 + (i & 1)
                column = [each[n] for each in b]
                out.append(exact.tensor_core_bits(a[m], column, words["c"][i], kind, 25))
            results.append({"d": out})
        return results

    return reference


def shuffle(row: Instr) -> WarpReference:
    """The manual's pseudocode of shfl.sync, for a full mask."""
    mode = row.mnemonic.split(".")[2]

    def reference(warp: list[Words]) -> list[Words]:
        results = []
        for lane, words in enumerate(warp):
            b, c = words["b"][0] & 31, words["c"][0]
            segment, clamp = c >> 8 & 31, c & 31
            most = lane & segment | clamp & ~segment & 31
            least = lane & segment
            j = {
                "up": lane - b, "down": lane + b, "bfly": lane ^ b,
                "idx": least | b & ~segment & 31,
            }[mode]  # fmt: skip
            inside = j >= most if mode == "up" else j <= most
            result: Words = {"d": warp[j if inside else lane]["a"]}
            if "p" in row.outputs:
                result["p"] = [int(inside)]
            results.append(result)
        return results

    return reference


def vote(row: Instr) -> WarpReference:
    mode = row.mnemonic.split(".")[2]

    def reference(warp: list[Words]) -> list[Words]:
        votes = [words["a"][0] for words in warp]
        ballot = sum(each << lane for lane, each in enumerate(votes))
        value = {"any": int(any(votes)), "all": int(all(votes)), "ballot": ballot}[mode]
        return [{"d": [value]}] * 32

    return reference


def ldmatrix(row: Instr) -> WarpReference:
    """Row i of matrix j is what lane 8j + i stored; lane l gets a pair of row l/4."""
    matrices = int(row.name.removeprefix("ldmatrix_x")[0])

    def reference(warp: list[Words]) -> list[Words]:
        results = []
        for lane in range(32):
            out = []
            for j in range(matrices):
                tile = [warp[8 * j + i]["a"] for i in range(8)]
                if "trans" in row.name:
                    tile = [list(each) for each in zip(*tile, strict=True)]
                low, high = (tile[lane // 4][lane % 4 * 2 + i] for i in (0, 1))
                out.append(high << 16 | low)
            results.append({"d": out})
        return results

    return reference


def stmatrix(row: Instr) -> WarpReference:
    """What lane 8j + i reads back: row i of matrix j, or what stood there, its thread's number."""
    matrices = int(row.name.removeprefix("stmatrix_x")[0])

    def reference(warp: list[Words]) -> list[Words]:
        results: list[Words] = []
        for lane in range(32):
            matrix, line = divmod(lane, 8)
            if matrix >= matrices:
                results.append({})
                continue
            row_ = []
            for column in range(8):
                at = (column, line) if "trans" in row.name else (line, column)
                word = warp[at[0] * 4 + at[1] // 2]["b"][matrix]
                row_.append(word >> 16 * (at[1] % 2) & 0xFFFF)
            results.append({"a": row_})
        return results

    return reference


def elect(warp: list[Words]) -> list[Words]:
    """Of a full mask, lane 0."""
    return [{"d": [0], "p": [int(lane == 0)]} for lane in range(32)]


def prmt(words: Words) -> Words:
    pool = list(words["a"][0].to_bytes(4, "little") + words["b"][0].to_bytes(4, "little"))
    selector = words["c"][0]
    out = []
    for byte in range(4):
        chosen = selector >> 4 * byte & 15
        value = pool[chosen & 7]
        out.append((255 if value & 128 else 0) if chosen & 8 else value)
    return {"d": [int.from_bytes(bytes(out), "little")]}


def join(words: list[int], bits: int) -> int:
    return sum(word << bits * place for place, word in enumerate(words))


def move(row: Instr) -> Reference:
    """mov, pack, unpack, selp, cvta: the same bits."""

    def reference(words: Words) -> Words:
        if row.mnemonic.startswith("selp"):
            return {"d": words["a"] if words["c"][0] else words["b"]}
        if row.name == "mov_pack_b32":
            return {"d": [join(words["a"], 16)]}
        if row.name == "mov_pack_b64":
            return {"d": [join(words["a"], 32)]}
        if row.name.startswith("mov_unpack"):
            bits = 16 if row.name.endswith("b32") else 32
            word = words["a"][0]
            return {"d": [word & (1 << bits) - 1, word >> bits]}
        return {"d": words["a"]}

    return reference


def memory(row: Instr) -> Reference:
    """ld and st: what stood in memory as 16-bit words, as words of the row's type, and back."""
    per_word = {2: 1, 4: 2, 8: 4}

    def reference(words: Words) -> Words:
        if row.outputs:
            spec = row.operands["d"]
            n = per_word[spec.value_type.bits // 8]
            halves = words["a"]
            return {"d": [join(halves[i * n : i * n + n], 16) for i in range(spec.count)]}
        n = per_word[row.operands["b"].value_type.bits // 8]
        return {"a": [word >> 16 * i & 0xFFFF for word in words["b"] for i in range(n)]}

    return reference


def atomic(row: Instr) -> Reference:
    """atom.add and atom.inc: the word that stood there, and the one that stands there after."""
    counts = ".inc." in row.mnemonic

    def reference(words: Words) -> Words:
        held, b = join(words["a"], 16), words["b"][0]
        after = (0 if held >= b else held + 1) if counts else held + b
        return {"d": [held], "a": [after % 2**32]}

    return reference


def reference_of(row: Instr) -> tuple[Reference | None, WarpReference | None]:
    """The reference of a row: of one thread, or of a warp; neither where there is none."""
    name = row.mnemonic.split(".")[0]
    kind = row.mnemonic.rsplit(".", 1)[1]
    if row.name in ("mov_special", "mov_symbol") or not row.exact or row.counter == "mufu":
        return None, None
    if name == "elect":
        sinks = "d" not in row.outputs
        return None, lambda warp: [{"p": each["p"]} if sinks else each for each in elect(warp)]
    if name == "createpolicy":  # the words that the assembler of CUDA 13 gives these two
        word = 0x12F0000000000000 if "first" in row.name else 0x14F0000000000000
        return lambda words: {"d": [word]}, None
    warps = {"mma": mma, "stmatrix": stmatrix, "shfl": shuffle, "vote": vote, "ldmatrix": ldmatrix}
    if name in warps:
        return None, warps[name](row)
    if name in ("ld", "st"):
        return (None, None) if ".param" in row.mnemonic else (memory(row), None)
    if name == "atom":
        return atomic(row), None
    if name == "prmt":
        return prmt, None
    plain = {"cvt": convert, "setp": setp, "mov": move, "selp": move, "cvta": move}
    if name in plain:
        return plain[name](row), None
    if name in ("and", "or", "xor", "not", "shl", "shr"):
        return logic(row), None
    if kind in ("f16x2", "bf16x2"):
        return halves(row), None
    return (float_operation(row) if kind == "f32" else integer(row)), None
