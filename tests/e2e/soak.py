#!/usr/bin/env python3
"""Mixed load on a live server: 32 clients, prompts of 1 to 3,000 tokens, streaming and not, disconnects, stop texts,
seeds, several choices, shared prefixes, conversations, answers held to a grammar, pre-emption (a small KV cache),
speculation.

    soak.py LIMPID [--sanitizer] [--seconds S] [--clients N] [--loose] [--prompts short|long]

Every answer, greedy or seeded, must be the one that the same request got alone (--deterministic) from a server without
drafts and prefix cache; none may be lost; at the end all pages are back and memory has not grown.

--loose: without --deterministic and without the prefix cache. An answer may then depend on what runs beside it, so it is
held to what must be true of it alone: whole, valid UTF-8, of its grammar, within its bounds; and where all of the
reference's roundings agree (tests/mini/skills.jsonl), it must still be that text. The free pages must be those of the start.
"""
import argparse
import dataclasses
import http.client
import json
import pathlib
import random
import socket
import struct
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
import chats  # noqa: E402
import client  # noqa: E402
from client import Server, parse_stream  # noqa: E402

MODEL = ROOT / "models" / "mini-glm-dsa.gguf"
client.TIMEOUT_S = 1800  # a sanitizer on a busy machine takes its time; a lost answer would never come
OPTIONS = ["--max-seqs", "16", "--max-batch-tokens", "256", "--speculate", "2", "--drain-timeout", "60"]
# Anonymous memory in the last fifth of the run beyond that of the second fifth, when all kinds of request have been seen.
GROWTH_MB = 16  # 1 to 2 are usual
COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


@dataclasses.dataclass
class Case:
    """A request that is asked again and again. An answer is what each choice says: (reasoning, text, reason of its end)."""
    path: str
    body: dict
    reference: tuple = None  # reasoning and text, where every way of computing must give them
    is_right: object = None  # of a text that ended by itself
    alone: list = None

    def check(self, answer, where):
        assert len(answer) == self.body.get("n", 1), (where, self.body, answer)
        for reasoning, text, reason in answer:
            assert reason in ("stop", "length"), (where, self.body, answer)
            if self.reference:
                assert (reasoning, text, reason) == (*self.reference, "stop"), (where, self.body, answer, self.reference)
            if self.is_right and reason == "stop":
                assert self.is_right(text), (where, self.body, answer)
        if self.alone:
            assert answer == self.alone, f"{where}: {self.body}: {answer}, alone {self.alone}"


def answer_of(raw, stream):
    """[(reasoning, text, reason)] in the order of the choices; raw must be whole and valid UTF-8."""
    if not stream:
        answer = []
        for c in sorted(json.loads(raw.decode())["choices"], key=lambda c: c["index"]):
            message = c.get("message", {})
            answer.append((message.get("reasoning_content") or "", (message.get("content") or "") if message else c["text"],
                           c["finish_reason"]))
        return answer
    parts = parse_stream(raw)
    assert parts["done"], raw[-200:]
    reasons = {c["index"]: c["finish_reason"] for e in parts["events"] for c in e.get("choices", []) if c["finish_reason"]}
    reasoning = parts["reasoning"] or [""] * len(parts["text"])
    return [(reasoning[i], text, reasons.get(i)) for i, text in enumerate(parts["text"])]


def is_person(text):
    person = json.loads(text)
    return set(person) == {"name", "age"} and len(person["name"]) <= 12 and isinstance(person["age"], int)


