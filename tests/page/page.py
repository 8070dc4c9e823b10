#!/usr/bin/env python3
"""The web page of `limpid serve` in a real browser, on the small model of the repository.

    page.py LIMPID MODEL [FOLDER FOR SCREENSHOTS] [--only WORD]

Needs Debian's chromium (or another at $CHROMIUM) and the Python package playwright; without them it exits with
77 and says so. In every check a message on the console, a breach of the content security policy or a request to
another origin is a fault. Where an answer must have a certain form, hostile or rare, the check puts it in the
place of the server's; all other answers are the model's. Expected sums are arithmetic, contrasts the formula of
WCAG 2, other texts those of the model's reference in PyTorch.
"""
import argparse
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import sys
import time
import traceback

from tab import CHROMIUM, Tab, expect, fulfil_events, sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "api"))
from client import Server  # noqa: E402

PHONE = {"width": 360, "height": 740}
ADD, SUM = "What is 347 + 285?", str(347 + 285)
CALCULATE, RESULT = "Use the calculator for 8478 - 3628.", str(8478 - 3628)

HOSTILE = """<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload="window.hacked=1">
[a](javascript:window.hacked=1) [b](JaVaScRiPt:window.hacked=1) [c](data:text/html,<script>1</script>)
![i](https://elsewhere.invalid/i.png) [d](//elsewhere.invalid/x) <https://elsewhere.invalid/"onclick="window.hacked=1>
[e](https://elsewhere.invalid/"onmouseover="window.hacked=1)

```<img src=x onerror=window.hacked=1>
</code></pre><script>window.hacked=1</script>
```

| <b onclick=window.hacked=1>x</b> | [f](vbscript:x) |
|---|---|
| <iframe src="javascript:window.hacked=1"> | @NONCE@ |
"""


# ---- chat

def check_an_answer_is_streamed_with_thoughts_and_numbers(tab):
    with tab() as t:
        assert t.page.title() == "limpid" and t.server.model in t.one("#model").inner_text()
        t.page.evaluate("""() => { window.lengths = new Set();
            new MutationObserver(() => lengths.add(document.querySelector(".message.assistant")?.textContent.length))
                .observe(document.getElementById("messages"), { subtree: true, childList: true, characterData: true }); }""")
        t.ask("Tell me a story about a fox named Max.")
        assert t.page.evaluate("lengths.size") > 5, "the answer came in one piece"
        t.ask(ADD)
        assert SUM in t.answer(), t.answer()
        thoughts = t.one(".thoughts").last
        assert re.fullmatch(r"Thought for [\d.]+ m?s", thoughts.locator("summary").inner_text())
        expect(thoughts.locator(".inner")).to_be_hidden()
        thoughts.locator("summary").click()
        assert "7+5=12" in thoughts.locator(".inner").inner_text()
        t.ask("What is the capital of France?")
        expect(t.one(".thoughts .inner").nth(1)).to_be_visible()  # it stays open
        numbers = t.one(".numbers").nth(1).inner_text()
        found = re.fullmatch(r"([\d,]+) prompt tokens \(([\d,]+) cached\) · ([\d,]+) generated · first after [\d.]+ m?s · [\d.,]+ tokens/s", numbers)
        assert found and int(found[2]) < int(found[1]) and int(found[3]) > 5, numbers
        assert "Paris" in t.one("#spoken").inner_text()  # for screen readers, at the end
        t.shot("chat")


def check_thinking_can_be_switched_off(tab):
    with tab() as t:
        t.one("#thinking").select_option("off")
        t.ask(ADD)
        assert SUM in t.answer() and t.one(".thoughts:visible").count() == 0


