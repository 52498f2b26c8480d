"""How long work on a GPU takes: events on a stream, CUDA graphs, and replays interleaved."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from . import driver

Replay = Callable[[int], None]  # puts one replay on the stream of the given handle


class Stopwatch:
    """Starts when it is made: an event on a stream of the current context."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self._start = driver.call("cuEventCreate", 0)
        driver.call("cuEventRecord", self._start, stream)

    def stop_us(self) -> float:
        """The µs of GPU time since the start; waits for the stream's work."""
        end = driver.call("cuEventCreate", 0)
        try:
            driver.call("cuEventRecord", end, self.stream)
            driver.call("cuEventSynchronize", end)
            return 1e3 * float(driver.call("cuEventElapsedTime", self._start, end))
        finally:
            for event in (self._start, end):
                driver.call("cuEventDestroy", event)


class Graph:
    """What `record` puts on a stream, `repeats` times over, captured once to be replayed."""

    def __init__(self, record: Replay, repeats: int = 1) -> None:
        api = driver.api()
        stream = driver.call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        driver.call("cuStreamBeginCapture", stream, mode)
        try:
            for _ in range(repeats):
                record(int(stream))
        finally:
            graph = driver.call("cuStreamEndCapture", stream)
            driver.call("cuStreamDestroy", stream)
        self.repeats = repeats
        self._executable: Any = driver.call("cuGraphInstantiate", graph, 0)
        driver.call("cuGraphDestroy", graph)

    def __call__(self, stream: int) -> None:
        driver.call("cuGraphLaunch", self._executable, stream)

    def close(self) -> None:
        driver.call("cuGraphExecDestroy", self._executable)


def interleave(replays: Mapping[str, Replay], rounds: int, seed: int = 0) -> dict[str, list[float]]:
    """µs of each replay in each round; every round runs all of them once, in a new random order.

    Works in the current context, on a stream of its own; the first two rounds are not counted.
    """
    order, shuffle = list(replays), random.Random(seed).shuffle
    times_us: dict[str, list[float]] = {label: [] for label in replays}
    stream = driver.call("cuStreamCreate", 1)
    try:
        for turn in range(rounds + 2):
            shuffle(order)
            for label in order:
                watch = Stopwatch(int(stream))
                replays[label](int(stream))
                elapsed_us = watch.stop_us()
                if turn >= 2:
                    times_us[label].append(elapsed_us)
    finally:
        driver.call("cuStreamDestroy", stream)
    return times_us
