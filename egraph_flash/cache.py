"""What earlier runs compiled: kernel records and cubins on disk, found again by their content."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .record import Record, from_json, to_json

if TYPE_CHECKING:
    from .runtime.assembler import Assembly

VARIABLE = "EGRAPH_FLASH_CACHE"
_OFF = ("0", "off")

Read = TypeVar("Read")


def folder() -> Path | None:
    """Where entries lie: $EGRAPH_FLASH_CACHE, else the user's cache folder; None where it is off.

    The variable is read anew each time; "0" and "off" turn the cache off.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return None if given.lower() in _OFF else Path(given)
    import platformdirs

    return Path(platformdirs.user_cache_dir("egraph_flash", appauthor=False))


@functools.cache
def source_digest(root: Path = Path(__file__).parent) -> str:
    """The content of the package's own Python files: any edit makes other kernels.

    Reading them all takes a few milliseconds, so no timestamps are trusted.
    """
    digest = hashlib.sha256()
    paths = []
    for where, _, names in os.walk(root, followlinks=True):  # rules/ and codegen/ may be links
        paths += [os.path.join(where, name) for name in names if name.endswith(".py")]
    for path in sorted(paths):
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.relpath(path, root)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def kernel_key(
    expression: str, target: str, pins: Mapping[str, str], own: Sequence[str] = ()
) -> str:
    """The key of a kernel: its expression as text, its target, its pins, and our own sources.

    `own` are the definitions of monoids and laws that a user registered.
    """
    pinned = [f"{name}={pins[name]}" for name in sorted(pins)]
    defined = _key(*own) if own else ""
    return _key("kernel", source_digest(), target, defined, expression, *pinned)


def _key(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode())
        digest.update(encoded)
    return digest.hexdigest()


def load_record(key: str) -> Record | None:
    """The record kept under a key; None where there is none or it does not read back."""
    return _load(f"{key}.kernel", lambda payload: from_json(payload.decode()))


def store_record(key: str, record: Record) -> None:
    _store(f"{key}.kernel", to_json(record).encode())


def assembled(ptx: str, target: str) -> Assembly:
    """PTX text as a cubin for `target`: from the cache, else assembled and kept."""
    from .runtime.assembler import Assembly, assemble, assembler_version

    name = f"{_key('cubin, remarks', assembler_version(), target, ptx)}.cubin"
    found = _load(name, Assembly.from_bytes)
    if found is None:
        found = assemble(ptx, target)
        _store(name, found.to_bytes())
    return found


def _load(name: str, read: Callable[[bytes], Read]) -> Read | None:
    """An entry as `read` makes of it; one that is damaged is dropped, with a line on stderr."""
    here = folder()
    if here is None:
        return None
    path = here / name[:2] / name
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, _, payload = stored.partition(b"\n")
    try:
        if digest.decode() != hashlib.sha256(payload).hexdigest():
            raise ValueError("its checksum disagrees")
        return read(payload)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"egraph_flash: cache entry {path} is damaged ({error}); rebuilt", file=sys.stderr)
        with contextlib.suppress(OSError):
            path.unlink()
        return None


def _store(name: str, payload: bytes) -> None:
    """Write an entry whole or not at all: readers see the old file or the new one, never a part.

    A cache that cannot be written is no error: one line on stderr says so.
    """
    import tempfile

    here = folder()
    if here is None:
        return
    path = here / name[:2] / name
    stored = hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(stored)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        print(f"egraph_flash: cache entry {path} was not written: {error}", file=sys.stderr)