def check_stop_by_button_and_by_escape(tab):
    with tab({"temperature": "8", "max_tokens": "3500"}) as t:
        t.add_to_requests(ignore_eos=True)  # else chance may end an answer before it is stopped
        for stop in (lambda: t.one("#stop").click(), lambda: t.one("#input").press("Escape")):
            t.ask("Tell me a story.", wait=False)
            expect(t.one(".numbers").last).to_contain_text("generated")
            stop()
            t.wait()
            expect(t.one("#messages .remark").last).to_have_text("Stopped.")
            t.server.wait_until_idle()
        t.ask("Tell me a story.", wait=False)
        expect(t.one(".numbers").last).to_contain_text("generated")
        t.button("Delete", last=False).click()  # the conversation
        t.server.wait_until_idle()


def check_ask_again_edit_delete_undo(tab):
    with tab() as t:
        t.ask(ADD)
        t.ask("What is the capital of France?")
        assert "Paris" in t.answer()
        t.button("Ask again", last=False).click()
        t.wait()
        assert t.one(".message").count() == 2 and SUM in t.answer(), "what follows is dropped"
        t.button("Edit and ask again").click()
        box = t.page.get_by_label("Your message")
        assert box.input_value() == ADD
        box.press("Escape")
        expect(t.one(".bubble")).to_have_text(ADD)
        t.button("Edit and ask again").click()
        box.fill("What is 412 + 139?")
        box.press("Enter")
        t.wait()
        assert t.one(".message").count() == 2 and str(412 + 139) in t.answer()
        t.button("Delete this answer").click()
        assert t.one(".message").count() == 1
        t.button("Undo").click()
        assert t.one(".message").count() == 2
        t.button("Delete with the answers").click()
        assert t.one(".message").count() == 0


def check_copy(tab):
    with tab(permissions=["clipboard-read", "clipboard-write"]) as t:
        code = 'x = "<b>"\n\n    y'
        t.stream(f"Some *text*:\n\n```python\n{code}\n```\n")
        t.ask("x")
        t.page.get_by_role("button", name="Copy python").click()
        assert t.page.evaluate("navigator.clipboard.readText()") == code
        t.button("Copy").click()
        assert t.page.evaluate("navigator.clipboard.readText()").startswith("Some *text*:")


def check_conversations_are_kept_renamed_exported_deleted(tab):
    with tab() as t:
        t.ask(ADD)
        t.page.reload()
        expect(t.one(".bubble")).to_have_text(ADD)
        assert SUM in t.answer()
        t.button("New conversation").click()
        t.ask("What is the capital of France?")
        assert t.one("#conversations li").count() == 2
        t.button("Rename").click()
        t.page.get_by_label("Name of the conversation").fill("France")
        t.page.get_by_label("Name of the conversation").press("Enter")
        expect(t.one("#conversations .current .open")).to_have_text("France")
        for name, get in (("Export as JSON", lambda data: data["messages"]), 
                          ("Export all as JSON", lambda data: next(c["messages"] for c in data if c["title"] == "France"))):
            with t.page.expect_download() as download:
                t.button(name).click()
            messages = get(json.loads(pathlib.Path(download.value.path()).read_text()))
            assert messages[0] == {"role": "user", "content": "What is the capital of France?"} and "Paris" in messages[1]["content"]
        t.button("Delete").click()
        t.button("Undo").click()
        expect(t.one("#conversations .current .open")).to_have_text("France")
        t.button("Delete").click()
        assert t.one("#conversations li").count() == 1
        t.one("#conversations .open").click()
        assert SUM in t.answer()


def check_settings_reach_the_server(tab):
    with tab() as t:
        t.one("#open-settings").click()
        for label, value in (("Temperature", "0.5"), ("Top-p", "0.9"), ("Top-k", "20"), ("Min-p", "0.05"), ("Repetition penalty", "1.1"),
                             ("Most tokens", "9"), ("Seed", "7"), ("System prompt", "Your name is Anna."), ("Stop texts", "###\n\\n\\n")):
            t.page.get_by_label(label).fill(value)
        t.shot("settings")
        t.button("Done").click()
        with t.page.expect_request("**/v1/chat/completions") as request:
            t.ask(ADD)
        body = request.value.post_data_json
        assert [body[k] for k in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed")] == [
            0.5, 0.9, 20, 0.05, 1.1, 9, 7], body
        assert body["stop"] == ["###", "\n\n"] and body["messages"][0] == {"role": "system", "content": "Your name is Anna."}
        assert "tools" not in body and "chat_template_kwargs" not in body
        assert "most tokens" in t.one("#messages .remark").last.inner_text()


