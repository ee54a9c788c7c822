"""The Python stubs of wire/penstock.proto, as grpcio-tools makes them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

WIRE = Path(__file__).resolve().parent.parent / "src" / "penstock" / "wire"
PACKAGE = "penstock/wire/_generated"
NAMES = ("penstock_pb2.py", "penstock_pb2.pyi", "penstock_pb2_grpc.py")


@cache
def made() -> dict[str, str]:
    """The text of each stub, by file name."""
    with tempfile.TemporaryDirectory(prefix="stubs-") as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        # The file is said to lie where its stubs do, so that one imports the other by its full name.
        command = [f"-I{PACKAGE}={WIRE}", *outputs, f"{PACKAGE}/penstock.proto"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *command], check=True)
        return {name: (Path(folder) / PACKAGE / name).read_text() for name in NAMES}


def stub(name: str) -> str:
    """One of them."""
    return made()[name]
