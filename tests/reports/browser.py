"""A headless Chromium, driven over a pipe by the DevTools protocol: no port, no package, one process for many pages."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def program() -> str:
    """The path of Chromium. Raises FileNotFoundError with what to install."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise FileNotFoundError("no Chromium here: apt-get install chromium")


@dataclass
class Page:
    """One open page: what it logged, and the addresses that it asked for."""

    browser: Browser
    session: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        return self.browser.send(method, self.session, **parameters)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def resize(self, width: int, height: int, dark: bool = False, media: str = "") -> None:
        """The window, the colour scheme that the system asks for, and the medium (`print`)."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def picture(self, whole: bool = False) -> str:
        """A PNG of the window, or of the whole page, in base64."""
        data: str = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        return data


@dataclass
class Browser:
    """The process and the two ends of its pipe."""

    process: subprocess.Popen[bytes]
    commands: Any
    answers: Any
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    pages: dict[str, Page] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command, take note of every event before its answer, and give the result."""
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            if not byte:
                raise AssertionError(f"Chromium ended with {self.process.wait()}")
            text += byte
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._note(message)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        page = self.pages.get(event.get("sessionId", ""))
        if page is None:
            return
        details = event["params"]
        if event["method"] == "Network.requestWillBeSent":
            page.requests.append(details["request"]["url"])
        elif event["method"] == "Runtime.consoleAPICalled":
            page.console.append(f"{details['type']}: {details['args']}")
        elif event["method"] == "Runtime.exceptionThrown":
            page.console.append(f"exception: {details['exceptionDetails']}")
        elif event["method"] == "Log.entryAdded":
            page.console.append(f"{details['entry']['level']}: {details['entry']['text']}")

    def open(self, path: Path) -> Page:
        """Open a file in a page of its own and wait until it has loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        self.events.clear()
        page.send("Page.navigate", url=path.as_uri())
        while not any(e["method"] == "Page.loadEventFired" and e.get("sessionId") == session for e in self.events):
            self._next()
        return page


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with an empty profile, closed at the end."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="dgw-browser-", ignore_cleanup_errors=True) as profile:
        # the protocol reads from descriptor 3 and writes to 4
        shell = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        command = ["bash", "-c", shell, "browser", program(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": profile},
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        browser = Browser(process, os.fdopen(to_write, "wb"), os.fdopen(from_read, "rb", buffering=1 << 16))
        try:
            yield browser
            browser.send("Browser.close")
        finally:
            process.kill()
            process.wait()
            browser.commands.close()
            browser.answers.close()