# ---- tools, tokens

def use_example_tools(t):
    t.one("#open-settings").click()
    t.one("#s-tools").fill('[{"nam')
    assert "Not valid JSON" in t.one("#tools-error").inner_text()
    t.button("Insert an example").click()
    expect(t.one("#tools-error")).to_have_text("")
    t.button("Done").click()
    expect(t.one("#tools-chip")).to_have_text("2 tools")


def check_a_tool_call_is_shown_and_answered(tab):
    with tab() as t:
        use_example_tools(t)
        t.ask(CALCULATE)
        card = t.one(".tool")
        assert card.locator("b").inner_text() == "calculator"
        assert json.loads(card.locator("pre").inner_text()) == {"expression": "8478 - 3628"}
        t.shot("tool-call")
        t.page.get_by_label("Result of the tool").fill(json.dumps({"result": int(RESULT)}))
        with t.page.expect_request("**/v1/chat/completions") as request:
            t.button("Send the result").click()
        t.wait()
        call, result = request.value.post_data_json["messages"][1:]
        assert result == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": json.dumps({"result": int(RESULT)})}
        assert RESULT in t.answer(), t.answer()
        expect(card.locator(".quiet")).to_have_text("answered")
        t.page.reload()
        assert RESULT in t.answer() and RESULT in t.one(".tool").inner_text()


def check_alternatives_of_a_token(tab):
    with tab({"probabilities": True}) as t:
        t.ask(ADD)
        assert SUM in t.answer().replace("\n", ""), t.answer()
        tokens = t.one(".body .token")
        assert tokens.count() > 4
        tokens.nth(2).hover()
        popup = t.one("#alternatives")
        expect(popup).to_be_visible()
        rows = popup.locator("li")
        shares = [float(re.search(r"[\d.]+", row)[0]) for row in popup.locator(".number").all_inner_texts()]
        assert rows.count() == 5 and popup.locator(".chosen").count() == 1 and sum(shares) < 100.5, shares
        assert shares == sorted(shares, reverse=True)
        t.shot("alternatives")
        t.one("#input").hover()
        expect(popup).to_be_hidden()
        tokens.first.focus()
        t.page.keyboard.press("ArrowRight")
        expect(tokens.nth(1)).to_be_focused()
        assert popup.is_visible() and tokens.nth(1).get_attribute("aria-describedby") == "alternatives"
        t.page.keyboard.press("Escape")
        expect(popup).to_be_hidden()
        t.button("Tokens").click()
        assert t.one(".body .token").count() == 0 and SUM in t.answer()
        t.one(".thoughts summary").click()
        thoughts = t.one(".thoughts .inner").inner_text()
        t.button("Tokens").click()
        assert t.one(".thoughts .token").count() > 4
        plain = "".join(t.one(".thoughts .token").all_text_contents()).replace("↵", "")
        assert plain.strip() == thoughts.strip(), (plain, thoughts)


def check_characters_of_several_tokens(tab):
    """Each byte of é is a token; marks between the parts of an answer are not in its text."""
    def token(raw):
        return {"token": "?", "logprob": -0.5, "bytes": list(raw), "top_logprobs": []}
    events = [({"reasoning_content": "Hm\n"}, [b"<think>", b"Hm"]), ({"content": "caf"}, [b"\n", b"</think>", b"caf"]),
              ({"content": "é."}, [b"\xc3", b"\xa9", b".", b"<|user|>"])]
    body = "".join("data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": {
        "content": [token(raw) for raw in raws]}}]}) + "\n\n" for delta, raws in events) + "data: [DONE]\n\n"
    with tab({"probabilities": True}) as t:
        t.page.route("**/v1/chat/completions", functools.partial(fulfil_events, body))
        t.ask("x")
        assert t.one(".body .token").all_text_contents() == ["caf", "∅", "é", "."]
        assert t.one(".thoughts .token").all_text_contents()[0] == "Hm"


# ---- Markdown, hostile texts

def check_markdown(tab):
    with tab() as t:
        t.stream("""# One
## Two
Text with **bold**, *slanted*, __bold__, _slanted_, ~~gone~~, `code <b>`, snake_case_name, 2 * 3 * 4 and \\*stars\\*.
Next line, https://example.org/a_b?c=1. [link **b**](https://example.org/x_(y)), [mail](mailto:a@example.org)

- a
- b
  1. c
  2. d

     deep
- e

3. three
4. four

> quote
> - in it

| a | b \\| c |
|:--|---:|
| 1 | 2 |

---

```c
int *a; // **no**

- no
```
~~~
open""")
        t.ask("x")
        found = t.page.evaluate("""() => { const box = document.querySelector(".body .prose"), n = s => box.querySelectorAll(s).length;
            return { h1: n("h1"), h2: n("h2"), strong: n("strong"), em: n("em"), del: n("del"), code: n(":not(pre) > code"), br: n("br"),
              ul: n("ul"), nested: n("ul > li > ol > li"), ol3: box.querySelector(":scope > ol").start, quote: n("blockquote li"),
              th: n("th"), right: n("td.right"), hr: n("hr"), pre: n("pre"), links: [...box.querySelectorAll("a")].map(a => a.href),
              rel: [...box.querySelectorAll("a")].every(a => a.rel.includes("noopener") && a.target === "_blank"),
              last: box.lastChild.querySelector("pre").textContent, first: box.querySelector("pre").textContent,
              text: box.querySelector("p").textContent } }""")
        assert found.pop("text").startswith("Text with bold, slanted, bold, slanted, gone, code <b>, snake_case_name, 2 * 3 * 4 and *stars*.")
        assert found == {"h1": 1, "h2": 1, "strong": 3, "em": 2, "del": 1, "code": 1, "br": 1, "ul": 2, "nested": 2, "ol3": 3, "quote": 1,
                         "th": 2, "right": 1, "hr": 1, "pre": 2, "rel": True, "last": "open", "first": "int *a; // **no**\n\n- no", "links": [
                             "https://example.org/a_b?c=1", "https://example.org/x_(y)", "mailto:a@example.org"]}, found
        t.shot("markdown")


def check_hostile_texts_stay_texts(tab):
    with tab({"probabilities": True}) as t:
        t.stream(HOSTILE)
        t.ask(HOSTILE)
        stored = {"title": HOSTILE, "changed": 1e15, "messages": [
            {"role": "user", "content": HOSTILE}, {"role": HOSTILE, "content": HOSTILE, "reasoning": HOSTILE, "error": HOSTILE, "finish": HOSTILE,
             "calls": [{"id": HOSTILE, "name": HOSTILE, "arguments": HOSTILE}], "stats": {"prompt": HOSTILE, "rate": 5}, "tokens": "x"},
            {"role": "assistant", "content": {"innerHTML": HOSTILE}, "tokens": [{"text": HOSTILE, "logprob": "x", "top": [{"text": HOSTILE}]}]},
            None, 7, "x"]}
        t.page.evaluate("raw => localStorage.setItem('limpid.conversation.x', raw)", json.dumps(stored))
        t.page.evaluate("raw => localStorage.setItem('limpid.conversation.<b>', raw)", '{"messages": {"length": 5}}')
        t.page.evaluate("raw => localStorage.setItem('limpid.conversation.broken', raw)", "{")
        for address in ("/#x", "/"):
            t.page.goto(t.origin + address)
            t.page.reload()
            for item in t.one("#conversations .open").all():
                item.click()
                foreign = t.page.evaluate("""() => [...document.querySelectorAll("#messages :is(img, script, iframe, b:not(.tool b)), #list :is(img, script)")]
                    .map(e => e.outerHTML)""")
                assert not foreign, foreign
                links = t.page.evaluate("[...document.querySelectorAll('#messages a')].map(a => new URL(a.href).protocol)")
                assert set(links) <= {"http:", "https:", "mailto:"}, links
                handlers = t.page.evaluate("""() => [...document.querySelectorAll("#messages *")].flatMap(e => [...e.attributes])
                    .filter(a => a.name.startsWith("on")).map(a => a.name)""")
                assert not handlers, handlers
        assert t.page.evaluate("document.querySelectorAll('#conversations li').length") == 3


