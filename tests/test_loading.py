"""Which expression a file and a name mean, and what is said where they mean none."""

from __future__ import annotations

from pathlib import Path

import pytest

from egraph_flash.errors import ExpressionError
from egraph_flash.expressions import Expr
from egraph_flash.loading import LoadError, load, parse_pins, parse_row

SOURCE = """
from beside import SIZE
from egraph_flash import Axis, Tensor, f32

m, n = Axis.many(m=3, n=SIZE)
x = Tensor("x", (m, n), f32)
doubled = x + x
total = doubled.sum(n)
both = (doubled, total)
ordered = doubled.order(n, m)
size = 40

def made():
    return total

def late():
    return 3

PLAIN = {"doubled": lambda x: x + x}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "terms.py"
    path.write_text(SOURCE)
    (tmp_path / "beside.py").write_text("SIZE = 40\n")
    return path


@pytest.mark.parametrize("name", ["doubled", "both", "ordered", "made"])
def test_loads_what_optimize_takes(file: Path, name: str) -> None:
    loaded = load(f"{file}:{name}")
    assert loaded.name == name
    wanted = loaded.module.total if name == "made" else getattr(loaded.module, name)
    assert loaded.expression is wanted


def test_reads_what_the_file_says_beside_it(file: Path) -> None:
    plain = load(f"{file}:doubled").beside("PLAIN")
    assert plain is not None
    assert plain(2) == 4
    assert load(f"{file}:total").beside("PLAIN") is None
    assert load(f"{file}:total").beside("PEERS") is None
    assert isinstance(load(f"{file}:total").expression, Expr)


def test_names_that_are_no_expression(file: Path) -> None:
    listed = "it has doubled, total, both, ordered"
    with pytest.raises(LoadError, match=f"no expression called 'missing'; {listed}"):
        load(f"{file}:missing")
    with pytest.raises(LoadError, match=f"'size' is a int, wants an expression.*; {listed}"):
        load(f"{file}:size")
    with pytest.raises(LoadError, match="'late' is a int, wants an expression"):
        load(f"{file}:late")


def test_a_function_may_take_a_text(tmp_path: Path) -> None:
    """So do the functions that its file has beside it."""
    path = tmp_path / "many.py"
    path.write_text(
        "from egraph_flash import Axis, Tensor, f32\n"
        "def long(text):\n"
        "    return Tensor('x', (Axis('n', int(text)),), f32).expr\n"
        "def check(result, text):\n"
        "    return f'{text}: {result}'\n"
        "CHECKS = {'long': check}\n"
        "seven = long('7')\n"
    )
    loaded = load(f'{path}:long("12")')
    assert loaded.expression.axes[0].size == 12
    check = loaded.beside("CHECKS")
    assert check is not None
    assert check("wrong") == "12: wrong"
    assert loaded.beside("INPUTS") is None
    with pytest.raises(LoadError, match=r"long\('a b'\): invalid literal"):
        load(f'{path}:long("a b")')
    with pytest.raises(LoadError, match="'seven' is a Expr, which takes no text"):
        load(f'{path}:seven("3")')


@pytest.mark.parametrize("spec", ["terms.py", "terms.py:", ":name", "", 'terms.py:x("a"'])
def test_what_is_no_file_and_name(spec: str) -> None:
    with pytest.raises(LoadError, match=r"wants FILE\.py:NAME"):
        load(spec)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no such file '.*none.py'; wants FILE.py:NAME"):
        load(f"{tmp_path / 'none.py'}:x")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\ny = missing\n", "line 2: NameError: name 'missing' is not defined"),
        ("x = 1\n\nx = = 2\n", "line 3: SyntaxError"),
    ],
)
def test_files_that_fail(tmp_path: Path, source: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(LoadError, match=message):
        load(f"{path}:x")


def test_our_own_errors_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("from egraph_flash import Axis\nAxis('n', -1)\n")
    with pytest.raises(ExpressionError, match="got the extent -1"):
        load(f"{path}:x")


@pytest.mark.parametrize("pin", ["TILE", "=x", "TILE="])
def test_pins_that_are_none(pin: str) -> None:
    with pytest.raises(LoadError, match=f"pin: got '{pin}', wants KNOB=value"):
        parse_pins([pin])


def test_a_pin_given_twice() -> None:
    with pytest.raises(LoadError, match="pin: got REGS twice, as 'r128' and 'r255'"):
        parse_pins(["REGS=r128", "REGS=r255"])


def test_rows_of_a_benchmark() -> None:
    assert parse_row("b:") == ("b", {})
    tile = "a:fma_f32/w4x1"
    assert parse_row(f"b:TILE={tile};PLACE=fold=fuse") == (
        "b",
        {"TILE": tile, "PLACE": "fold=fuse"},
    )
    with pytest.raises(LoadError, match="row: got 'c', wants label:KNOB=value"):
        parse_row("c")