def make_cases(rng, longest):
    skills = [json.loads(line) for line in chats.SKILLS.read_text().splitlines()]
    long_texts = [s["prompt"] for s in skills if s["prompt_tokens"] > 1000]
    bodies = [{"prompt": "a"}, {"prompt": [100]}, {"prompt": "Monday, Tuesday,", "stop": ["Friday", ", S"]}]
    for skill in rng.sample([s for s in skills if s["prompt_tokens"] < 200], 14):
        bodies.append({"prompt": skill["prompt"]})
    base = rng.choice(long_texts)[:longest]
    for share in (0.1, 0.3, 0.6, 0.9):  # beginnings of one text, with different ends
        bodies.append({"prompt": base[:int(len(base) * share)] + " The end. " + str(share), "max_tokens": 12})
    for text in rng.sample(long_texts, 4):
        bodies.append({"prompt": text[:longest], "max_tokens": 16})
    bodies.append({"prompt": "Once upon a time", "temperature": 1.0, "seed": 7, "n": 3, "max_tokens": 24})
    bodies.append({"prompt": "Once upon a time, a fox", "temperature": 0.9, "seed": 8, "top_p": 0.9, "min_p": 0.02})
    bodies.append({"prompt": "1, 2, 3,", "presence_penalty": 0.5, "repetition_penalty": 1.1, "stop": ["9"]})
    cases = [Case(COMPLETION, body) for body in bodies]
    cases += [conversation(skill) for skill in rng.sample(
        [s for s in skills if s["mode"] != "plain" and s["stable"] and not s["tools"] and s["prompt_tokens"] < 300], 6)]
    cases += grammars()
    for case in cases:
        case.body.setdefault("temperature", 0)
        case.body.setdefault("max_tokens", 40)
    return cases


def conversation(skill):
    thinks = skill["mode"] == "think"
    reasoning, text, _ = chats.expected_parts(skill["torch"]["q8_0_f32_sparse"]["text"], thinks, None)
    return Case(CHAT, {"messages": skill["messages"], "max_tokens": skill["max_new"],
                       "chat_template_kwargs": {"enable_thinking": thinks}}, reference=(reasoning, text))


def grammars():
    def held(question, kind, is_right, **fields):
        body = {"messages": [{"role": "user", "content": question}], "chat_template_kwargs": {"enable_thinking": False},
                "response_format": kind, "max_tokens": 80, **fields}
        return Case(CHAT, body, is_right=is_right)

    schema = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    colour = {"type": "json_schema", "json_schema": {"name": "colour", "schema": {"enum": ["red", "green", "caf\u00e9"]}}}
    return [held("JSON: name Will, age 61", schema, is_person),
            held("JSON: name Ada, age 36", schema, is_person, temperature=1.0, seed=3, n=2),
            held("Good evening", colour, lambda text: json.loads(text) in ("red", "green", "caf\u00e9"), temperature=1.2, seed=4),
            held("Write as JSON: 19 of the item orange", {"type": "json_object"},
                 lambda text: isinstance(json.loads(text), dict))]


def ask(server, case, stream=False):
    status, _, raw = server.ask("POST", case.path, json.dumps(dict(case.body, stream=stream)))
    assert status == 200, (status, case.body, raw[:300])
    return answer_of(raw, stream)


class Client(threading.Thread):
    def __init__(self, server, cases, end, seed):
        super().__init__()
        self.server, self.cases, self.end = server, cases, end
        self.rng = random.Random(seed)
        self.n_answers = self.n_left = 0
        self.failure = None

    def leave(self, case, stream):
        """Sends the request, reads a little or nothing, and closes the connection, politely or not."""
        connection = self.server.connect()
        connection.request("POST", case.path, json.dumps(dict(case.body, stream=stream)))
        if self.rng.random() < 0.7:
            time.sleep(self.rng.random() * 0.2)
            connection.sock.settimeout(0.01)
            try:
                connection.sock.recv(self.rng.randrange(1, 400))
            except (socket.timeout, TimeoutError):
                pass
        if self.rng.random() < 0.5:  # a reset
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        self.n_left += 1

    def once(self):
        case, stream = self.rng.choice(self.cases), self.rng.random() < 0.5
        if self.rng.random() < 0.15:
            return self.leave(case, stream)
        case.check(ask(self.server, case, stream), "under load")
        self.n_answers += 1

    def run(self):
        try:
            while time.monotonic() < self.end:
                self.once()
        except Exception as e:  # any: a client that ends early must be seen
            self.failure = f"{type(e).__name__}: {e}"


class Memory(threading.Thread):
    """Looks at the server's anonymous memory until the run ends."""

    def __init__(self, process, seconds):
        super().__init__()
        self.process, self.seconds, self.begin = process, seconds, time.monotonic()
        self.samples = []  # (share of the run, MB)

    def run(self):
        while (share := (time.monotonic() - self.begin) / self.seconds) < 1:
            self.samples.append((share, anonymous_mb(self.process)))
            time.sleep(0.25)

    def most(self, first, last):
        return max(mb for share, mb in self.samples if first <= share < last)


