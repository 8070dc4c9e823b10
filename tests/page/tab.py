"""A page of the server in chromium, and what the checks of page.py ask of it. Exits with 77 where that cannot be had."""
import json
import os
import re
import shutil
import sys


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    skip("the Python package playwright is missing (pip install playwright)")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
if not CHROMIUM:
    skip("chromium is missing (Debian: chromium)")

expect.set_options(timeout=20000)  # a loaded machine is slow

DESKTOP = {"width": 1360, "height": 860}

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", e => violations.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


def fulfil_events(body, route):
    route.fulfill(content_type="text/event-stream", body=body)


class Tab:
    """A page of its own browser profile. As a context: at its end nothing may have been complained about."""

    def __init__(self, browser, server, folder, settings=(), expected=None, **options):
        self.server, self.folder, self.expected = server, folder, expected
        self.origin, self.faults, self.asked = f"http://127.0.0.1:{server.port}", [], []
        self.context = browser.new_context(**{"viewport": DESKTOP, **options})
        self.context.set_default_timeout(20000)
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.on("console", self.take_message)
        self.page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        self.context.on("request", self.take_request)
        stored = {"temperature": "0", **dict(settings)}
        self.context.add_init_script("localStorage.getItem('limpid.settings') || localStorage.setItem('limpid.settings', "
                                     f"{json.dumps(json.dumps(stored))})")

    def take_message(self, message):
        if not (self.expected and re.search(self.expected, message.text)):
            self.faults.append(f"console: {message.text}")

    def take_request(self, request):
        self.asked.append(request.url)
        if not request.url.startswith((self.origin + "/", "data:", "blob:" + self.origin)):
            self.faults.append(f"a request to {request.url}")

    def __enter__(self):
        self.page.goto(self.origin + "/")
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.faults += self.page.evaluate("window.violations")
            assert self.page.evaluate("window.hacked") is None, "a text was run as a script"
            assert not self.faults, self.faults
        elif self.folder:
            self.shot("failed")
        self.context.close()

    def shot(self, name):
        if self.folder:
            self.page.screenshot(path=self.folder / f"{name}.png")

    def one(self, selector):
        return self.page.locator(selector)

    def button(self, name, last=True):
        found = self.page.get_by_role("button", name=name, exact=True)
        return found.last if last else found.first

    def ask(self, text, wait=True):
        self.one("#input").fill(text)
        self.one("#input").press("Enter")
        if wait:
            self.wait()

    def wait(self):
        """Until the answer is there: its buttons come when it is complete."""
        expect(self.one("#stop")).to_be_hidden(timeout=60000)
        expect(self.one(".message").last).to_have_class("message assistant")

    def answer(self):
        return self.one(".message.assistant").last.locator(".body").inner_text()

    def stream(self, *texts, status=200):
        """The next answers of the server are these texts, in pieces of five characters."""
        def fulfil(route):
            text = texts[min(self.n_streamed, len(texts) - 1)]
            self.n_streamed += 1
            if status != 200:
                return route.fulfill(status=status, json={"error": {"message": text}})
            pieces = [{"choices": [{"index": 0, "delta": {"content": text[i:i + 5]}, "finish_reason": None}]} for i in range(0, len(text), 5)]
            pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            body = "".join(f"data: {json.dumps(p)}\n\n" for p in pieces) + "data: [DONE]\n\n"
            return route.fulfill(status=200, content_type="text/event-stream", body=body)
        self.n_streamed = 0
        self.page.unroute("**/v1/chat/completions")
        self.page.route("**/v1/chat/completions", fulfil)

    def add_to_requests(self, **fields):
        """The page's next requests for an answer have these fields too."""
        self.page.route("**/v1/chat/completions", lambda route: route.continue_(post_data=json.dumps({**route.request.post_data_json, **fields})))

    def no_sideways_scroll(self, where):
        width, room = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= room, f"{where}: {width} pixels wide on a screen of {room}"
        for name in ("#log", "#live", "#list", "dialog[open]"):
            wide = self.page.evaluate("n => { const e = document.querySelector(n); return e && e.scrollWidth - e.clientWidth }", name)
            assert not wide or wide <= 0, f"{where}: {name} is {wide} pixels too wide"