def check_long_odd_texts_do_not_hang(tab):
    texts = ["*" * 20000, "# a" + " " * 20000 + "b", "[" * 20000, "`" * 9999 + "x" + "`" * 9998, "> " * 5000 + "x", "- " * 5000 + "x",
             "**a " * 5000, "_a " * 5000, "|" * 9000 + "\n" + "|-" * 9000, "https://" + "." * 20000, "![a](" * 4000, "~~a" * 5000]
    with tab() as t:
        t.stream(*["start"] + texts)
        for text in texts:
            t.page.evaluate("([t, i]) => localStorage.setItem(`limpid.conversation.${i}`, JSON.stringify({title: String(i), changed: 1, messages: "
                            "[{role: 'user', content: 'x'}, {role: 'assistant', content: t}]}))", [text, texts.index(text)])
        t.page.reload()
        for i in range(len(texts)):
            began = time.monotonic()
            t.page.get_by_role("button", name=str(i), exact=True).click()
            expect(t.one(".body .prose > *").first).to_be_attached()
            took = time.monotonic() - began
            assert took < 5, f"text {i} took {took:.1f} s"


# ---- errors, keys

def check_errors_are_told_and_tried_again(tab):
    with tab(expected="Failed to load resource") as t:
        t.stream("The prompt has 9 tokens too many.", status=400)
        t.ask(ADD)
        assert t.one(".failure p").inner_text() == "The prompt has 9 tokens too many."
        t.page.unroute("**/v1/chat/completions")
        t.page.route("**/v1/chat/completions", lambda route: route.abort())
        t.button("Try again").click()
        t.wait()
        assert "connection" in t.one(".failure p").inner_text()
        t.page.unroute("**/v1/chat/completions")
        half = 'data: {"choices": [{"index": 0, "delta": {"content": "Half an"}}]}\n\n'
        for body, words in ((half, "before the answer was complete"), (half + 'data: {"error": {"message": "no memory"}}\n\n', "no memory")):
            t.page.route("**/v1/chat/completions", functools.partial(fulfil_events, body))
            t.button("Try again").click()
            t.wait()
            assert words in t.one(".failure p").inner_text() and t.answer() == "Half an"
            t.page.unroute("**/v1/chat/completions")
        t.shot("error")
        t.button("Try again").click()
        t.wait()
        assert t.one(".failure").count() == 0 and SUM in t.answer()


def check_the_key_is_asked_for(tab):
    with tab(options=("--api-key", "secret"), expected="status of 401") as t:
        t.one("#key").fill("wrong")
        t.one("#key").press("Enter")
        expect(t.one("#key-reason")).to_contain_text("refuses this key")
        t.shot("key")
        t.one("#key").fill("secret")
        t.button("Use it").click()
        expect(t.one("#model")).to_contain_text(t.server.model)
        t.ask(ADD)
        assert SUM in t.answer()
        expect(t.one("#live-body")).to_be_visible()
        kept = t.page.evaluate("[JSON.stringify({...localStorage}), JSON.stringify({...sessionStorage}), document.cookie]")
        assert "secret" not in kept[0] and "secret" in kept[1] and not kept[2]
        t.page.evaluate("sessionStorage.clear()")
        t.page.reload()
        t.button("Cancel").click()
        expect(t.one("#live-problem")).to_contain_text("needs the API key")


# ---- live panel

