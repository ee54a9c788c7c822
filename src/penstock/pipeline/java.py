"""The Java that Spark starts: whether it is there, and the command that installs it on this system.

The file uses the standard library alone and no other module of the package: tools/install.py loads it by its path,
before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST = 17
"""The oldest Java that Spark 4 runs on."""
TIMEOUT = 30.0
"""Seconds after which a command that was asked for versions is ended."""
PREFERRED = (21, 17, 25)
"""Versions with long support, the best tested with Spark first."""
BY_RELEASE = {"focal": 21, "bullseye": 17, "bookworm": 17, "jammy": 21, "noble": 21, "trixie": 21}
"""The package to name on releases of Ubuntu and Debian if apt does not list its packages; later ones have a default
that is new enough."""


@dataclass(frozen=True)
class Java:
    """The java command that Spark would start."""

    command: str | None
    """Its path; None if there is none."""
    version: int | None = None
    """Its major version; None if the command printed none."""
    home: str | None = None
    """The value of JAVA_HOME; if it is set, Spark does not search PATH."""

    @property
    def is_enough(self) -> bool:
        """Whether Spark runs on it."""
        return self.version is not None and self.version >= LEAST

    @property
    def problem(self) -> str:
        """Why Spark cannot run on it.

        >>> Java("/usr/bin/java", 11).problem
        '/usr/bin/java is Java 11'
        """
        if self.command is None:
            return f"JAVA_HOME is {self.home}, which has no bin/java" if self.home else "no java command is in PATH"
        return f"{self.command} " + ("prints no version" if self.version is None else f"is Java {self.version}")


@dataclass(frozen=True)
class System:
    """What the command that installs Java depends on."""

    commands: frozenset[str] = frozenset()
    """Of apt, brew, dnf and sudo, those in PATH."""
    release: str = ""
    """The code name of the release of Debian or Ubuntu, such as bookworm."""
    packages: frozenset[int] | None = None
    """Versions of Java that apt offers; empty if its lists were never downloaded, None if they could not be read."""
    is_root: bool = False
    has_java_home: bool = False


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find the java command as Spark does, in JAVA_HOME or else in PATH, and ask for its version."""
    home = environ.get("JAVA_HOME") or None
    path = os.path.join(home, "bin") if home else environ.get("PATH", os.defpath)
    command = shutil.which("java", path=path)
    return Java(command, None if command is None else parse_version(_run(command, "-version") or ""), home)


def parse_version(text: str) -> int | None:
    """Return the major version that `java -version` printed, None if it printed none.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_401"')
    (17, 8)
    """
    found = re.search(r'^\w+ version "(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(found[1]) if found else None


def missing_java(java: Java | None = None, system: System | None = None) -> str | None:
    """Return None if Spark can run on a Java, else an error text: what was found and how to install another one.

    java: the one to check; the one that find_java() returns if left out
    system: where it is to be installed; this machine if left out
    """
    java = find_java() if java is None else java
    if java.is_enough:
        return None
    return f"Spark needs Java {LEAST} or later, and {java.problem}; to install it: {java_hint(system)}"


def java_hint(system: System | None = None) -> str:
    """Return the command that installs a Java for Spark, or a sentence where no package manager is known.

    system: where it is to be installed; this machine if left out

    >>> java_hint(System(frozenset({"dnf", "sudo"})))
    'sudo dnf install java-21-openjdk-headless'
    """
    system = read_system() if system is None else system
    unset = "unset JAVA_HOME && " if system.has_java_home else ""
    if "apt" in system.commands:
        update = ["apt update"] if system.packages == frozenset() else []
        return unset + _as_root([*update, f"apt install {_choose_package(system)}"], system)
    if "dnf" in system.commands:
        return unset + _as_root(["dnf install java-21-openjdk-headless"], system)
    if "brew" in system.commands:
        # Homebrew links no JDK into its own bin folder.
        return "brew install openjdk@21 && export JAVA_HOME=$(brew --prefix openjdk@21)"
    return f"download Java {PREFERRED[0]} from https://adoptium.net and set JAVA_HOME to its folder"


def _choose_package(system: System) -> str:
    offered = [version for version in PREFERRED if version in (system.packages or ())]
    version = offered[0] if offered else BY_RELEASE.get(system.release)
    return "default-jre-headless" if version is None else f"openjdk-{version}-jre-headless"


def _as_root(commands: list[str], system: System) -> str:
    """Join commands that only the superuser may run."""
    if system.is_root or "sudo" in system.commands:
        return " && ".join(command if system.is_root else f"sudo {command}" for command in commands)
    return f"su -c '{' && '.join(commands)}'"


def read_system(
    environ: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
    release: Path = Path("/etc/os-release"),
) -> System:
    """Read what java_hint() depends on from this machine."""
    commands = frozenset(name for name in ("apt", "brew", "dnf", "sudo") if which(name))
    return System(
        commands,
        parse_release(release.read_text(errors="replace")) if release.is_file() else "",
        _ask_apt() if "apt" in commands else None,
        is_root=hasattr(os, "geteuid") and os.geteuid() == 0,
        has_java_home=bool(environ.get("JAVA_HOME")),
    )


def parse_release(text: str) -> str:
    """Return the code name in the text of /etc/os-release; for a derivative, that of the release it is built on.

    >>> parse_release('NAME="Linux Mint"\\nVERSION_CODENAME=wilma\\nUBUNTU_CODENAME=noble\\n')
    'noble'
    """
    values = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    names = ("UBUNTU_CODENAME", "DEBIAN_CODENAME", "VERSION_CODENAME")
    return next((values[name] for name in names if values.get(name)), "")


def parse_packages(text: str) -> frozenset[int]:
    """Return the versions of Java in the lines of `apt-cache madison`.

    >>> sorted(parse_packages("openjdk-17-jre-headless | 17.0.19+10-1~deb12u2 | bookworm/main"))
    [17]
    """
    return frozenset(int(version) for version in re.findall(r"^ *openjdk-(\d+)-jre-headless \|", text, re.MULTILINE))


def _ask_apt() -> frozenset[int] | None:
    text = _run("apt-cache", "madison", *(f"openjdk-{version}-jre-headless" for version in PREFERRED))
    return None if text is None else parse_packages(text)


def _run(*command: str) -> str | None:
    """Return what a command prints, None if it does not run; java prints its version on stderr."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
