"""The compiler never knew it was attention: no name in `rules/` or `codegen/` says so.

Identifiers, file names and strings are split into words at underscores and changes of case.
Citations (`source=`), example terms and the package's own name are not meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {"attention", "attn", "softmax", "flash", "query", "sdpa", "key"}
PACKAGE = re.compile("egraph[_-]?flash", re.IGNORECASE)
FOLDERS = ("rules", "codegen")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def words(text: str) -> set[str]:
    """The words of an identifier or a text, in lower case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text.replace("_", " "))
    return {part.lower() for part in parts}


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


def test_there_is_something_to_read() -> None:
    assert len(FILES) > 20
