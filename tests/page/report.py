#!/usr/bin/env python3
"""The page that `limpid doctor --html` writes, in a real browser.

    report.py LIMPID MODEL WRITE_REPORTS [FOLDER FOR SCREENSHOTS]

WRITE_REPORTS (write_reports.c) makes pages of reports that are made up: healthy, with faults, and hostile; LIMPID writes
one of MODEL. Each is opened as a person would, from its file. In every check a message on the console, a breach of the
page's content security policy or a request for anything is a fault. Contrasts are those of WCAG 2.
Needs chromium and the Python package playwright (tab.py).
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from tab import CHROMIUM, DESKTOP, WATCH, sync_playwright

PHONE = {"width": 360, "height": 740}
PAPER = {"width": 700, "height": 990}

# Of every element with text of its own: the contrast of its colour with the ground behind it, where that is too low.
CONTRAST = """() => {
    const parse = c => c.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; }
        return [255, 255, 255]; };
    return [...document.querySelectorAll("body *")].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())
            && e.tagName !== "title").map(e => {
        const style = getComputedStyle(e), a = light(parse(e.closest("svg") ? style.fill : style.color)), b = light(ground(e));
        return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.tagName + " " + e.getAttribute("class") + ": " + e.textContent.slice(0, 40)];
    }).filter(([c]) => c < 4.5);
}"""

# Parts that reach out of the page, or texts that reach out of their boxes.
WIDE = """() => [...document.querySelectorAll("main *")].filter(e => !e.closest("svg, thead") && (e.getBoundingClientRect().right > innerWidth + 1
    || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")).map(e => e.outerHTML.slice(0, 90))"""

# Texts of a plot that lie outside it, except those that were cut for their length.
OUTSIDE = """() => [...document.querySelectorAll("svg.plot")].flatMap(svg => { const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter(t => !t.textContent.endsWith("...")).filter(t => { const b = t.getBoundingClientRect();
        return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1; })
        .map(t => t.textContent) })"""

OVERLAP = """() => [...document.querySelectorAll("svg.plot")].flatMap(svg => { const out = [];
    for (const kind of ["x", "y"]) { const boxes = [...svg.querySelectorAll("text." + kind)].map(t => [t.getBoundingClientRect(), t.textContent]);
        boxes.forEach(([a, s], i) => boxes.slice(i + 1).forEach(([b, t]) => { if (a.left < b.right && b.left < a.right && a.top < b.bottom
            && b.top < a.bottom && !(t.endsWith("...") || s.endsWith("..."))) out.push(s + " / " + t); })); }
    return out; })"""


class Pages:
    def __init__(self, browser, folder, shots):
        self.browser, self.folder, self.shots = browser, folder, shots

    @contextlib.contextmanager
    def open(self, name, **options):
        faults, path = [], self.folder / f"{name}.html"
        context = self.browser.new_context(**{"viewport": DESKTOP, **options})
        context.add_init_script(WATCH)
        page = context.new_page()
        page.on("console", lambda message: faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"uncaught: {error}"))
        context.on("request", lambda request: request.url in (path.as_uri(),) or request.url.startswith("data:")
                   or faults.append(f"a request to {request.url}"))
        page.goto(path.as_uri())
        yield page
        faults += page.evaluate("window.violations")
        assert page.evaluate("window.hacked") is None, "a text was run as a script"
        assert not faults, faults
        context.close()

    def shot(self, page, name):
        if self.shots:
            page.screenshot(path=self.shots / f"report-{name}.png", full_page=True)


def check_every_page_on_every_screen(pages, names):
    for name in names:
        for where, options in (("desktop", {}), ("dark", {"color_scheme": "dark"}), ("phone", {"viewport": PHONE, "color_scheme": "dark"}),
                               ("paper", {"viewport": PAPER})):
            with pages.open(name, **options) as page:
                if where == "paper":
                    page.emulate_media(media="print")
                pages.shot(page, f"{name}-{where}")
                width, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
                assert width <= room, f"{name}, {where}: {width} pixels wide on a screen of {room}"
                for what, script in (("too wide", WIDE), ("contrast", CONTRAST), ("outside of a plot", OUTSIDE), ("labels overlap", OVERLAP)):
                    found = page.evaluate(script)
                    assert not found, f"{name}, {where}: {what}: {found[:5]}"


def check_the_verdict_is_seen_first(pages, _):
    for name, colour, word in (("healthy", "good", "Healthy"), ("ill", "bad", "2 faults found")):
        with pages.open(name, viewport=PHONE) as page:
            verdict = page.locator("#verdict")
            assert verdict.get_attribute("class") == colour and word in verdict.inner_text()
            assert verdict.bounding_box()["y"] < 200
    with pages.open("ill") as page:
        fault = page.locator(".faults li").first.inner_text()
        assert "layer 3, blk.3.attn_k_b.weight" in fault and "Convert the file again" in fault and "0.41" in fault, fault
        rows = page.locator("tbody tr:not(.stage)")
        assert rows.count() == 9 and page.locator(".badge.fault").count() == 3  # one of them in the tally
        assert page.locator("svg.plot").count() == 3 and page.locator("svg .bound").count() == 1


def check_plots_show_gaps_and_zeros(pages, _):
    with pages.open("ill") as page:
        plot = page.locator("svg.plot").first
        line = plot.locator(".line").get_attribute("d")
        assert line.count("M") == 2, "one value was not measured: the line has two parts"
        assert plot.locator(".dot").count() == 77 and plot.locator(".low").count() == 1
        assert "77 of 78 values are finite" in plot.get_attribute("aria-label")
    with pages.open("hostile") as page:
        plots = page.locator("svg.plot")
        assert plots.count() == 9
        for i in range(plots.count()):
            markup = plots.nth(i).evaluate("e => e.outerHTML").split("<title>")[0]
            assert "nan" not in markup and "inf" not in markup, markup
        assert plots.nth(0).locator(".empty").count() == 1


def check_pages_are_xml(pages, names):
    for name in names:
        text = (pages.folder / f"{name}.html").read_text(encoding="utf-8")
        xml.etree.ElementTree.fromstring(text)


def main():
    limpid, model, write_reports = sys.argv[1:4]
    shots = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    names, failed = ["healthy", "ill", "hostile", "model"], 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        subprocess.run([write_reports, folder], check=True)
        done = subprocess.run([limpid, "doctor", model, "--quick", "--html", f"{folder}/model.html"], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"limpid doctor ended with {done.returncode}: {done.stderr[-1500:]}")
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium's sandbox does not work for root
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        pages = Pages(browser, pathlib.Path(folder), shots)
        for check in (check_pages_are_xml, check_the_verdict_is_seen_first, check_plots_show_gaps_and_zeros, check_every_page_on_every_screen):
            try:
                check(pages, names)
                print(f"ok      {check.__name__}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED  {check.__name__}: {error}")
        browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
