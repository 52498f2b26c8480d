"""The README's code runs as it stands, and what it shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from egraph_flash.listing import listing

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def namespace() -> dict[str, Any]:
    """What the README's Python blocks leave behind, run in order."""
    names: dict[str, Any] = {}
    for language, code in BLOCKS:
        if language == "python":
            exec(compile(code, "README.md", "exec"), names)
    return names


def test_code_runs(namespace: dict[str, Any]) -> None:
    assert sum(language == "python" for language, _ in BLOCKS) >= 3
    assert namespace["kernel"].passes == 1
    assert namespace["kernel"].target == "sm_120"


def test_the_term_shown_is_the_one_found(namespace: dict[str, Any]) -> None:
    (shown,) = (code for language, code in BLOCKS if not language)
    assert shown.strip() == listing(*namespace["kernel"].terms)


def test_paths_and_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    for path in re.findall(r"examples/[\w./]+\.(?:py|npz)", README):
        assert (ROOT / path).exists(), path


def test_every_room_of_the_house_exists() -> None:
    table = README[README.index("| room |") : README.index("A new law is a row")]
    for line in table.strip().splitlines()[2:]:
        rooms = re.findall(r"`([^`]+)`", line.split("|")[1])
        for room in rooms:
            folders = (ROOT, ROOT / Path(rooms[0]).parent, ROOT / "codegen", ROOT / "egraph_flash")
            assert any(list(folder.glob(room.rstrip("/"))) for folder in folders), room


def test_the_user_view() -> None:
    """The worked example: every property that a user may read, and a call."""
    import numpy as np

    from egraph_flash import Axis, Tensor, f16, inf, optimize, softmax, where

    b, h, m, n, d, e = Axis.many(b=1, h=2, m=40, n=50, d=32, e=32)
    q, k = Tensor("q", (b, h, m, d), f16), Tensor("k", (b, h, n, d), f16)
    v = Tensor("v", (b, h, n, e), f16)
    s = (q * k).sum(d) * 32**-0.5
    s = where(n.index <= m.index, s, -inf)
    o = (softmax(s, n) * v).sum(n)

    kernel = optimize(o, target="sm_120")
    assert kernel.derivation.steps[0].law_family == "naive"
    assert kernel.term.axes == (b, h, m, e)
    assert "TILE@d" in kernel.schedule
    assert kernel.cost.total_us > 0
    assert kernel.passes == 1
    assert kernel.ptx.startswith(".version")
    assert kernel.cubin.startswith(b"\x7fELF")
    rng = np.random.default_rng()
    arrays = {
        spec.name: rng.standard_normal(spec.shape).astype(np.float16) for spec in kernel.inputs
    }
    with pytest.warns(UserWarning, match="the simulator runs it"):
        out = kernel(**arrays)
    np.testing.assert_array_equal(out, kernel.run(**arrays, backend="sim"))
    assert kernel.counters is not None
    assert kernel.counters.total.mma > 0