def anonymous_mb(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")


def put_under_load(server, cases, args):
    end = time.monotonic() + args.seconds
    clients = [Client(server, cases, end, seed) for seed in range(args.clients)]
    memory = Memory(server.process, args.seconds)
    for thread in clients + [memory]:
        thread.start()
    for thread in clients + [memory]:
        thread.join()
    failures = [c.failure for c in clients if c.failure]
    assert not failures, f"{len(failures)} clients failed; the first: {failures[0]}"
    return sum(c.n_answers for c in clients), sum(c.n_left for c in clients), memory


def fill_the_cache(server, context):
    """One request of the longest kind needs nearly every page: what the prefix cache holds is really there to take."""
    prompt = [200 + 7 * i % 1500 for i in range(context - 8)]
    answer = server.complete(prompt=prompt, max_tokens=8, temperature=0, ignore_eos=True)
    assert answer["usage"] == answer["usage"] | {"prompt_tokens": len(prompt), "completion_tokens": 8}, answer["usage"]


def ask_alone(limpid, cases, context):
    """Of a server of its own: one that has drafted for long may have found that it does not pay, and turned it off."""
    options = ["--deterministic", "--ctx", str(context), "--no-prefix-cache"]
    with Server(limpid, str(MODEL), options) as server:
        for case in cases:
            alone = ask(server, case)
            case.check(alone, "alone")
            case.alone = alone
        server.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("limpid")
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--seconds", type=float, help="default: 15 with a sanitizer, else 40")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--loose", action="store_true")
    parser.add_argument("--prompts", choices=["short", "long"], help="default: short under a sanitizer, else long")
    args = parser.parse_args()
    args.seconds = args.seconds or (15 if args.sanitizer else 40)
    args.prompts = args.prompts or ("short" if args.sanitizer else "long")
    # So few pages that something is pre-empted.
    context, longest = (4096, 14000) if args.prompts == "long" else (1280, 4000)  # tokens, characters
    cases = make_cases(random.Random(5), longest)[::2 if args.sanitizer else 1]
    options = OPTIONS + ["--ctx", str(context), "--kv-tokens", str(context + 64),
                         "--no-prefix-cache" if args.loose else "--deterministic"]
    if not args.loose:
        ask_alone(args.limpid, cases, context)
    with Server(args.limpid, str(MODEL), options) as server:
        at_start = server.wait_until_idle(60)
        answers, left, memory = put_under_load(server, cases, args)
        metrics = server.wait_until_idle(60)
        fill_the_cache(server, context)
        for case in cases:
            case.check(ask(server, case), "behind the load")
        pages = server.wait_until_idle(60)
        server.stop()
    early, late = memory.most(0.2, 0.4), memory.most(0.8, 1)
    print(f"{args.seconds:.0f} s, {args.clients} clients{', loose' if args.loose else ''}: {answers} answers "
          f"{'right' if args.loose else 'as alone'}, {left} left early, {metrics['limpid_preemptions_total']:.0f} pre-emptions, "
          f"{metrics['limpid_prompt_tokens_cached_total']:.0f} of {metrics['limpid_prompt_tokens_total']:.0f} prompt tokens "
          f"from cache, {metrics['limpid_draft_tokens_accepted_total']:.0f} of {metrics['limpid_draft_tokens_total']:.0f} "
          f"drafts accepted; all {pages['limpid_kv_pages']:.0f} pages back; memory {early:.1f} to {late:.1f} MB")
    assert answers >= args.clients / 2 and left > 0
    assert metrics["limpid_preemptions_total"] > 0, "no pre-emption was met"
    assert metrics["limpid_draft_tokens_accepted_total"] > 0, "no draft was accepted"
    if args.loose:
        assert pages["limpid_kv_pages_free"] == at_start["limpid_kv_pages_free"] == pages["limpid_kv_pages"], pages
    else:
        assert metrics["limpid_prompt_tokens_cached_total"] > 0, "no prefix was found again"
    assert late - early < GROWTH_MB * (6 if args.sanitizer else 1), f"memory grew by {late - early:.0f} MB"


main()