def check_live_panel_under_load(tab):
    with tab({"liveOpen": True}) as t, concurrent.futures.ThreadPoolExecutor(6) as pool:
        # Six at a time, none of them as long as the indexer's top-k: however fast, all steps decode by the absorbed route.
        fields = {"prompt": "Once upon a time", "max_tokens": 240, "ignore_eos": True, "temperature": 1.0}
        jobs = [pool.submit(t.server.complete, **fields, seed=i) for i in range(24)]
        expect(t.one("#n-running")).to_have_text("6")
        expect(t.one("#rate-decode")).not_to_have_text("0")
        t.page.wait_for_timeout(1500)
        t.shot("live")
        for name in ("prefill", "decode", "steps", "time"):
            drawn = t.page.evaluate("""name => { const c = document.getElementById(`plot-${name}`);
                return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(v => v) }""", name)
            assert drawn and t.one(f"#plot-{name}").get_attribute("aria-label"), f"nothing in the plot of {name}"
        assert re.search(r"absorbed [\d.]+ %", t.one("#routes").inner_text())
        pages = [int(n.replace(",", "")) for n in re.findall(r"(?:in use|known prefixes|free) ([\d,]+)", t.one("#cache").inner_text())]
        assert sum(pages) == t.server.metrics()["limpid_kv_pages"] and pages[0] > 0
        for job in jobs:
            job.result()
        expect(t.one("#n-running")).to_have_text("0")
        metrics = t.server.metrics()
        assert f"{metrics['limpid_generated_tokens_total']:,.0f} generated" in t.one("#totals").inner_text()
        t.page.wait_for_timeout(800)
        n = len([url for url in t.asked if "/engine" in url])
        t.page.get_by_label("Close the live view").click()
        t.page.wait_for_timeout(1500)
        assert len([url for url in t.asked if "/engine" in url]) <= n + 1, "it polls while closed"


def check_a_server_without_live_view(tab):
    with tab({"liveOpen": True}, expected="status of 404") as t:
        t.page.route("**/engine?*", lambda route: route.fulfill(status=404, json={"error": {"message": "no such path"}}))
        t.page.reload()
        expect(t.one("#live-problem")).to_contain_text("older than this page")
        t.ask(ADD)
        assert SUM in t.answer()


# ---- screens, keyboard, colours

def check_a_phone(tab):
    with tab({"theme": "dark"}, viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2) as t:
        t.no_sideways_scroll("empty")
        use_example_tools(t)
        t.ask(CALCULATE)
        t.no_sideways_scroll("a tool call")
        t.page.get_by_label("Result of the tool").fill(json.dumps({"result": int(RESULT)}))
        t.button("Send the result").tap()
        t.wait()
        t.stream("Code:\n\n```\n" + "x" * 300 + "\n```\n\n|" + "wide column|" * 12 + "\n|" + "-|" * 12 + "\n\n" + "y" * 300)
        t.ask("z" * 300)
        t.no_sideways_scroll("long lines")
        for name in ("Conversations", "Live view of the engine", "Settings"):
            t.page.get_by_role("button", name=name, exact=True).tap()
            t.page.wait_for_timeout(700)
            t.no_sideways_scroll(name)
            t.shot(f"phone-{name.split()[0].lower()}")
            if name == "Conversations":
                t.page.mouse.click(350, 400)
                expect(t.one("#list")).to_be_hidden()
        t.button("Done").tap()
        small = t.page.evaluate("""() => [...document.querySelectorAll("#top button, #composer button")].filter(b => b.offsetParent)
            .map(b => b.getBoundingClientRect()).filter(r => r.height < 28 || r.width < 28).length""")
        assert small == 0


