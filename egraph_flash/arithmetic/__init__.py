"""Which bits NVIDIA's arithmetic gives: numpy functions equal to the hardware bit for bit."""

from .halves import mul_bf16, mul_f16
from .mufu import ex2_approx_ftz, rcp_approx_ftz, rsqrt_approx_ftz
from .rounding import (
    CANONICAL_NAN,
    bf16_to_f32,
    canonical,
    f16_to_f32,
    f32_to_bf16,
    f32_to_f16,
    flush_subnormals,
)
from .single import (
    add_f32,
    div_f32,
    fma_f32,
    max_f32,
    max_nan_f32,
    min_f32,
    min_nan_f32,
    mul_f32,
    normal_reciprocal,
    sqrt_f32,
    sub_f32,
)
from .tensor_core import tensor_core_dot

__all__ = [
    "CANONICAL_NAN",
    "add_f32",
    "bf16_to_f32",
    "canonical",
    "div_f32",
    "ex2_approx_ftz",
    "f16_to_f32",
    "f32_to_bf16",
    "f32_to_f16",
    "flush_subnormals",
    "fma_f32",
    "max_f32",
    "max_nan_f32",
    "min_f32",
    "min_nan_f32",
    "mul_bf16",
    "mul_f16",
    "mul_f32",
    "normal_reciprocal",
    "rcp_approx_ftz",
    "rsqrt_approx_ftz",
    "sqrt_f32",
    "sub_f32",
    "tensor_core_dot",
]
