#!/usr/bin/env python3
"""Writes tests/data/chat/cases.json: templates with the output that Python's jinja2 gives in
transformers' configuration. tests/unit/test_jinja_*.c and test_chat.c compare ours with it.

Usage: tools/make_chat_cases.py [--check]     (--check: compare with the committed file; 77 = no jinja2)
"""
import copy
import json
import pathlib
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: Python has no jinja2")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from chat_snippets import CHATS, SNIPPETS, VARIABLES  # noqa: E402

DATA = pathlib.Path(__file__).parent.parent / "tests" / "data" / "chat"


class Raised(jinja2.TemplateError):
    """What a template's raise_exception throws."""


class Generation(jinja2.ext.Extension):
    """The generation tag of transformers, which marks what the assistant says: here it only renders."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("render_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def render_body(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, "jinja2.ext.loopcontrols"])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    # strftime_now is left out: templates take date_string, or a format without a date.
    env.globals["strftime_now"] = lambda text: text.replace("%%", "%")
    return env


def run(env, source, variables, parsed={}):
    try:
        template = parsed[source] = parsed.get(source) or env.from_string(source)
    except (jinja2.TemplateSyntaxError, SyntaxError):
        return {"error": "syntax"}
    try:
        return {"expect": template.render(**variables)}
    except Raised as e:
        return {"error": "raise", "message": str(e)}
    except Exception:  # whatever Python throws on a template's fault
        return {"error": "run"}


def prepare(messages, takes_parts):
    """A request's messages as vLLM hands them to the template."""
    out = []
    for message in copy.deepcopy(messages):
        if message["role"] == "developer":
            message["role"] = "system"
        message.setdefault("content", None)
        if isinstance(message["content"], list) and not takes_parts:
            message["content"] = "\n".join(part["text"] for part in message["content"])
        for call in message.get("tool_calls") or []:
            given = call["function"].get("arguments")
            call["function"]["arguments"] = (
                {} if not given else json.loads(given) if isinstance(given, str) else given)
        out.append(message)
    return out


TAKES_PARTS = {"glm_tags.jinja", "kimi_sections.jinja", "mini.jinja"}


def build():
    env, cases = environment(), []
    for group, sources in SNIPPETS.items():
        for source in sources:
            case = {"group": group, "template": source}
            case.update(run(env, source, copy.deepcopy(VARIABLES)))
            cases.append(case)
    for name, template, params in CHATS:
        variables = {
            "messages": prepare(params["messages"], template in TAKES_PARTS),
            "tools": params.get("tools"), "documents": None,
            "add_generation_prompt": params.get("add_generation_prompt", True),
            "bos_token": "<s>", "eos_token": "</s>", **params.get("kwargs", {}),
        }
        case = {"group": "chat", "name": name, "file": template, "params": params}
        case.update(run(env, (DATA / template).read_text(encoding="utf-8"), variables))
        cases.append(case)
    return {"variables": VARIABLES, "cases": cases}


def main():
    text = json.dumps(build(), ensure_ascii=False, indent=1) + "\n"
    path = DATA / "cases.json"
    if "--check" in sys.argv[1:]:
        if path.read_text(encoding="utf-8") != text:
            print(f"{path} differs from what jinja2 {jinja2.__version__} gives now; run "
                  "tools/make_chat_cases.py and look at the change")
            return 1
        print(f"{path} is what jinja2 {jinja2.__version__} gives")
        return 0
    path.write_text(text, encoding="utf-8")
    counts = {}
    for case in json.loads(text)["cases"]:
        counts[case["group"]] = counts.get(case["group"], 0) + 1
    print(f"{path}: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
