"""A headless Chromium, driven through the DevTools protocol over two pipes, without a port, a driver or a package."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
WITHIN_S = 60.0


def find() -> str | None:
    """The browser's command, or None if no browser is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page and its own profile. At the end, both are removed.

    `asked` contains the addresses that pages requested other than files. `problems` contains the browser's own messages (blocked, not
    found, exceptions).
    """

    def __init__(self, command: str) -> None:
        # Not in the test's own folder: the profile contains sockets, whose paths must be short.
        self.profile = Path(tempfile.mkdtemp(prefix="browser-"))
        self.asked: list[str] = []
        self.problems: list[str] = []
        self._number = 0
        self._buffer = b""
        self._loaded = False
        theirs, self._to = map(_above_the_protocols, os.pipe())
        self._from, mine = map(_above_the_protocols, os.pipe())
        options = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
        options += [f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"]
        if os.geteuid() == 0:  # Chromium's sandbox refuses root
            options.insert(0, "--no-sandbox")
        # Chromium expects the protocol's pipes as descriptors 3 and 4.
        script = f'exec "$@" 3<&{theirs} 4>&{mine}'
        self._log = self.profile / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", script, "bash", command, *options],
                pass_fds=(theirs, mine),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HOME": str(self.profile), "TMPDIR": str(self.profile), "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
            )
        os.close(theirs)
        os.close(mine)
        self._session: str | None = None
        try:
            (page,) = (each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page")
            self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Log", "Runtime"):
                self._call(f"{domain}.enable")
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def open(self, page: Path | str) -> None:
        """Open a file or an address and wait until it is loaded."""
        found = self._call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        assert "errorText" not in found, found
        self.wait_loaded()

    def wait_loaded(self) -> None:
        """Wait until the page requested by `open` or by a click is loaded."""
        self._read_until(lambda: self._loaded)
        self._loaded = False

    def evaluate(self, expression: str, *, wait: bool = False) -> Any:
        """The value of a JavaScript expression in the page. It must be JSON-serializable. `wait`: it is a promise."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """The visible text of the first element that matches the selector."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def emulate(self, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Show pages in a window of this size (CSS pixels), with this preferred color scheme."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setScrollbarsHidden", hidden=True)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key: str) -> None:
        """Press and release a key, such as `Tab`."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """The whole page as a PNG, or only what the window shows."""
        import base64

        file.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))

    def end(self) -> None:
        """Close the browser, end all its processes and remove its profile."""
        self._session = None
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            self._call("Browser.close")
        os.close(self._to)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._from)
        deadline = time.monotonic() + WITHIN_S
        while self.profile.exists() and time.monotonic() < deadline:  # a killed process may still be writing
            shutil.rmtree(self.profile, ignore_errors=True)
        assert not self.profile.exists()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer: dict[str, Any] = {}

        def answered() -> bool:
            return bool(answer)

        self._read_until(answered, answer)
        assert "error" not in answer, (method, answer)
        found: dict[str, Any] = answer["result"]
        return found

    def _read_until(self, done: Any, answer: dict[str, Any] | None = None) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not done():
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError(f"the browser sent nothing for {WITHIN_S:.0f} s")
                piece = os.read(self._from, 1 << 16)
                if not piece:
                    raise EOFError(f"the browser has ended: {self._log.read_text(errors='replace')[-2000:]}")
                self._buffer += piece
            raw, _, self._buffer = self._buffer.partition(b"\0")
            message = json.loads(raw)
            if message.get("id") == self._number and answer is not None:
                answer.update(message)
            else:
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent" if not parameters["request"]["url"].startswith(("file:", "about:", "data:")):
                self.asked.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.problems.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.problems.append(parameters["exceptionDetails"]["text"])


def _above_the_protocols(descriptor: int) -> int:
    """The descriptor, moved to a number that the shell does not overwrite when it creates descriptors 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved
