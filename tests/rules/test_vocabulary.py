"""The compiler never knew it was attention: no name in `rules/` or `codegen/` says so, and no
identifier of the compiler names a workload of the README's table.

Identifiers, file names and strings are split into words at underscores and changes of case.
Citations (`source=`), example terms and the package's own name are not meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.workloads import WORKLOADS
from tests.test_layers import FILES as MODULES
from tests.test_layers import LAYERS, layer_of, module_of

ROOT = Path(__file__).parents[2]
FORBIDDEN = {"attention", "attn", "softmax", "flash", "query", "sdpa", "key"}
PACKAGE = re.compile("egraph[_-]?flash", re.IGNORECASE)
FOLDERS = ("rules", "codegen")
# words of workloads' names that say nothing of a workload, each of which the compiler has a use for
COMMON = {
    "argmax",
    "decode",
    "exp",
    "index",
    "linear",
    "log",
    "long",
    "mean",
    "plain",
    "row",
    "sum",
}
# the language's own word for a definition that it spells out, and a name of a module
OWN = {("egraph_flash.reductions", "softmax"), ("egraph_flash", "softmax")}
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def words(text: str) -> set[str]:
    """The words of an identifier or a text, in lower case."""
    return set(in_order(text))


def in_order(text: str) -> list[str]:
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text.replace("_", " "))
    return [part.lower() for part in parts]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of every identifier and string of a module.

    Citations, the package's own name, and the argument `key=` of Python's functions are no names.
    """
    skipped = {id(node) for node in ast.walk(tree) if _is_skipped(node) for node in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        line = getattr(node, "lineno", 0)
        for field in ("id", "attr", "name", "asname", "arg", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str) and not (isinstance(node, ast.keyword) and value == "key"):
                yield line, PACKAGE.sub("", value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield line, PACKAGE.sub("", node.value)


def _is_skipped(node: ast.AST) -> bool:
    """Citations."""
    return isinstance(node, ast.keyword) and node.arg == "source"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_name_says_so(path: Path) -> None:
    assert not words(path.stem) & FORBIDDEN, path
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.name == "examples.py" and path.parent.name == "rules":
        return  # example terms may be called what they are
    for line, text in names(tree):
        said = words(text) & FORBIDDEN
        assert not said, f"{path}:{line}: {text!r} says {sorted(said)}"


def test_words_are_split() -> None:
    assert words("FlashAttention_2 run") == {"flash", "attention", "run"}
    assert words("keys monkey turkey") == {"keys", "monkey", "turkey"}
    assert words("SDPAKernel") == {"sdpa", "kernel"}


def test_the_test_would_notice() -> None:
    tree = ast.parse("def online_softmax(x): return x\n")
    assert any(words(text) & FORBIDDEN for _, text in names(tree))
    cited = ast.parse('row(source="Flash attention")\n')
    assert not any(words(text) & FORBIDDEN for _, text in names(cited))


# ---- the workloads of the table ------------------------------------------------------------------


def telling() -> set[str]:
    """The words of which one alone says what is computed."""
    return {word for name in WORKLOADS for word in words(name)} - COMMON


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of what a module defines, imports or reads; attributes of `at`, by which laws
    name their example terms, are not meant."""
    examples = {
        id(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "at"
    }
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "asname", "arg", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str) and id(node) not in examples:
                yield getattr(node, "lineno", 0), value


def said(tree: ast.AST, module: str) -> list[tuple[int, str]]:
    """The identifiers of a module that say which workload it knows."""
    return [
        (line, name)
        for line, name in identifiers(tree)
        if words(name) & telling() or any(has_phrase(name, each) for each in WORKLOADS)
        if (module, name) not in OWN
    ]


def has_phrase(name: str, phrase: str) -> bool:
    """Whether the words of a phrase stand in a name, one after the other."""
    return f"_{phrase}_" in "_" + "_".join(in_order(name)) + "_"


# those of the compiler: what stands right of the kernel measures it beside others, by their names
COMPILER = [path for path in dict.fromkeys(MODULES) if layer_of(module_of(path)) < len(LAYERS) - 1]


@pytest.mark.parametrize("path", COMPILER, ids=lambda path: module_of(path) or "init")
def test_no_identifier_names_a_workload(path: Path) -> None:
    module = ".".join(filter(None, ("egraph_flash", module_of(path))))
    assert not said(ast.parse(f"{path.stem} = 0"), module)
    if path.name == "examples.py" and path.parent.name == "rules":
        return  # example terms may be called what they are
    assert not said(ast.parse(path.read_text(encoding="utf-8")), module), path


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_would_be_noticed(name: str) -> None:
    camel = "".join(word.title() for word in name.split("_"))
    for code in (f"def fuse_{name}(x): return x", f"x = node.{name}", f"class {camel}Matcher: ..."):
        assert said(ast.parse(code), "egraph_flash.terms"), code
        assert not said(ast.parse(code.replace(name, "fold").replace(camel, "Fold")), "")


def test_common_words_are_needed() -> None:
    """Each is a word of a workload's name, and of some identifier of the compiler."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in COMPILER]
    used = {word for tree in trees for _, name in identifiers(tree) for word in words(name)}
    assert used >= COMMON
    assert {word for name in WORKLOADS for word in words(name)} >= COMMON


def test_there_is_something_to_read() -> None:
    assert len(FILES) > 20
    assert len(COMPILER) > 100
