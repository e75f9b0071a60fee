# SPDX-License-Identifier: MIT
"""A headless Chromium for tests, driven by its DevTools protocol through a pipe."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time

PROGRAM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Browser:
    """One tab. Ends with the test."""

    def __init__(self, test, folder):
        self.test = test
        self.folder = folder
        self.events = []
        self.number = 0
        self.buffer = b""
        os.makedirs(folder, exist_ok=True)  # also for what it leaves behind when it is killed
        to_read, self.to = os.pipe()
        self.from_, to_write = os.pipe()

        def before():  # it reads from file 3 and writes to file 4
            os.dup2(to_read, 13)
            os.dup2(to_write, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb", "--hide-scrollbars",
             f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=before, close_fds=False,
            start_new_session=True,
            env={**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder, "TMPDIR": folder})
        os.close(to_read)
        os.close(to_write)
        test.addCleanup(self.end)
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def end(self):
        """Its other processes end a moment after the first, and may still write to the folder."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        end = time.monotonic() + 30
        while os.path.exists(self.folder) and time.monotonic() < end:
            shutil.rmtree(self.folder, ignore_errors=True)
            time.sleep(0.02)
        os.close(self.to)
        os.close(self.from_)

    def receive(self, timeout):
        """The next message, or None."""
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            if not select.select([self.from_], [], [], max(0, end - time.monotonic()))[0]:
                return None
            part = os.read(self.from_, 1 << 16)
            self.test.assertTrue(part, "Chromium has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60)
            self.test.assertIsNotNone(answer, f"no answer to {method}")
            if answer.get("id") != self.number:
                self.events.append(answer)
                continue
            self.test.assertNotIn("error", answer, method)
            return answer["result"]

    def run(self, script):
        """The value of an expression, which may be a promise."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        self.test.assertNotIn("exceptionDetails", found, script)
        return found["result"].get("value")

    def wait(self, script, seconds=60):
        """Until an expression is true. Its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        return self.test.fail(f"{script} is {value!r}; the page is {self.run('document.body.innerText')!r}")

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.wait("document.readyState == 'complete'")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code, modifiers=0):
        text = {"text": "\r"} if name == "Enter" and not modifiers else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=modifiers, **text)

    def size(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, name):
        """Kept if MOE_PICTURES names a folder, for people."""
        folder = os.environ.get("MOE_PICTURES")
        if not folder:
            return
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name + ".png"), "wb") as f:
            f.write(data)

    def complaints(self):
        """Errors of scripts, of the policy, and of requests, so far."""
        self.run("1")
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        return found

    def addresses(self):
        """Those of all requests so far."""
        self.run("1")
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
