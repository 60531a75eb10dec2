"""A headless Chromium that a test steers over the DevTools protocol: it opens a page, evaluates scripts in it."""

import contextlib
import json
import os
import select
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.browser.chromium import CHROMIUM, FLAGS, TIMEOUT

REPORT_VIOLATIONS: Final = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


class Tab:
    """One page of one browser. Use it as a context manager: at the end the browser is gone."""

    def __init__(self, url: str, profile: Path) -> None:
        assert CHROMIUM is not None
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._log = (profile.parent / f"{profile.name}.log").open("wb")
        self._process = subprocess.Popen(
            # Chromium reads commands from descriptor 3 and writes answers to 4
            [
                *("bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", CHROMIUM, *FLAGS),
                *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(commands, answers),
            start_new_session=True,  # it has many processes, which end together
        )
        os.close(commands)
        os.close(answers)
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.requested: list[str] = []
        """The URLs that the page has asked for."""
        [target] = [each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self._call("Network.enable")
        self._call("Page.enable")
        self._call("Page.addScriptToEvaluateOnNewDocument", source=REPORT_VIOLATIONS)
        self._call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - JSON
        """Return the value of an expression in the page. Raises AssertionError if it throws."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
        os.close(self._commands)
        os.close(self._answers)

    def _call(self, method: str, **params: object) -> Any:  # noqa: ANN401 - JSON
        """Send one command and return its result."""
        self._number += 1
        command: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("method") == "Network.requestWillBeSent":
                self.requested.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> Any:  # noqa: ANN401 - JSON
        """Return the next answer or event. Raises AssertionError if none comes."""
        while b"\0" not in self._unread:
            assert select.select([self._answers], [], [], TIMEOUT)[0], "Chromium does not answer"
            piece = os.read(self._answers, 1 << 16)
            assert piece, "Chromium has ended"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)
