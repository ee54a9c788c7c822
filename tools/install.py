"""Install what a make target needs into .venv: `python3 tools/install.py demo | tools | test | bench`.

Runs on the standard library alone, before anything is installed. The packages are installed by uv, which takes a third
of pip's time; pip takes over where uv fails, for example because only pip knows the package index. A stamp in .venv
records what was installed, so a second run returns at once.

PySpark has no wheel on the package index: it is built from 450 MB of source. Storing the files of that wheel without
compression saves most of the build. The demo does without PySpark where there is no Java to run it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
import venv
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
PURPOSES = {
    "demo": ["base"],
    "tools": ["base", "spark", "test"],
    "test": ["base", "spark", "test"],
    "bench": ["base", "spark", "test", "bench"],
}
"""The files in requirements/ for each purpose; the demo has `spark` too where there is Java.

`test` and `bench` start Spark, so they fail without Java. `tools` needs its package alone, for the types.
"""
UV = "uv==0.13.8"
UNCOMPRESSED = "--build-option=--compression=stored"
QUIET = ["--quiet", "--quiet"]
REFRESH = 0.5
"""Seconds between two updates of the progress line."""


def main(purpose: str) -> None:
    names = PURPOSES[purpose]
    if purpose != "tools":
        missing_java = find_missing_java()
        if purpose == "demo" and missing_java is None:
            names = [*names, "spark"]
        elif purpose != "demo" and missing_java is not None:
            sys.exit(missing_java)
    files = [ROOT / "requirements" / f"{name}.txt" for name in names]
    stamp, wanted = VENV / f".installed-{'-'.join(names)}", fingerprint(files)
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    with tempfile.TemporaryFile() as log, Progress("installing into .venv", log) as progress:
        if not PYTHON.exists() or version_of_venv() != ".".join(map(str, sys.version_info[:3])):
            venv.create(VENV, clear=True)
        install(files, progress)
        stamp.write_text(wanted)


def find_missing_java() -> str | None:
    """Return why Spark cannot run here, None if it can; the pipeline's module knows, and imports nothing installed."""
    spec = spec_from_file_location("java", ROOT / "src" / "penstock" / "pipeline" / "java.py")
    assert spec is not None and spec.loader is not None
    java = sys.modules["java"] = module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(java)
    missing: str | None = java.missing_java()
    return missing


def version_of_venv() -> str:
    """The version of Python that .venv was made with."""
    lines = (VENV / "pyvenv.cfg").read_text().splitlines()
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("version ")), "")


def fingerprint(files: list[Path]) -> str:
    """A digest of everything that decides what is installed."""
    digest = hashlib.sha256(sys.version.encode())
    for file in [*files, ROOT / "pyproject.toml"]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def install(files: list[Path], progress: Progress) -> None:
    """Install the requirement files, and Penstock itself from this folder."""
    requirements = [word for file in files for word in ("-r", str(file))]
    package = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    options = ["install", "--disable-pip-version-check", *QUIET]
    # The pip of this Python, if it has one, installs uv into .venv; to install pip there first takes longer.
    pip_outside = [sys.executable, "-m", "pip", f"--python={PYTHON}", *options]
    pip = [str(PYTHON), "-m", "pip", *options]
    uv = [str(BIN / "uv"), "pip", "install", f"--python={PYTHON}", *QUIET]
    uncompressed = ["--config-settings-package", f"pyspark:{UNCOMPRESSED}"]

    has_uv = progress.run([*pip_outside, UV])
    if not has_uv:
        add_pip(progress)
        has_uv = progress.run([*pip, UV])
    if has_uv and progress.run([*uv, *uncompressed, *requirements]):
        done = progress.run([*uv, *package])
    else:
        add_pip(progress)
        done = progress.run([*pip, *requirements]) and progress.run([*pip, *package])
    if not done:
        sys.exit(f"the installation failed:\n{progress.output()}")


def add_pip(progress: Progress) -> None:
    """Make pip run in .venv; does nothing if it is there."""
    if not progress.run([str(PYTHON), "-m", "ensurepip"]):
        sys.exit("this Python has neither pip nor ensurepip; on Debian and Ubuntu: apt install python3-venv")


class Progress:
    """A line that shows how long the work has taken, rewritten on a terminal and printed twice elsewhere."""

    def __init__(self, text: str, log: IO[bytes]) -> None:
        self._text = text
        self._log = log
        self._began = time.monotonic()
        self._on_terminal = sys.stdout.isatty()

    def __enter__(self) -> Progress:
        if not self._on_terminal:
            print(self._text, flush=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            start = "\r" if self._on_terminal else ""
            print(f"{start}installed into .venv in {self._seconds()} s", flush=True)
        elif self._on_terminal:
            print()

    def _seconds(self) -> int:
        return round(time.monotonic() - self._began)

    def run(self, command: list[str]) -> bool:
        """Run a command with its output kept aside; returns whether it succeeded."""
        self._log.seek(0)
        self._log.truncate()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=ROOT) as it:
            while True:
                if self._on_terminal:
                    print(f"\r{self._text}: {self._seconds()} s", end="", flush=True)
                try:
                    return it.wait(REFRESH) == 0
                except subprocess.TimeoutExpired:
                    continue

    def output(self) -> str:
        """The output of the last command, its end if it is long."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-4000:].strip()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PURPOSES:
        sys.exit(f"usage: {sys.argv[0]} {' | '.join(PURPOSES)}")
    if sys.version_info < (3, 11):  # noqa: UP036 (an older Python comes this far)
        sys.exit(f"penstock needs Python 3.11 or later, this is {sys.version.split()[0]}; try make PYTHON=python3.12")
    main(sys.argv[1])
