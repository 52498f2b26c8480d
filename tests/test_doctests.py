"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import egraph_flash

MODULES = [module.name for module in pkgutil.walk_packages(egraph_flash.__path__, "egraph_flash.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), verbose=False)
    assert failed == 0
