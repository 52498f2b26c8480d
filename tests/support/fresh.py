"""Which random inputs a test sees: new ones each run, from a seed that a failure prints."""

from __future__ import annotations

import os
import secrets

import numpy as np


def fresh_rng() -> np.random.Generator:
    """A generator with a new seed, or EGRAPH_FLASH_SEED's; pytest shows the line on failure."""
    seed = int(os.environ.get("EGRAPH_FLASH_SEED") or secrets.randbits(32))
    print(f"EGRAPH_FLASH_SEED={seed}")
    return np.random.default_rng(seed)


def wide_f32(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """f32 with every bit pattern alike: all exponents, subnormals, infinities, NaNs, zeros."""
    bits = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    special = np.array(
        [0, 0x80000000, 1, 0x80000001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000],
        np.uint32,
    )
    chosen = rng.random(shape) < 0.1
    return np.where(chosen, rng.choice(special, shape), bits).astype(np.uint32).view(np.float32)


def wide_half(rng: np.random.Generator, shape: int | tuple[int, ...], type: str) -> np.ndarray:
    """f16 (float16) or bf16 (uint16), finite, over all exponents, with zeros and subnormals."""
    bits = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
    exponent = 0x7C00 if type == "f16" else 0x7F80
    bits = np.where(bits & exponent == exponent, bits & ~np.uint16(0x4000), bits)
    bits = np.where(rng.random(shape) < 0.15, bits & 0x8000, bits).astype(np.uint16)
    return bits.view(np.float16) if type == "f16" else bits
