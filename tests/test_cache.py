"""The disk cache: what makes a key, atomic entries, damage, several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from egraph_flash import cache
from egraph_flash.runtime import assemble as assemble_text
from egraph_flash.runtime.assembler import Assembly
from tests.support import doubling

ASSEMBLER = "egraph_flash.runtime.assembler"
RECORD = doubling.record()
KEY = "ab" + "0" * 62


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    return tmp_path


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_stored_records_read_back(folder: Path) -> None:
    assert cache.load_record(KEY) is None
    cache.store_record(KEY, RECORD)
    assert cache.load_record(KEY) == RECORD
    assert [path.name for path in entries(folder)] == [f"{KEY}.kernel"]


def test_reading_takes_few_milliseconds() -> None:
    cache.store_record(KEY, RECORD)
    cache.source_digest.cache_clear()
    started = time.perf_counter()
    cache.kernel_key("expression", "sm_120", {})
    cache.load_record(KEY)
    assert time.perf_counter() - started < 1.0  # 20 ms is the aim; this catches a mistake


def test_keys_tell_everything_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expression, target, pins and our own sources; not the order of the pins."""
    pins = {"TILE": "a:fma_f32", "PLACE": "fold=cut"}
    keys = {
        cache.kernel_key("(Add x x)", "sm_120", {}),
        cache.kernel_key("(Add x y)", "sm_120", {}),
        cache.kernel_key("(Add x x)", "sm_90", {}),
        cache.kernel_key("(Add x x)", "sm_120", pins),
        cache.kernel_key("(Add x x)", "sm_120", {**pins, "PLACE": "fold=fuse"}),
        cache.kernel_key("(Add x x)", "sm_120", {"TILE": "a:fma_f32"}),
    }
    assert len(keys) == 6
    reordered = dict(reversed(pins.items()))
    assert cache.kernel_key("(Add x x)", "sm_120", reordered) in keys
    monkeypatch.setattr(cache, "source_digest", lambda: "edited")
    assert cache.kernel_key("(Add x x)", "sm_120", {}) not in keys


def test_parts_of_a_key_do_not_run_together() -> None:
    assert cache.kernel_key("a", "b", {}) != cache.kernel_key("b", "a", {})
    assert cache.kernel_key("a", "", {"b": "c"}) != cache.kernel_key("ab=c", "", {})


def test_any_edit_of_a_source_changes_the_digest(tmp_path: Path) -> None:
    """Also behind a link, and with the old size and time."""
    root, linked = tmp_path / "package", tmp_path / "laws"
    for path in (root, linked):
        path.mkdir()
    (root / "rules").symlink_to(linked)
    for path in (root / "a.py", linked / "b.py"):
        path.write_text("x = 1\n")
    digests = [cache.source_digest.__wrapped__(root)]
    for path in (root / "a.py", linked / "b.py"):
        stamp = path.stat()
        path.write_text("x = 2\n")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        digests.append(cache.source_digest.__wrapped__(root))
    (root / "notes.txt").write_text("no source")
    assert cache.source_digest.__wrapped__(root) == digests[-1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other", "text"])
def test_damage_is_noticed_and_rebuilt(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    cache.store_record(KEY, RECORD)
    (path,) = entries(folder)
    stored = path.read_bytes()
    flipped = bytes([*stored[:100], stored[100] ^ 1, *stored[101:]])
    broken = {"cut": stored[:-9], "flipped": flipped, "empty": b"", "text": b"\xff\n"}
    if damage == "other":
        cache._store(path.name, b'{"name": "a record of another kind"}')
    else:
        path.write_bytes(broken[damage])
    assert cache.load_record(KEY) is None
    said = capsys.readouterr().err
    assert said.startswith(f"egraph_flash: cache entry {path} is damaged (")
    assert said.count("\n") == 1
    assert not entries(folder)
    cache.store_record(KEY, RECORD)
    assert cache.load_record(KEY) == RECORD


def _write(start: float, number: int) -> int:
    """Write one of two records again and again, and read: whatever is read must be whole."""
    while time.time() < start:
        time.sleep(0.001)
    records = [doubling.record(rows=rows) for rows in (3, 300)]
    seen = 0
    for turn in range(60):
        cache.store_record(KEY, records[(turn + number) % 2])
        found = cache.load_record(KEY)
        seen += found in records
    return seen


def test_processes_write_at_once(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        start = time.time() + 1.0
        seen = pool.starmap(_write, [(start, number) for number in range(3)])
    assert seen == [60, 60, 60]
    assert len(entries(folder)) == 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("off", ["0", "off", "OFF"])
def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    monkeypatch.setenv(cache.VARIABLE, off)
    assert cache.folder() is None
    cache.store_record(KEY, RECORD)
    assert cache.load_record(KEY) is None


def test_by_default_it_is_the_users_cache_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = cache.folder()
    assert found is not None
    assert found.name == "egraph_flash"


def test_a_folder_that_cannot_be_written_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = folder / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv(cache.VARIABLE, str(blocked))
    cache.store_record(KEY, RECORD)
    assert "was not written" in capsys.readouterr().err
    assert cache.load_record(KEY) is None


def test_cubins_are_kept_for_each_assembler(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    calls = []

    def assemble(ptx: str, target: str) -> Assembly:
        calls.append(target)
        return assemble_text(ptx, target)

    monkeypatch.setattr(f"{ASSEMBLER}.assemble", assemble)
    first = cache.assembled(doubling.ptx(), "sm_120")
    assert cache.assembled(doubling.ptx(), "sm_120") == first
    assert calls == ["sm_120"]
    cache.assembled(doubling.ptx(target="sm_90"), "sm_90")
    monkeypatch.setattr(f"{ASSEMBLER}.assembler_version", lambda: "nvJitLink 99.0")
    cache.assembled(doubling.ptx(), "sm_120")
    assert calls == ["sm_120", "sm_90", "sm_120"]
    assert len(entries(folder)) == 3
