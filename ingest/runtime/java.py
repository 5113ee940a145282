"""The Java that Spark and the embedded broker run on. It is located once; a wrong one is refused early, with install instructions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ingest.runtime.errors import InvalidEnvironment

# Spark 4.0 is built and tested for these two. On other versions it fails late, with messages that do not mention Java.
SUPPORTED = (17, 21)

WANTED = "Java 17 or 21."
GET_JAVA = (
    "install Java 17 (Debian and Ubuntu: apt install openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; "
    "macOS: brew install openjdk@17; elsewhere: Eclipse Temurin 17) and put its bin folder on PATH or set JAVA_HOME."
)

_ANSWER_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Java:
    """A supported Java: its home (the value for JAVA_HOME), its executable, its feature release (17 or 21)."""

    home: Path
    executable: Path
    version: int

    def __post_init__(self) -> None:
        if self.version not in SUPPORTED:
            raise InvalidEnvironment("JAVA_WRONG", f"Java {self.version} at {self.executable}.", expected=WANTED, remedy=GET_JAVA)


def find() -> Java:
    """The Java to use: the one in JAVA_HOME if that is set (Spark checks it first too), else the first on PATH.

    Every start of a JVM begins here, so this sets the locale for it. Raises InvalidEnvironment JAVA_MISSING if no Java runs, JAVA_WRONG
    if its version is not 17 or 21.
    """
    # Under LC_ALL=C, Java would look for the folder `ü` at `??`. Python uses UTF-8 there. If LC_ALL is not set, Python itself passes a
    # locale with UTF-8 to its child processes (PEP 538, PEP 540).
    if os.environ.get("LC_ALL") in ("C", "POSIX"):
        os.environ["LC_ALL"] = "C.UTF-8"
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find(java_home: str, search_path: str) -> Java:
    if java_home:
        executable = Path(java_home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise _missing(f"JAVA_HOME is {java_home} and contains no bin/java.")
    else:
        on_path = shutil.which("java", path=search_path)
        if on_path is None:
            raise _missing("no java on PATH, and JAVA_HOME is not set.")
        executable = Path(on_path)
    return _ask(executable)


def _ask(executable: Path) -> Java:
    """Ask the executable itself. On macOS every PATH has a `java` that only offers an install, and version managers put shims there."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _missing(f"{executable} does not run ({error}).") from error
    output = answer.stderr + answer.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    # Java 8 reports 1.8; Java 9 and later report the plain number.
    release = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", output, re.MULTILINE)
    if answer.returncode != 0 or home is None or release is None:
        raise _missing(f"{executable} does not report its version.")
    return Java(Path(home.group(1)), executable, int(release.group(1)))


def option(text: str) -> str:
    """One JVM option, quoted for a text of options as Spark's launcher splits it: a backslash in quotes keeps the next character."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def property_value(text: str) -> str:
    """A value for a properties file: Java reads the file as Latin-1, and a backslash starts an escape sequence."""
    return json.dumps(text)[1:-1]


def _missing(found: str) -> InvalidEnvironment:
    return InvalidEnvironment("JAVA_MISSING", found, expected=WANTED, remedy=GET_JAVA)
