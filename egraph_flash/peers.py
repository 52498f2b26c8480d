"""What else computes the same on this GPU: PyTorch's attention kernels, where PyTorch is there.

No part of the compiler uses this: a file that defines an expression states its peer in `PEERS`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .dtypes import Array
from .errors import InputError
from .record import Spec

SDPA = {"fa2": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
PEERS = (*SDPA, "flex")


@dataclass(frozen=True)
class Peer:
    """Attention over [batch, heads, rows, depth] inputs of these names, for PyTorch's kernels.

    What only FlexAttention computes: `score` makes a `score_mod` of the inputs, and `mask` is a
    `mask_mod` by itself.
    """

    q: str
    k: str
    v: str
    scale: float
    causal: bool = False
    score: Callable[[Mapping[str, Any]], Callable[..., Any]] | None = None
    mask: Callable[..., Any] | None = None


def parse_peers(spelled: str) -> list[str]:
    """Peers from `fa2,cudnn,flex,math`; InputError for any other, or where PyTorch is missing."""
    names = [name for name in spelled.split(",") if name]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise InputError(f"peer: got {', '.join(unknown)}, wants some of {', '.join(PEERS)}")
    if names and importlib.util.find_spec("torch") is None:
        raise InputError(f"peer: {', '.join(names)} need PyTorch, which is not installed")
    return names


class TorchReplay:
    """A peer captured as a CUDA graph of `repeats` calls; `output()` is what it computed."""

    def __init__(self, compute: Callable[[], Any], repeats: int) -> None:
        self._torch = importlib.import_module("torch")
        self.repeats, self._compute = repeats, compute  # it holds the inputs
        side = self._torch.cuda.Stream()
        with self._torch.cuda.stream(side):
            for _ in range(3):  # compiles, picks algorithms, allocates
                compute()
        side.synchronize()
        self._graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(self._graph):
            for _ in range(repeats):
                self._output = compute()

    def __call__(self, stream: int) -> None:
        with self._torch.cuda.stream(self._torch.cuda.ExternalStream(stream)):
            self._graph.replay()

    def output(self) -> tuple[Array, ...]:
        """What the last call computed, as float32 in host memory."""
        self._torch.cuda.synchronize()
        return (self._output.float().cpu().numpy(),)


def tensors(specs: tuple[Spec, ...], arrays: Mapping[str, Array], device: int) -> dict[str, Any]:
    """The inputs as PyTorch tensors on the GPU."""
    torch = importlib.import_module("torch")
    made = {}
    for spec in specs:
        if spec.dtype.name == "bf16":
            host = torch.from_numpy(arrays[spec.name].view("int16")).view(torch.bfloat16)
        else:
            host = torch.from_numpy(arrays[spec.name])
        made[spec.name] = host.to(f"cuda:{device}")
    return made


def computation(kind: str, peer: Peer, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that runs one peer over PyTorch tensors."""
    try:
        q, k, v = (inputs[name] for name in (peer.q, peer.k, peer.v))
    except KeyError as error:
        raise InputError(f"peer {kind}: no input called {error}; has {', '.join(inputs)}") from None
    if kind == "flex":
        return _flex(peer, inputs)
    if peer.score is not None or peer.mask is not None:
        raise InputError(f"peer {kind}: computes no scores but plain and causal ones; flex does")
    attention = importlib.import_module("torch.nn.attention")
    functional = importlib.import_module("torch.nn.functional")
    backend = getattr(attention.SDPBackend, SDPA[kind])

    def compute() -> Any:
        with attention.sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(
                q,
                k,
                v,
                is_causal=peer.causal,
                scale=peer.scale,
                enable_gqa=q.shape[1] != k.shape[1],
            )

    return compute


def _flex(peer: Peer, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    torch = importlib.import_module("torch")
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    q, k, v = (inputs[name] for name in (peer.q, peer.k, peer.v))
    seen = (lambda b, h, row, column: row >= column) if peer.causal else peer.mask
    rows, columns = q.shape[-2], k.shape[-2]
    options: dict[str, Any] = {"scale": peer.scale, "enable_gqa": q.shape[1] != k.shape[1]}
    if seen is not None:
        options["block_mask"] = flex.create_block_mask(
            seen, None, None, rows, columns, device=q.device
        )
    if peer.score is not None:
        options["score_mod"] = peer.score(inputs)
    compiled = torch.compile(flex.flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, **options)
