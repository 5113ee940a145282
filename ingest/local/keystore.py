"""A certificate for the embedded broker, made by Java's own keytool: nothing to install, and of any validity that a test wants."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ingest.errors import Unfit
from ingest.local import java
from ingest.local.broker_config import HOST

# Only the time for four small JVMs.
_DEADLINE_S = 60.0
_QUICK_JVM = "-J-XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Validity:
    """When the broker's certificate is valid: from `since_days` days ago, for `days` days. Validity(days=5, since_days=10) has expired."""

    days: int = 3650
    since_days: int = 0

    def __post_init__(self) -> None:
        if self.days < 1 or self.since_days < 0:
            raise ValueError(f"a certificate is valid for at least a day, since today or earlier, not {self}")


@dataclass(frozen=True)
class Keystore:
    """What a folder holds once `make` is done: the broker's key and certificate, and the authority that clients trust."""

    folder: Path

    @property
    def path(self) -> Path:
        """PKCS12: the broker's key, with the chain of its certificate."""
        return self.folder / "keystore.p12"

    @property
    def authority(self) -> Path:
        """PEM: the certificate of the authority, for ssl.truststore.location of clients."""
        return self.folder / "ca.pem"

    @property
    def password(self) -> str:
        return self._password_file.read_text(encoding="utf-8")

    @property
    def _password_file(self) -> Path:
        return self.folder / "keystore.password"

    def make(self, validity: Validity) -> None:
        """Make a fresh authority, and a key and certificate for 127.0.0.1, in place of what was there.

        The authority signs and is thrown away: a certificate that is trusted itself would not be looked at for its dates by Java.
        Raises Unfit KEYTOOL_MISSING or KEYTOOL_FAILED, and the errors of java.find.
        """
        tool = _keytool()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in (self.path, self.authority):
            old.unlink(missing_ok=True)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24), encoding="utf-8")
        key = ["-keyalg", "EC", "-groupname", "secp256r1"]
        issued = ["-startdate", f"-{validity.since_days}d", "-validity", str(validity.days)]
        # The authority is older than what it signs.
        ca = ["-alias", "ca", "-dname", "CN=Oncelake's embedded broker", "-ext", "bc:c", "-startdate", "-3650d", "-validity", "7300"]
        self._run(tool, "-genkeypair", *ca, *key, "-storetype", "PKCS12")
        self._run(tool, "-genkeypair", "-alias", "broker", "-signer", "ca", "-dname", f"CN={HOST}", "-ext", f"san=ip:{HOST}", *key, *issued)
        self._run(tool, "-exportcert", "-rfc", "-alias", "ca", "-file", str(self.authority))
        self._run(tool, "-delete", "-alias", "ca")  # of two keys in a store the broker would take any
        self.path.chmod(0o600)

    def _run(self, tool: Path, *words: str) -> None:
        # The password goes by file: a command line is for everybody to read.
        store = ["-keystore", str(self.path), "-storepass:file", str(self._password_file)]
        try:
            command = [str(tool), _QUICK_JVM, *words, *store]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
            said = "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        if said:
            expected = f"a certificate for {HOST} in {self.folder}."
            raise Unfit("KEYTOOL_FAILED", f"{tool} {words[0]}: {said[:300]}", expected=expected, remedy="mend what it says.")


def _keytool() -> Path:
    """keytool of the Java that the broker runs on."""
    found = java.find()
    tool = shutil.which("keytool", path=f"{found.home / 'bin'}")
    if tool is None:
        raise Unfit(
            "KEYTOOL_MISSING",
            f"{found.home / 'bin'} holds no keytool.",
            expected="keytool beside java, as every JRE and JDK has it.",
            remedy=java.GET_JAVA,
        )
    return Path(tool)
