"""How fast kernels are on this GPU, beside their peers, in one run with every output checked."""

from __future__ import annotations

import hashlib
import secrets
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import checking, peers, runtime
from .dtypes import Array
from .errors import DeviceError, InputError
from .kernel import Kernel
from .lengths import NONE, lengths_of
from .loading import Loaded
from .plan import dense_strides
from .runtime import driver, launch, timing

REPLAY_US = 2000.0  # how long one replay should take, so that launching it does not count
MOST_REPEATS = 50

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One line of the table: median µs of one call, and the largest error from float64.

    `ratio` is the first peer's time over this row's (the first row's, where there are no peers);
    `digest` names the bits of all that was computed in the last call.
    """

    label: str
    time_us: float
    quartiles_us: tuple[float, float]
    ratio: float
    tflop_s: float | None
    max_error: float
    mean_error: float
    digest: str


@dataclass(frozen=True)
class Table:
    """What one run measured, on which GPU, with which seed for its inputs."""

    name: str
    device: str
    seed: int
    rounds: int
    checked: int
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class OwnReplay:
    """One of our kernels, its arrays on the GPU, captured as a CUDA graph of `repeats` calls."""

    def __init__(
        self,
        kernel: Kernel,
        inputs: Mapping[str, runtime.DeviceArray],
        device: int,
        lengths: Mapping[str, int] = NONE,
    ) -> None:
        self._kernel, self._device = kernel.specialized(**inputs, **lengths), device
        self._held = dict(inputs)
        specs = (spec.at(lengths) for spec in (*kernel.inputs, *kernel.outputs))
        strides = {spec.name: dense_strides(spec.shape) for spec in specs}
        self._plan = self._kernel.record.plan.at(lengths, strides)
        for buffer in self._plan.buffers:
            if buffer.role != "input":
                held = runtime.DeviceArray(buffer.shape, buffer.dtype, device)
                self._held[buffer.name] = held
            if buffer.role == "counter":
                runtime.results.clear(self._held[buffer.name], device, 0)
        for spec in kernel.outputs:
            if spec.placed:  # as a call makes it: elements that get no value are 0
                runtime.results.clear(self._held[spec.name], device, 0)
        self._launch(0)  # loads the module
        watch = timing.Stopwatch(0)
        self._launch(0)
        self.repeats = repeats_for(watch.stop_us())
        self._graph = timing.Graph(self._launch, self.repeats)

    def _launch(self, stream: int) -> None:
        launches = [step for step in self._plan.launches if 0 not in step.grid]
        addresses = {name: array.address for name, array in self._held.items()}
        launch.launch_all(self._kernel.cubin, launches, addresses, self._device, stream)

    def __call__(self, stream: int) -> None:
        self._graph(stream)

    def output(self) -> tuple[Array, ...]:
        """What the last call computed, in host memory."""
        return tuple(self._held[buffer.name].numpy() for buffer in self._plan.having("output"))


def digest(outputs: Sequence[Array]) -> str:
    """The first 12 digits of the SHA-256 of all outputs as stored."""
    hashed = hashlib.sha256()
    for array in outputs:
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:12]


def repeats_for(once_us: float) -> int:
    """How many calls to put into one graph.

    >>> repeats_for(100.0), repeats_for(1.0), repeats_for(1e6)
    (20, 50, 1)
    """
    return max(1, min(MOST_REPEATS, round(REPLAY_US / max(once_us, 1e-3))))


def bench(
    loaded: Loaded,
    kernels: Mapping[str, Kernel],
    peer_names: Sequence[str] = (),
    *,
    rounds: int = 30,
    seed: int | None = None,
    lengths: Mapping[str, int] = NONE,
    progress: Progress = lambda step: None,
) -> Table:
    """Time kernels by label, and peers, with interleaved replays of CUDA graphs; check each output.

    `lengths` are those that the expression leaves open; its hints stand for the others.
    Raises DeviceError where no GPU fits, InputError for peers that the file does not state and
    for lengths that its inputs contradict.
    """
    first = next(iter(kernels.values()))
    device = runtime.device.fitting(first.target)
    if device is None:
        here = runtime.device.listed()
        raise DeviceError(f"bench: no GPU fits target {first.target}; present: {here}")
    peer = loaded.beside("PEERS")
    if peer_names and peer is None:
        raise InputError(f"bench: PEERS in the file says nothing of {loaded.name!r}")
    seed = secrets.randbits(32) if seed is None else seed
    typical = first.record.lengths
    arrays = checking.seeded_inputs(loaded, first, seed, lengths)
    first.check(**arrays, **lengths)
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    sizes = lengths_of(first.record, shapes, lengths, typical)
    with driver.on(device.ordinal):
        replays = _prepare(kernels, peer_names, peer, arrays, sizes, device.ordinal, progress)
        progress(f"timing {rounds} rounds")
        times_us = timing.interleave(replays, rounds)
        results = {label: replay.output() for label, replay in replays.items()}
    progress("checking against float64")
    inputs, outputs = (
        [spec.at(sizes) for spec in specs] for specs in (first.inputs, first.outputs)
    )
    at = checking.sample(inputs, outputs, np.random.default_rng(seed))
    expected = checking.oracle(loaded.expression, arrays, at, sizes)
    checked = sum(value.size for value in expected)
    errors = {
        label: checking.errors(outputs[: len(found)], expected[: len(found)], found, at)
        for label, found in results.items()
    }
    per_call = {
        label: [elapsed_us / replay.repeats for elapsed_us in times_us[label]]
        for label, replay in replays.items()
    }
    digests = {label: digest(found) for label, found in results.items()}
    reference = next(iter(peer_names), None)
    rows = _rows(per_call, errors, digests, first.record.flop_at(sizes), reference)
    return Table(loaded.name, str(device), seed, rounds, checked, rows)


def _prepare(
    kernels: Mapping[str, Kernel],
    peer_names: Sequence[str],
    peer: Any,
    arrays: Mapping[str, Array],
    lengths: Mapping[str, int],
    device: int,
    progress: Progress,
) -> dict[str, OwnReplay | peers.TorchReplay]:
    """Every row by its label, captured and ready."""
    replays: dict[str, OwnReplay | peers.TorchReplay] = {}
    specs = next(iter(kernels.values())).inputs
    held = {
        spec.name: runtime.DeviceArray.of(arrays[spec.name], spec.dtype, device) for spec in specs
    }
    for label, kernel in kernels.items():
        progress(f"preparing {label}")
        replays[label] = OwnReplay(kernel, held, device, lengths)
    tensors = peers.tensors(specs, arrays, device) if peer_names else {}
    for name in peer_names:
        progress(f"preparing {name}")
        replays[name] = _peer_replay(name, peer, tensors)
    return replays


def _peer_replay(name: str, peer: peers.Peer, tensors: Mapping[str, Any]) -> peers.TorchReplay:
    compute = peers.computation(name, peer, tensors)
    trial = peers.TorchReplay(compute, 1)
    (once_us,) = timing.interleave({name: trial}, 1)[name]
    return peers.TorchReplay(compute, repeats_for(once_us))


def _rows(
    times_us: Mapping[str, list[float]],
    errors: Mapping[str, list[checking.Error]],
    digests: Mapping[str, str],
    flop: float | None,
    reference: str | None,
) -> tuple[Row, ...]:
    medians = {label: statistics.median(times) for label, times in times_us.items()}
    against = medians[reference or next(iter(medians))]
    return tuple(
        Row(
            label=label,
            time_us=medians[label],
            quartiles_us=_quartiles(times),
            ratio=against / medians[label],
            tflop_s=None if flop is None else flop / medians[label] / 1e6,
            max_error=max(error.max_abs for error in errors[label]),
            mean_error=max(error.mean_abs for error in errors[label]),
            digest=digests[label],
        )
        for label, times in times_us.items()
    )


def _quartiles(times: Sequence[float]) -> tuple[float, float]:
    low, high = np.percentile(times, [25, 75])
    return float(low), float(high)
