#!/usr/bin/env python3
"""API tests against live servers: tests/api/*.case, the checks of answers.py, chats.py and serving.py.

    run_cases.py LIMPID MODEL [--only WORD] [--sanitizer] [-- OPTIONS OF limpid serve]

--sanitizer: checks that repeat themselves with random values do so less often, for a slow build.

A .case file holds requests, each with what is expected of the answer:

    server: --ctx 64             once, first in the file: options of its server (default: none)
    # a comment
    POST /v1/completions         a line that begins with a method begins a case
    > Authorization: Bearer x    request headers
    {"prompt": "1, 2, 3,"}       all further lines up to '<' are the body; $MODEL, here and
                                 in what is expected, is the model's id
    < 200                        the status
    < Allow: POST                a header of the answer
    = choices[0].text " 4"       the value at this path of the JSON body equals this JSON
    ~ error.message ctx          the string there matches this regular expression
    | choices[0].logprobs.tokens 3    the array, object or string there has this length
    ! choices[0].extra           nothing is there

Of a stream the body is {"events": [...], "done": true if [DONE] was last, "text": [text of choice 0, ...],
"reasoning": [of choice 0, ...], "tool_calls": [those of choice 0, joined], "comments": number of
keep-alive comments}.
A path "." is the whole body. Expected texts are those of the model's float32 reference in PyTorch.
"""
import json
import pathlib
import re
import sys
import time
import traceback

import answers
import chats
import client
import serving
from client import Server, parse_stream

HERE = pathlib.Path(__file__).resolve().parent
ANSWERS_OPTIONS = ("--deterministic",)  # a prompt that was cached gives the very same text
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


class Case:
    def __init__(self, where, method, path):
        self.where, self.method, self.path = where, method, path
        self.request_headers, self.body, self.status = {}, [], None
        self.headers, self.checks = {}, []


def read_cases(path):
    options, cases = (), []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark, _, rest = line.partition(" ")
        if not line or mark == "#":
            continue
        if line.startswith("server:"):
            options = tuple(line.split()[1:])
        elif mark in METHODS:
            cases.append(Case(f"{path.name}:{number} {line}", mark, rest))
        elif mark == ">":
            name, _, value = rest.partition(": ")
            cases[-1].request_headers[name] = value
        elif mark == "<" and rest.isdigit():
            cases[-1].status = int(rest)
        elif mark == "<":
            name, _, value = rest.partition(": ")
            cases[-1].headers[name] = value
        elif mark in ("=", "~", "|", "!"):
            where, _, value = rest.partition(" ")
            cases[-1].checks.append((mark, where, value))
        else:
            assert cases[-1].status is None, f"{path.name}:{number}: body behind the status"
            cases[-1].body.append(line)
    return options, cases


MISSING = object()


def look_up(value, path):
    for name, index in re.findall(r"([^.\[\]]+)|\[(-?\d+)\]", path):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value


def check_value(mark, found, expected):
    if mark == "!":
        return found is MISSING
    if found is MISSING:
        return False
    if mark == "=":
        return found == json.loads(expected) and type(found) is type(json.loads(expected))
    if mark == "~":
        return isinstance(found, str) and re.search(expected, found) is not None
    return len(found) == int(expected)


def run_case(server, case):
    body = "\n".join(case.body).replace("$MODEL", server.model) if case.body else None
    status, headers, raw = server.ask(case.method, case.path, body, case.request_headers)
    assert status == case.status, f"status {status}, expected {case.status}: {raw[:300]!r}"
    for name, value in case.headers.items():
        assert headers[name] == value, f"{name} is {headers[name]!r}, expected {value!r}"
    if not case.checks:
        return
    stream = headers.get_content_type() == "text/event-stream"
    answer = parse_stream(raw) if stream else json.loads(raw)
    for mark, path, expected in case.checks:
        found, expected = look_up(answer, path), expected.replace("$MODEL", server.model)
        assert check_value(mark, found, expected), (
            f"{mark} {path} {expected}: found {'nothing' if found is MISSING else json.dumps(found)} in {json.dumps(answer)[:600]}")


class Tally:
    def __init__(self, only):
        self.only, self.n, self.failed = only, 0, 0

    def run(self, name, function, *args):
        if self.only not in name:
            return
        self.n += 1
        began = time.monotonic()
        try:
            function(*args)
            print(f"ok    {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception as error:  # a check that fails shall not hide the next
            self.failed += 1
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{pathlib.Path(at.filename).name}:{at.lineno}: {at.line}"
            print(f"FAIL  {name}: {type(error).__name__}: {error} ({where})", flush=True)


def main():
    arguments = sys.argv[1:]
    options = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else ""
    if "--sanitizer" in arguments:
        client.SHARE = 0.2
    limpid, model = arguments[:2]
    if not pathlib.Path(model).exists():
        print(f"skipped: there is no {model}")
        return 77
    tally, by_options = Tally(only), {(): [], ANSWERS_OPTIONS: []}
    for path in sorted(HERE.glob("*.case")):
        server_options, cases = read_cases(path)
        by_options.setdefault(server_options, []).extend(c for c in cases if only in c.where)
    for server_options, cases in by_options.items():
        if not cases and server_options != ANSWERS_OPTIONS:
            continue
        server = Server(limpid, model, [*server_options, *options])
        for case in cases:
            tally.run(case.where, run_case, server, case)
        for check in [*answers.CHECKS, *chats.CHECKS] if server_options == ANSWERS_OPTIONS else []:
            tally.run(check.__name__, check, server)
        tally.run(f"stop_{' '.join(server_options)}" if not only else only, server.stop)
    for check in serving.CHECKS:
        tally.run(check.__name__, check, limpid, model, options)
    print(f"{tally.n - tally.failed} of {tally.n} passed")
    return 1 if tally.failed or not tally.n else 0


if __name__ == "__main__":
    sys.exit(main())
