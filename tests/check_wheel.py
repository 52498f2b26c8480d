"""Does the package survive packaging? Builds it, and imports the wheel from another folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# run in another folder: every module of the installed package imports, from where it was installed
IMPORT_ALL = """
import importlib, pathlib, pkgutil, sys
import egraph_flash
home = pathlib.Path(egraph_flash.__file__).parent
assert home == pathlib.Path(sys.argv[1], "egraph_flash"), home
names = [module.name for module in pkgutil.walk_packages([str(home)], "egraph_flash.")]
for name in names:
    importlib.import_module(name)
print(f"wheel: {len(names)} modules import from {home.parent}")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "--outdir", folder, str(ROOT), quiet=True)
        (wheel,) = Path(folder).glob("*.whl")
        missing = sources() - set(zipfile.ZipFile(wheel).namelist())
        if missing:
            sys.exit(f"wheel: lacks {sorted(missing)}; wants their packages in pyproject.toml")
        site = str(Path(folder).resolve() / "site")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run(*pip, "--no-deps", "--target", site, str(wheel))
        run(sys.executable, "-c", IMPORT_ALL, site, cwd=folder, env={"PYTHONPATH": site})


def sources() -> set[str]:
    """The package's files as they must stand in the wheel; rules/ and codegen/ are links."""
    found: set[str] = set()
    for where, _, names in os.walk(ROOT / "egraph_flash", followlinks=True):
        paths = (Path(where, name).relative_to(ROOT) for name in names)
        found |= {path.as_posix() for path in paths if path.suffix in (".py", ".npz", ".typed")}
    return found


def run(
    *command: str, cwd: str | None = None, env: dict[str, str] | None = None, quiet: bool = False
) -> None:
    """One command; its output is shown only where it fails, if `quiet`."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=quiet, text=True
    )
    if done.returncode:
        sys.exit(f"wheel: {' '.join(command)} failed\n{done.stdout or ''}{done.stderr or ''}")


if __name__ == "__main__":
    main()
