"""The README's workloads as PyTorch spells them: functions of the torch module and the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Torch = Callable[[Any, Mapping[str, Any]], Any]


def norm(torch: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    sizes = (x.shape[-1],)
    return torch.nn.functional.layer_norm(x, sizes, weight, bias, 1e-5)


def rms(torch: Any, x: Any, gain: Any) -> Any:
    y = x.float()
    scale = torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6)
    return (y * scale).to(x.dtype) * gain


def loss(torch: Any, logits: Any, label: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits, label.long(), reduction="none")


def log_sum_exp(torch: Any, x: Mapping[str, Any]) -> Any:
    return torch.logsumexp(x["x"], -1)


def gelu(torch: Any, x: Mapping[str, Any]) -> Any:
    return torch.nn.functional.gelu(x["a"] @ x["w"] + x["bias"], approximate="tanh")


def entropy(torch: Any, x: Mapping[str, Any]) -> Any:
    logs = x["x"].log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)


def scores(x: Mapping[str, Any]) -> Any:
    return x["q"] @ x["k"].transpose(-1, -2) * x["q"].shape[-1] ** -0.5


def attention(torch: Any, x: Mapping[str, Any]) -> Any:
    return scores(x).softmax(-1) @ x["v"]


def gated(torch: Any, x: Mapping[str, Any]) -> Any:
    return (scores(x).softmax(-1) * x["gate"].sigmoid()[:, None]) @ x["v"]


def linear(torch: Any, x: Mapping[str, Any]) -> Any:
    q, k = (1 + torch.nn.functional.elu(x[name]) for name in "qk")
    weights = q @ k.transpose(-1, -2)
    return weights @ x["v"] / weights.sum(-1, keepdim=True)


def flash(torch: Any, x: Mapping[str, Any]) -> Any:
    attention = torch.nn.attention
    with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(
            *(x[name].unsqueeze(0) for name in "qkv")
        )


def decode(backend: str) -> Torch:
    def compute(torch: Any, x: Mapping[str, Any]) -> Any:
        attention = torch.nn.attention
        with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(
                x["q"].unsqueeze(2), x["k"], x["v"], enable_gqa=True
            ).squeeze(2)

    return compute
