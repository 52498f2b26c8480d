"""Data flows one way: a module imports only what stands in its own layer or to the left of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "egraph_flash"

# from left to right; a name ending in a point stands for a whole package
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        *(
            "errors",
            "notices",
            "once",
            "debug",
            "dtypes",
            "operators",
            "monoids",
            "terms",
            "notation",
        ),
        *(
            "axes",
            "free",
            "expressions",
            "masks",
            "indices",
            "representations",
            "carriers",
            "absence",
        ),
        *(
            "choices",
            "evaluation",
            "tensor_map",
            "plan",
            "open_plan",
            "record",
            "listing",
            "data_checks",
        ),
        *("layouts", "footprint", "arithmetic.", "reductions", "counterexamples"),
    ),
    (
        *("codegen.ptx_types", "codegen.ptx", "codegen.isa.", "codegen.lanes", "codegen.targets"),
        "codegen.residency",
        *("codegen.ptx_text", "codegen.ptx_parse", "codegen.atoms", "codegen.frames"),
        *("machines", "balance", "cost", "pipes", "knobs"),
    ),
    (
        *(
            "rules.",
            "engine",
            "egraph",
            "saturated",
            "canonical",
            "combination",
            "frozen",
            "passes",
            "solver",
        ),
        *("shaping", "extraction", "miniature", "derivation", "members", "registration"),
    ),
    (
        *(
            "request",
            "roles",
            "storing",
            "stages",
            "shapes",
            "codegen.resources",
            "candidates",
            "profiles",
            "traffic",
            "workload",
        ),
        *(
            "codegen.affine",
            "codegen.stepping",
            "codegen.slabs",
            "codegen.arena",
            "codegen.boxes",
            "gauge",
            "intervals",
            "skipping",
            "exponentials",
            "data_bounds",
            "realizations",
            "preconditions",
        ),
        *("sharing", "joining", "packing", "turning", "arranging", "pinning"),
        *("likeness", "searching", "scheduling"),
    ),
    ("codegen.",),
    ("simulator.", "runtime."),
    (
        *("cache", "lengths", "binding", "execution", "kernel", "compilation", "pipeline"),
        *("specialization", ""),
    ),
    (
        *("loading", "checking", "peers", "bench", "printing", "cli"),
        *("problem", "rungs", "climbing", "ladder", "scoreboard", "ladder_plot", "ladder_cli"),
    ),
)


def layer_of(module: str) -> int:
    """The leftmost layer that names the module or a package that holds it."""
    for place, names in enumerate(LAYERS):
        for name in names:
            if module == name or (name.endswith(".") and f"{module}.".startswith(name)):
                return place
    raise AssertionError(f"{module} stands in no layer; tests/test_layers.py lists them")


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """The package's own modules that a file imports, those for type checkers aside."""
    here = module_of(path).split(".") if module_of(path) else []
    package = here if path.name == "__init__.py" else here[:-1]
    for node in ast.walk(_without_type_checking(ast.parse(path.read_text()))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            source = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                yield _existing([*source, alias.name])


def _existing(parts: list[str]) -> str:
    """The module that a dotted name lies in."""
    path = PACKAGE.joinpath(*parts)
    if path.is_dir() or path.with_suffix(".py").exists():
        return ".".join(parts)
    return ".".join(parts[:-1])


def _without_type_checking(tree: ast.Module) -> ast.Module:
    class Strip(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            named = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            return None if named else self.generic_visit(node)

    stripped = Strip().visit(tree)
    assert isinstance(stripped, ast.Module)
    return stripped


FILES = sorted(
    path
    for folder in (PACKAGE, *(f for f in PACKAGE.iterdir() if f.is_dir()))
    for path in folder.rglob("*.py")
)


@pytest.mark.parametrize("path", dict.fromkeys(FILES), ids=lambda path: module_of(path) or "init")
def test_imports_point_left(path: Path) -> None:
    own = layer_of(module_of(path))
    right = [name for name in imports(path) if layer_of(name) > own]
    assert not right, f"{module_of(path)} imports {right}, which stand to its right"
