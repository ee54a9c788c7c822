"""How the Java that Spark needs is found, and what a user without one is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import Shell

import penstock
from penstock.pipeline import java
from penstock.pipeline.java import Java, System, find_java, java_hint, missing_java

APT = System(frozenset({"apt", "sudo"}))
DEBIAN_12 = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'
UBUNTU_22 = 'NAME="Ubuntu"\nVERSION_CODENAME=jammy\nID=ubuntu\nUBUNTU_CODENAME=jammy\n'
LMDE_6 = 'NAME="LMDE"\nVERSION_CODENAME=faye\nID=linuxmint\nDEBIAN_CODENAME=bookworm\n'
FEDORA = 'NAME="Fedora Linux"\nID=fedora\nVERSION_CODENAME=""\nVERSION_ID=42\n'
MADISON = """\
openjdk-21-jre-headless | 21.0.9+10-1~24.04 | http://archive.ubuntu.com/ubuntu noble-updates/main amd64 Packages
openjdk-21-jre-headless | 21.0.2+13-2 | http://archive.ubuntu.com/ubuntu noble/main amd64 Packages
openjdk-17-jre-headless | 17.0.17+10-1~24.04 | http://archive.ubuntu.com/ubuntu noble-updates/universe amd64 Packages
"""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)\n', 17),
        ('openjdk version "21" 2023-09-19\n', 21),
        ('openjdk version "25-ea" 2025-09-16\n', 25),
        ('java version "1.8.0_401"\nJava(TM) SE Runtime Environment (build 1.8.0_401-b10)\n', 8),
        ('java version "11.0.2" 2019-01-15 LTS\n', 11),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion="3"\nopenjdk version "17.0.9" 2023-10-17 IBM Semeru\n', 17),
        ("The operation could not be completed. Unable to locate a Java Runtime.\n", None),
        ("", None),
    ],
    ids=["debian", "plain", "early access", "java 8", "oracle", "tool options", "macos", "none"],
)
def test_parse_version_returns_the_major_version(text: str, version: int | None):
    assert java.parse_version(text) == version


def install(folder: Path, version: str) -> Path:
    """Make a folder like that of a JDK, with a java command that prints a version; returns its bin folder."""
    folder.joinpath("bin").mkdir(parents=True)
    command = folder / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return command.parent


def test_find_java_prefers_java_home_to_the_path(tmp_path: Path):
    old, new = install(tmp_path / "old", "11.0.2"), install(tmp_path / "new", "21.0.1")
    found = find_java({"PATH": str(old)})
    assert (found.version, found.is_enough) == (11, False)
    assert found.problem == f"{old / 'java'} is Java 11"
    found = find_java({"PATH": str(old), "JAVA_HOME": str(new.parent)})
    assert (found.version, found.is_enough, found.command) == (21, True, str(new / "java"))


def test_find_java_takes_a_home_without_java_for_no_java(tmp_path: Path):
    """Spark starts what JAVA_HOME has, and does not search PATH."""
    path = str(install(tmp_path / "new", "21.0.1"))
    found = find_java({"PATH": path, "JAVA_HOME": str(tmp_path)})
    assert not found.is_enough and found.problem == f"JAVA_HOME is {tmp_path}, which has no bin/java"
    assert find_java({"PATH": path, "JAVA_HOME": ""}).is_enough


def test_find_java_takes_a_command_that_prints_no_version_for_no_java(tmp_path: Path):
    command = install(tmp_path, "21") / "java"
    command.write_text("no program\n")
    found = find_java({"PATH": str(tmp_path / "bin")})
    assert not found.is_enough and found.problem == f"{command} prints no version"
    assert find_java({"PATH": str(tmp_path)}) == Java(None)
    assert Java(None).problem == "no java command is in PATH"


@pytest.mark.parametrize(
    ("text", "release"),
    [(DEBIAN_12, "bookworm"), (UBUNTU_22, "jammy"), (LMDE_6, "bookworm"), (FEDORA, ""), ("", "")],
    ids=["debian", "ubuntu", "lmde", "fedora", "none"],
)
def test_parse_release_returns_the_code_name_that_packages_depend_on(text: str, release: str):
    assert java.parse_release(text) == release


def test_parse_packages_returns_the_versions_that_apt_offers():
    assert java.parse_packages(MADISON) == {17, 21}
    assert java.parse_packages("N: Unable to locate package openjdk-21-jre-headless\n") == frozenset()


@pytest.mark.parametrize(
    ("packages", "release", "command"),
    [
        ({17}, "bookworm", "sudo apt install openjdk-17-jre-headless"),
        ({17, 21, 25}, "noble", "sudo apt install openjdk-21-jre-headless"),
        ({25}, "forky", "sudo apt install openjdk-25-jre-headless"),
        (None, "bookworm", "sudo apt install openjdk-17-jre-headless"),
        (None, "jammy", "sudo apt install openjdk-21-jre-headless"),
        (None, "", "sudo apt install default-jre-headless"),
        (set(), "trixie", "sudo apt update && sudo apt install openjdk-21-jre-headless"),
    ],
)
def test_the_hint_names_a_package_that_the_release_has(packages: set[int] | None, release: str, command: str):
    offered = None if packages is None else frozenset(packages)
    assert java_hint(System(APT.commands, release, offered)) == command


def test_the_hint_asks_for_the_rights_that_are_missing():
    assert java_hint(System(frozenset({"dnf", "sudo"}), is_root=True)) == "dnf install java-21-openjdk-headless"
    assert java_hint(System(frozenset({"dnf", "sudo"}))) == "sudo dnf install java-21-openjdk-headless"
    assert java_hint(System(frozenset({"apt"}), "noble", frozenset())) == (
        "su -c 'apt update && apt install openjdk-21-jre-headless'"
    )


def test_the_hint_for_homebrew_sets_java_home():
    assert java_hint(System(frozenset({"brew", "sudo"}))) == (
        "brew install openjdk@21 && export JAVA_HOME=$(brew --prefix openjdk@21)"
    )


def test_the_hint_removes_a_java_home_that_would_hide_the_new_java():
    assert java_hint(System(frozenset({"dnf"}), is_root=True, has_java_home=True)) == (
        "unset JAVA_HOME && dnf install java-21-openjdk-headless"
    )


def test_the_hint_without_a_package_manager_names_a_download():
    assert java_hint(System()) == "download Java 21 from https://adoptium.net and set JAVA_HOME to its folder"


def test_read_system_finds_commands_and_the_release(tmp_path: Path):
    file = tmp_path / "os-release"
    file.write_text(DEBIAN_12)
    system = java.read_system({"JAVA_HOME": "/opt/jdk"}, {"brew": "/opt/brew"}.get, file)
    assert (system.commands, system.release, system.packages) == ({"brew"}, "bookworm", None)
    assert system.has_java_home
    assert java.read_system({}, {}.get, tmp_path / "none") == System(is_root=system.is_root)


def test_missing_java_returns_what_was_found_and_the_command():
    assert missing_java(Java("/usr/bin/java", 17)) is None
    assert missing_java(Java("/usr/bin/java", 11), System(frozenset({"dnf"}), is_root=True)) == (
        "Spark needs Java 17 or later, and /usr/bin/java is Java 11; "
        "to install it: dnf install java-21-openjdk-headless"
    )


def test_java_py_is_loaded_without_the_package():
    """tools/install.py does so before anything is installed."""
    code = (
        "import importlib.util, sys; "
        "spec = importlib.util.spec_from_file_location('java', sys.argv[1]); "
        "java = sys.modules['java'] = importlib.util.module_from_spec(spec); spec.loader.exec_module(java); "
        "print(java.find_java({'PATH': ''}).problem)"
    )
    command = [sys.executable, "-I", "-S", "-c", code, java.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "no java command is in PATH\n"


def test_the_pipeline_without_java_fails_with_the_command_that_installs_it(shell: Shell, tmp_path, monkeypatch):
    for name in ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    dnf = tmp_path / "bin" / "dnf"
    dnf.parent.mkdir()
    dnf.touch(0o755)
    monkeypatch.setenv("PATH", str(dnf.parent))
    with penstock.connect(shell.folder / "tasks.db") as queue:
        queue.create_tube("mail")
    ran = shell.inside("pipeline", "run", "lake")
    assert ran.status == 64
    assert "Spark needs Java 17 or later, and no java command is in PATH; to install it: " in ran.err
    assert "dnf install java-21-openjdk-headless" in ran.err and ran.err.count("\n") == 1
