"""What all tests share: a cache of their own, and which of them this machine can run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from egraph_flash.runtime import present_target
from tests.support.fake_cuda import RTX_5090, FakeDriver, installed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if present_target() is None:
        skip = pytest.mark.skip(reason="no GPU of sm_90 or sm_120 is here")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)


@pytest.fixture
def seed() -> int:
    """A fresh seed for each test, printed on failure; EGRAPH_FLASH_SEED repeats one."""
    value = int(os.environ.get("EGRAPH_FLASH_SEED") or secrets.randbelow(1 << 32))
    print(f"EGRAPH_FLASH_SEED={value}")
    return value


@pytest.fixture
def fake_gpu() -> Iterator[FakeDriver]:
    """A driver made of host memory that shows an RTX 5090."""
    with installed(RTX_5090) as fake:
        yield fake


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled kernels go to a folder that the run's workers share, not to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        own = tmp_path_factory.getbasetemp()
        folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kernels"
        patch.setenv("EGRAPH_FLASH_CACHE", str(folder))
        patch.delenv("EGRAPH_FLASH_DEBUG", raising=False)
        yield folder