CONTRASTS = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } };
  return [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.disabled && !e.closest(":disabled, svg, .unseen, .skip") &&
      [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(e => {
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))];
    return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.tagName + "." + e.className + " " + e.textContent.slice(0, 30)];
  }).filter(([ratio]) => ratio < 4.5) }"""


def check_colours_follow_the_system_and_have_contrast(tab):
    with tab({"probabilities": True, "liveOpen": True}, color_scheme="dark") as t:
        use_example_tools(t)
        t.ask(ADD)
        t.ask(CALCULATE)
        t.one(".thoughts summary").first.click()
        for theme in ("dark", "light"):
            t.page.emulate_media(color_scheme=theme)
            expect(t.one("html")).to_have_attribute("data-theme", theme)
            t.one(".token").first.focus()
            t.page.wait_for_timeout(600)
            faint = t.page.evaluate(CONTRASTS)
            assert not faint, (theme, faint)
            t.shot(f"all-{theme}")
        t.one("#theme").click()
        t.one("#theme").click()
        expect(t.one("html")).to_have_attribute("data-theme", "dark")
        t.page.reload()
        expect(t.one("html")).to_have_attribute("data-theme", "dark")


def check_the_keyboard_suffices(tab):
    with tab() as t:
        t.one("#skip").focus()
        expect(t.one("#skip")).to_be_in_viewport()
        t.page.keyboard.press("Enter")
        expect(t.one("#input")).to_be_focused()
        t.page.keyboard.type("Copy this:")
        t.page.keyboard.press("Shift+Enter")
        t.page.keyboard.type("two")
        assert t.one("#input").input_value() == "Copy this:\ntwo"
        t.page.keyboard.press("Enter")
        t.wait()
        outline = []
        for _ in range(12):
            t.page.keyboard.press("Shift+Tab")
            outline.append(t.page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
        assert set(outline) == {"solid"}, outline
        nameless = t.page.evaluate("""() => [...document.querySelectorAll("button, input, textarea, select")]
            .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)""")
        assert not nameless, nameless


def check_little_motion(tab):
    with tab(reduced_motion="reduce") as t:
        t.ask(ADD)
        moving = t.page.evaluate("document.getAnimations().length")
        assert moving == 0


# ---- the pictures of the README, if a folder is given

def check_pictures(tab):
    with tab({"liveOpen": True}, viewport={"width": 1360, "height": 1040}) as t, concurrent.futures.ThreadPoolExecutor(8) as pool:
        use_example_tools(t)
        t.ask(CALCULATE)
        t.one(".thoughts summary").click()
        load = [pool.submit(t.server.complete, prompt=f"{i} " * 150, max_tokens=300 + 100 * i, ignore_eos=True, temperature=1.0) for i in range(5)]
        t.page.get_by_label("Result of the tool").fill(json.dumps({"result": int(RESULT)}))
        t.button("Send the result").click()
        t.wait()
        t.ask("What is the capital of France?")
        t.page.mouse.move(640, 700)
        t.page.wait_for_timeout(600)
        t.shot("desktop-light")
        for job in load:
            job.result()
    with tab({"liveOpen": False}, viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True, color_scheme="dark",
             device_scale_factor=2) as t:
        t.button("Probabilities").tap()
        t.ask("Tell me a story about a fox named Max.")
        t.one(".body .token.open").last.tap()
        t.page.wait_for_timeout(300)
        t.shot("phone-dark")


CHECKS = [check for name, check in list(globals().items()) if name.startswith("check_")]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("limpid")
    p.add_argument("model")
    p.add_argument("folder", nargs="?", type=pathlib.Path)
    p.add_argument("--only", default="")
    a = p.parse_args()
    if a.folder:
        a.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    with sync_playwright() as playwright, Server(a.limpid, a.model) as server, Server(a.limpid, a.model, ["--api-key", "secret"]) as closed:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium's sandbox does not work for root
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)

        def tab(settings=(), options=(), **more):
            return Tab(browser, closed if options else server, a.folder, settings, **more)
        for check in CHECKS:
            if a.only not in check.__name__:
                continue
            try:
                check(tab)
            except Exception:  # each failure is shown, the others still run
                failed += 1
                print(f"FAILED {check.__name__}\n{traceback.format_exc()}", flush=True)
        browser.close()
    print(f"{len(CHECKS)} checks, {failed} failed")
    sys.exit(1 if failed else 0)


main()
