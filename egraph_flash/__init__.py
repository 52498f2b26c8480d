"""A compiler that derives FlashAttention from general monoid laws instead of containing it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .axes import Axis
from .dtypes import bf16, boolean, f16, f32, i32, i64
from .expressions import (
    Expr,
    Tensor,
    exp,
    inf,
    log,
    maximum,
    minimum,
    sqrt,
    tanh,
    where,
)
from .masks import alibi, causal, distance, prefix, same_document, softcap, window
from .monoids import Monoid
from .pipeline import optimize
from .reductions import argmax, softmax
from .registration import register

if TYPE_CHECKING:
    from .evaluation import evaluate

__version__ = "0.1.0"

_LATE = {"evaluate": "evaluation"}  # imported on first use

__all__ = [
    "Axis",
    "Expr",
    "Monoid",
    "Tensor",
    "alibi",
    "argmax",
    "bf16",
    "boolean",
    "causal",
    "distance",
    "evaluate",
    "exp",
    "f16",
    "f32",
    "i32",
    "i64",
    "inf",
    "log",
    "maximum",
    "minimum",
    "optimize",
    "prefix",
    "register",
    "same_document",
    "softcap",
    "softmax",
    "sqrt",
    "tanh",
    "where",
    "window",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f".{_LATE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
