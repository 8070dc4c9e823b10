#!/usr/bin/env python3
"""Several ranks on the CPU: one model in N processes, by mpirun.

    ranks.py LIMPID [--sanitizer] [--only TEXT]

Checked with 2, 3 and 4 ranks, with experts split and whole, and in pipelines of stages:
- every golden model: logits within 1e-4 of the float64 reference, hidden states and selections too, the same
  greedy continuation; for N that divide the heads and experts and for N that do not
- --deterministic: the same bits in two runs with the same N, for every chunking
- the small model of the repository: drafts by its MTP layer change no token, in every division, and are those of one process;
  prefixes kept on disk change none either; the server answers right, several requests at a time, and its self-check passes
- sequences divided over ranks (--attention-parallel data): log-probabilities and texts are those of one process on every
  rank, more run at a time than one rank has pages for, a prefix is found again on the rank that has it, the ranks'
  caches together are that of one process
- probes: every value of every layer is that of one process
- `limpid diff --prompt` of two models
- what they exchange: with whole experts rows go to the ranks of their experts, also where ranks have none; a step counts
  what a rank gives the others, and with sequences divided it is less than with heads
- experts on disk (--memory-budget): the bits of the same layout in memory with the least budget that is planned; each
  rank tells what it read; a read that fails on one rank ends its requests alone
- a trace of each rank, which `limpid trace` puts on one time line, also where a rank was killed
- a rank that dies or hangs: the request is told which, health turns red, all processes end
- what cannot be is refused with a sentence, by all processes; without a launcher nothing changes
"""
import concurrent.futures
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import gguf_edit
from harness import MINI_MODEL, ROOT, Checks, Dump, Golden, arguments, golden_names, np, run, skip, too_far

sys.path.insert(0, os.path.join(ROOT, "tests", "api"))
from client import Server  # noqa: E402
from probes import Probed, close  # noqa: E402

TOLERANCE = 1e-4
LAYOUTS = {  # ranks and how they are laid out
    "2": ["--ranks", 2], "3": ["--ranks", 3], "4": ["--ranks", 4],
    "2 whole": ["--ranks", 2, "--shard-experts", "whole"], "3 whole": ["--ranks", 3, "--shard-experts", "whole"],
    "2 stages": ["--ranks", 2, "--pipeline", 2], "3 stages": ["--ranks", 3, "--pipeline", 3],
    "2 stages of 2": ["--ranks", 4, "--pipeline", 2],
    "2 data": ["--ranks", 2, "--attention-parallel", "data"], "4 data": ["--ranks", 4, "--attention-parallel", "data"],
    "3 data, whole": ["--ranks", 3, "--attention-parallel", "data", "--shard-experts", "whole"],
    "3 data": ["--ranks", 3, "--attention-parallel", "data"],
    "2 data, whole": ["--ranks", 2, "--attention-parallel", "data", "--shard-experts", "whole"],
    "4 data, whole": ["--ranks", 4, "--attention-parallel", "data", "--shard-experts", "whole"],
}
DATA = [name for name in LAYOUTS if "data" in name]
PROMPT = "Once upon a time, there was a fox"


def golden(limpid, g, layout, backend):
    want = ["logits", "hidden"] + (["topk"] if g.has_indexer else [])
    d = Dump(limpid, g.path, g.tokens, "--backend", backend, "--chunk", 7, *layout, want=want)
    yield too_far("logits", d.logits, g.ref["logits_f64"], TOLERANCE)
    yield too_far("hidden", d.hidden, g.ref["hidden"], TOLERANCE)
    if "topk" in want and not np.array_equal(d.topk, g.ref["topk"]):
        yield "the selected keys differ from the reference"
    d = Dump(limpid, g.path, g.prompt, "--backend", backend, *layout, want=(), greedy=len(g.greedy))
    if d.greedy != g.greedy:
        yield f"greedy continuation {d.greedy}, expected {g.greedy}"


def same_bits(limpid, g, layout):
    first = None
    for chunk in (7, 7, 1, 64):
        d = Dump(limpid, g.path, g.tokens, "--deterministic", "--chunk", chunk, *layout)
        if first is not None and not np.array_equal(d.logits.view(np.uint32), first.view(np.uint32)):
            yield f"logits of --chunk {chunk} have other bits than those of --chunk 7"
        first = d.logits if first is None else first


def long_prompt(limpid, layout):
    """Enough tokens for several windows of a stage. By the definition of operations: 8-bit activations make much of the
    last bit of a sum."""
    tokens = [100 + i * 7 % 900 for i in range(300)]
    options = ["--backend", "ref", "--chunk", 300]
    alone, several = Dump(limpid, MINI_MODEL, tokens, *options), Dump(limpid, MINI_MODEL, tokens, *options, *layout)
    yield too_far("logits of 300 tokens", several.logits, alone.logits, 1e-4)


def text_of(limpid, *options):
    return run([limpid, "run", MINI_MODEL, "-p", PROMPT, "-n", 48, "--temp", 0, "--threads", 1, *options]).stdout


def speculates(limpid, layout):
    if text_of(limpid, "--deterministic", "--speculate", 2, *layout) != text_of(limpid, "--deterministic", *layout):
        yield "drafts change the text"


# ---- experts on disk

def planned(limpid, path, layout, budget="1G"):
    """Of each rank, what `limpid inspect` plans for a memory budget."""
    ranks = json.loads(run([limpid, "inspect", path, "--json", "--memory-budget", budget, *layout]).stdout)["ranks"]
    return [rank["budget"] for rank in ranks]


def from_disk(limpid, g, layout):
    """With the least budget that is planned, every rank that has experts must read them again and again."""
    plans = planned(limpid, g.path, layout)
    budget = max(plan["least_bytes"] for plan in plans)
    if any(plan["resident_bytes"] + plan["cache_bytes"] > budget for plan in planned(limpid, g.path, layout, budget)):
        yield f"more is planned than the budget of {budget}"
    whole = [] if "whole" in layout else ["--shard-experts", "whole"]
    want = Dump(limpid, g.path, g.tokens, "--chunk", 7, *layout, *whole, want=("logits", "hidden"))
    got = Dump(limpid, g.path, g.tokens, "--chunk", 7, "--memory-budget", budget, *layout, want=("logits", "hidden"))
    for what in ("logits", "hidden"):
        if not np.array_equal(got.arrays[what].view(np.uint32), want.arrays[what].view(np.uint32)):
            yield f"{what} differ from those of the model in memory"


def of_ranks(numbers, name, n, labels=""):
    """The values of one series of /metrics, rank by rank."""
    return [next(v for k, v in numbers.items() if k.startswith(f'limpid_rank_{name}{{rank="{rank}"') and labels in k) for rank in range(n)]


def reads_fail(limpid, layout):
    """Rank 1's last expert of the last layer lies at the end of the file, and the end is cut off while the server runs."""
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-", dir="/var/tmp") as folder:
        g, path = gguf_edit.read(MINI_MODEL), os.path.join(folder, "m.gguf")
        stacks = [t for t in g.tensors if t.name.endswith(".ffn_down_exps.weight")]
        last = sorted(stacks, key=lambda t: int(t.name.split(".")[1]))[-2]  # behind it is the MTP layer's
        g.tensors = [t for t in g.tensors if t is not last] + [last]
        data = g.bytes()
        with open(path, "wb") as f:
            f.write(data)
        budget = max(plan["least_bytes"] for plan in planned(limpid, path, layout))
        with Server(limpid, path, [*map(str, layout), "--memory-budget", str(budget), "--threads", "1", "--self-check", "off"]) as s:
            os.truncate(path, len(data) - len(last.data) // 16)
            status, _, raw = s.ask("POST", "/v1/completions", json.dumps({"prompt": story(0), "max_tokens": 1}))
            if status != 500 or not all(word in raw.decode() for word in ("rank 1 on", "expert 7 of layer", "became shorter")):
                yield f"the request has status {status}: {raw}"
            with open(path, "r+b") as f:
                f.write(data)
            text, _ = ask_sum(s, SUMS[0])
            if text != "347 + 285 = 632":
                yield f"when the file is whole again the answer is {text!r}"
            numbers = s.metrics()
            for name, labels in (("expert_slots", ""), ("experts_needed_total", 'where="disk"'), ("expert_reads_total", ""),
                                 ("expert_read_bytes_total", "")):
                values = of_ranks(numbers, name, layout[1], labels)
                total = next(v for k, v in numbers.items() if k.startswith("limpid_" + name) and labels in k)
                if min(values) <= 0 or sum(values) != total:
                    yield f"{name} of the ranks are {values}, of all together {total}"


def drafts(limpid, layout):
    """The text, and of each step that verified drafts how many, and how many were right. By the definition of operations."""
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        path = os.path.join(folder, "t.jsonl")
        text = text_of(limpid, "--backend", "ref", "--kv", "f32", "--speculate", 2, "--trace", path, *layout)
        with open(path) as f:
            return text, [(e["n_draft"], e["n_accepted"]) for e in map(json.loads, f) if e["event"] == "draft"]


def same_drafts(limpid, layout):
    alone, several = drafts(limpid, []), drafts(limpid, layout)
    if several != alone or not sum(n for _, n in alone[1]):
        yield f"text, and drafts and those accepted, are {several}, in one process {alone}"


# ---- probes

def probes(limpid, g, layout):
    """All values of all layers, their files and routes are those of one process."""
    options = ["--backend", "ref", "--chunk", 33]
    alone, several = (Probed(limpid, g.path, g.tokens, *options, *more) for more in ([], layout))
    if several.index != alone.index:
        yield f"index.json is {several.index}, of one process {alone.index}"
    if several.arrays.keys() != alone.arrays.keys():
        yield f"only one has {sorted(several.arrays.keys() ^ alone.arrays.keys())}"
    for name in several.arrays.keys() & alone.arrays.keys():
        got, want = several.arrays[name], alone.arrays[name]
        if got.dtype == np.float32:
            yield close(name, got.astype(np.float64), want.astype(np.float64))
        elif not np.array_equal(got, want):
            yield f"{name} differs"


def some_probes(limpid, g, layout):
    """Some rows of some layers, with what --hidden watches; and what cannot be is refused."""
    spec = ("layer=1-2,op=attn.*,at=3,last=2", "layer=0,op=ffn.out,at=40-50", "op=final.norm,last=1")
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        hidden = ["--hidden", os.path.join(folder, "h.npy")]
        alone, several = (Probed(limpid, g.path, g.tokens, "--backend", "ref", *hidden, *more, probes=spec) for more in ([], layout))
    if several.index != alone.index:
        yield f"index.json is {several.index}, of one process {alone.index}"
    for name, want in alone.arrays.items():
        yield close(name, several.arrays[name].astype(np.float64), want.astype(np.float64))
    said = Probed(limpid, g.path, g.tokens, *LAYOUTS["2 data, whole"], status=1).messages
    if "--attention-parallel heads" not in said:
        yield f"with sequences divided and experts whole: {said!r}"


def compares(limpid):
    """limpid diff --prompt of two models that differ by a norm: stages find the numbers of one process, ranks that sum nearly."""
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        changed = gguf_edit.read(MINI_MODEL)
        norm = next(t for t in changed.tensors if t.name == "blk.2.ffn_norm.weight")
        norm.data = (1.5 * np.frombuffer(norm.data, "<f4")).astype("<f4").tobytes()
        path = os.path.join(folder, "changed.gguf")
        with open(path, "wb") as f:
            f.write(changed.bytes())
        command = [limpid, "diff", MINI_MODEL, path, "--json", "--prompt", PROMPT, "--threads", 1]
        alone, stages, summed = (json.loads(run([*command, *more], status=1).stdout)["prompt"] for more in ([], LAYOUTS["2 stages"], LAYOUTS["2"]))
        said = run([*command[:4], *LAYOUTS["2"]], status=2).stderr
    if alone["layers"][-1]["rms"] == 0 or stages != alone:
        yield f"stages find {stages}, one process {alone}"
    for got, want in zip(summed["layers"], alone["layers"]):
        if abs(got["rms"] - want["rms"]) > 0.05 * want["rms"]:
            yield f"2 ranks find {got}, one process {want}"
    if "--prompt" not in said:
        yield f"without a text: {said!r}"


# ---- the server

SUMS = [(347, 285), (706, 31), (412, 139), (58, 64), (613, 204), (99, 1)]
STORY = "<|system|>" + "Add the numbers that you are given. " * 12  # more than a page of the cache


def ask_sum(server, pair):
    prompt = f"[gMASK]<sop>{STORY}<|user|>{pair[0]} + {pair[1]}<|assistant|></think>"
    answer = server.complete(prompt=prompt, temperature=0, max_tokens=24)
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def wrong_sums(server):
    """Several requests at a time; also how many prompt tokens were not computed again."""
    with concurrent.futures.ThreadPoolExecutor(len(SUMS)) as pool:
        got = list(pool.map(lambda pair: ask_sum(server, pair), SUMS))
    wrong = [text for (text, _), (a, b) in zip(got, SUMS) if text != f"{a} + {b} = {a + b}"]
    return wrong, max(n for _, n in got)


def serves(limpid, layout):
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        options = [*map(str, layout), "--threads", "1", "--self-check", "full", "--cache-dir", os.path.join(folder, "cache")]
        for run_number in range(2):
            with Server(limpid, MINI_MODEL, options) as s:
                text, n_cached = ask_sum(s, SUMS[0])
                if (n_cached > 0) != (run_number > 0):
                    yield f"run {run_number + 1} found {n_cached} tokens of the first prompt on disk"
                wrong, n_cached = wrong_sums(s)
                if wrong or not n_cached:
                    yield f"run {run_number + 1}: {n_cached} tokens cached, wrong answers: {wrong}"
                metrics = s.metrics()
                for rank in range(layout[1]):
                    if not any(f'limpid_rank_step_seconds_total{{rank="{rank}"' in name and value > 0 for name, value in metrics.items()):
                        yield f"no time of rank {rank} in /metrics"
                s.process.terminate()
                if s.process.wait(60):
                    yield f"the server ends with status {s.process.returncode}: {s.stderr()[-400:]}"


# ---- sequences divided over ranks

# By the definition of operations, so that logits differ in the order of sums alone.
PLAIN = ["--backend", "ref", "--kv", "f32", "--threads", "1", "--self-check", "off"]
WORDS = "river tower garden letter winter bridge lantern market".split()


def story(i, n_words=60):
    """A text that begins with the number of the story: no two share a page."""
    return f"Story {i}. " + " ".join(WORDS[(i * 5 + k * (i + 1)) % len(WORDS)] for k in range(n_words))


def answer(server, prompt, n=8):
    """Ids, their log-probabilities, and how many prompt tokens were cached."""
    got = server.complete(prompt=prompt, temperature=0, max_tokens=n, ignore_eos=True, logprobs=1)
    choice = got["choices"][0]
    return choice["text"], np.array(choice["logprobs"]["token_logprobs"]), got["usage"]["prompt_tokens_details"]["cached_tokens"]


def answers(server, prompts, **options):
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: answer(server, prompt, **options), prompts))


def others_than(got, want, what):
    for i, ((text, logprobs, _), (text_alone, alone, _)) in enumerate(zip(got, want)):
        if text != text_alone:
            yield f"{what} {i} is {text!r}, in one process {text_alone!r}"
        else:
            yield too_far("log-probabilities", logprobs, alone, TOLERANCE)


def used_by_rank(server, n):
    """Pages that hold something, of sequences or of known prefixes."""
    numbers = server.metrics()
    return [int(pages - free) for pages, free in zip(of_ranks(numbers, "kv_pages", n), of_ranks(numbers, "kv_pages_free", n))]


def divides_sequences(limpid, size, options, alone_options, chunk, one=None):
    """Distinct prompts, at a time: on all ranks. Then each again and further: found where it was computed. one: the
    program that answers alone."""
    prompts = [story(i) for i in range(2 * size)] + [story(0) + " and then"]
    with Server(one or limpid, MINI_MODEL, [*alone_options, "--chunk", "64"]) as alone:
        want, further = answers(alone, prompts), answers(alone, [p + " One day" for p in prompts])
    with Server(limpid, MINI_MODEL, [*map(str, options), "--chunk", str(chunk)]) as s:
        yield from others_than(answers(s, prompts), want, "answer")
        used = used_by_rank(s, size)
        if min(used) == 0:
            yield f"pages used on the ranks are {used}"
        again = answers(s, [p + " One day" for p in prompts])
        yield from others_than(again, further, "further answer")
        if min(n for _, _, n in again) < 64:
            yield f"cached tokens of prompts that were computed before are {[n for _, _, n in again]}"


def more_than_a_rank_has(limpid, layout):
    """Each rank has pages for one sequence of the context; as many as ranks run at a time, and all get their answer."""
    size = layout[1]
    prompts = [story(i, 200) for i in range(size + 2)]
    with Server(limpid, MINI_MODEL, PLAIN) as alone:
        want = answers(alone, prompts, n=20)
        n_tokens = max(alone.complete(prompt=p, max_tokens=1)["usage"]["prompt_tokens"] for p in prompts)
    context = (n_tokens + 20 + 63) // 64 * 64
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        path = os.path.join(folder, "t.jsonl")
        options = [*PLAIN, *map(str, layout), "--ctx", str(context), "--kv-tokens", str(context * size), "--trace", path]
        with Server(limpid, MINI_MODEL, options) as s:
            yield from others_than(answers(s, prompts, n=20), want, "answer")
            kv_pages = [v for k, v in s.metrics().items() if k.startswith("limpid_rank_kv_pages{")]
            if kv_pages != [context // 64 + 1] * size:  # and one for the copy of a shared one
                yield f"pages of the ranks are {kv_pages}, expected {context // 64 + 1} each"
            s.stop()
        with open(path) as f:
            events = [json.loads(line) for line in f]
        most = max(e["n_running"] for e in events if e["event"] == "schedule")
        ranks = {e["rank"] for e in events if e["event"] == "cache"}
        if most != size or ranks != set(range(size)):
            yield f"at most {most} sequences ran at a time, on the ranks {sorted(ranks)}"


def caches_together(limpid, layout):
    """The ranks' caches are that of one process, where heads are divided as many times that."""
    size, plan = layout[1], {}
    for name, options in (("one", []), ("heads", ["--ranks", size]), ("data", layout)):
        out = run([limpid, "inspect", MINI_MODEL, "--json", "--ctx", 256, "--kv-tokens", 256 * 4 * size, *options]).stdout
        plan[name] = json.loads(out)
    one = plan["one"]["memory"]["kv_bytes_per_token"] * 256 * 4 * size
    sums = {name: sum(r["kv_bytes"] for r in plan[name]["ranks"]) for name in ("heads", "data")}
    if sums != {"heads": size * one, "data": one}:
        yield f"KV bytes of all ranks are {sums}, of one process {one}"
    if any(r["attention"] != "data" or r["kv_tokens"] != 256 * 4 for r in plan["data"]["ranks"]):
        yield f"the plan is {plan['data']['ranks']}"


def more_ranks_than_experts(limpid, g):
    """One has no expert, and all but one no rows."""
    layout = ["--ranks", 7, "--attention-parallel", "data", "--shard-experts", "whole"]
    plan = json.loads(run([limpid, "inspect", g.path, "--json", *layout]).stdout)["ranks"]
    if min(r["experts"][1] - r["experts"][0] for r in plan) > 0 or {r["exchange"] for r in plan} != {"experts"}:
        yield f"the plan is {plan}"
    yield from golden(limpid, g, [*layout, "--threads", 1], "cpu")


# What a division is called in plans and traces.
EXCHANGES = {"2": "sums", "3": "sums", "2 data": "rows", "4 data": "rows", "2 data, whole": "experts", "4 data, whole": "experts"}


def steps_of(limpid, n_tokens, layout, folder):
    """Of a prompt, by rank: the steps of its trace, and the exchange that it names."""
    path = os.path.join(folder, "t.jsonl")
    run([limpid, "dump", MINI_MODEL, "--tokens", ",".join(str(100 + i) for i in range(n_tokens)), "--chunk", n_tokens, "--threads", 1,
         "--logits", os.path.join(folder, "l.npy"), "--trace", path, *layout])
    for rank in range(layout[1]):
        with open(path + (f".rank{rank}" if rank else "")) as f:
            events = [json.loads(line) for line in f]
        yield [e for e in events if e["event"] == "step"], next(e["exchange"] for e in events if e["event"] == "model")


def exchanges(limpid, name):
    """What the ranks gave one another in the one step of a prompt, whose rows are all on one rank: counted by hand."""
    layout, n_tokens, kind = LAYOUTS[name], 64, EXCHANGES[name]
    report = json.loads(run([limpid, "inspect", MINI_MODEL, "--json", *layout]).stdout)
    facts = {f["name"]: f["value"] for f in report["facts"]}
    n_layers = int(facts["block_count"]) - int(facts["nextn_predict_layers"])
    n_dense, n_used = int(facts["leading_dense_block_count"]), int(facts["expert_used_count"])
    others, row = layout[1] - 1, int(facts["embedding_length"]) * 4
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        steps, names = zip(*steps_of(limpid, n_tokens, layout, folder))
    if set(names) != {kind} or any(len(s) != 1 for s in steps):
        yield f"exchanges are called {names}, of {[len(s) for s in steps]} steps"
        return
    rows = [s[0]["rows_sent"] for s in steps]
    n_rows = sum(rows)
    n_gathers = {"sums": 0, "rows": n_layers + 1, "experts": n_dense + 1}[kind]  # before a FFN that is divided, and at the end
    n_sums = {"sums": 2 * n_layers * (others + 1), "rows": n_layers, "experts": n_dense}[kind]  # so small: all to each who gets them
    gathered = n_tokens * n_gathers * others
    chosen = n_tokens * (n_layers - n_dense) if kind == "experts" else 0
    if sum(n > 0 for n in rows) > 1 or not gathered + (chosen > 0) <= n_rows <= gathered + chosen * min(others, n_used):
        yield f"rows sent are {rows}, {gathered} of them by hand, and of {chosen} those with experts elsewhere"
    first, end = report["ranks"][0]["vocabulary"]
    logits = n_tokens * (int(facts["vocab_size"]) - (end - first)) * 4
    want = (n_rows + n_tokens * n_sums * others + (n_rows - gathered)) * row + chosen * others * 2 * n_used * 4 + logits
    got = sum(s[0]["bytes_sent"] for s in steps)
    if got != want:
        yield f"{got} bytes are sent, {want} by hand"


def memory_available():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))


def chooses_data(limpid):
    """A cache that does not fit twice: the program divides it, and says so."""
    out = run([limpid, "inspect", MINI_MODEL, "--json"]).stdout
    n = int(memory_available() * 0.6 / json.loads(out)["memory"]["kv_bytes_per_token"]) // 64 * 64
    options = ["--ranks", "2", "--ctx", "256", "--threads", "1", "--self-check", "off"]
    with Server(limpid, MINI_MODEL, [*options, "--kv-tokens", str(n)]) as s:
        for words in ("attention-parallel data: a KV cache of", "on each of 2 ranks"):
            if words not in s.stderr():
                yield f"no {words!r} in {s.stderr()!r}"
        text = s.complete(prompt="Once", max_tokens=4, temperature=0)["choices"][0]["text"]
        if not text:
            yield "no answer"
    with Server(limpid, MINI_MODEL, [*options, "--kv-tokens", "4096"]) as s:
        if "attention-parallel" in s.stderr():
            yield f"a small cache is divided: {s.stderr()!r}"


# ---- traces

def trace_of(limpid, path, *options):
    return run([limpid, "trace", path, *options]).stdout


def step_times(events, pid):
    return {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == pid and e["name"].startswith("step")}


def traces(limpid, layout):
    """What is read of FILE is of all ranks; a step's times overlap on all of them."""
    size = layout[1]
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        path = os.path.join(folder, "t.jsonl")
        run([limpid, "run", MINI_MODEL, "-p", PROMPT, "-n", 6, "--ignore-eos", "--threads", 1, "--trace", path, *layout])
        text, steps = trace_of(limpid, path), trace_of(limpid, path, "--steps")
        if f"traces of {size} of {size}\n" not in text or text.count("the same host's clock\n") != size - 1 or "process    rank 0 on" not in text:
            yield f"the text is {text}"
        for sign in ("not whole", "missing", "doubtful"):
            if sign in text:
                yield f"{sign!r} in {text}"
        rows = [line.split(None, 5) for line in steps.splitlines() if line.count(" + ") == size]
        if len(rows) != 6 or any(not (row[3].isdigit() and row[4].isdigit()) for row in rows):
            yield f"the steps are {steps}"
        events = json.loads(trace_of(limpid, path, "--format", "chrome"))["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        if sorted(names) != list(range(size + 1)) or any(not names[i].startswith(f"rank {i} on ") for i in range(size)):
            yield f"processes of the export are {names}"
        times = [step_times(events, rank) for rank in range(size)]
        for name, (_, end) in times[0].items():
            if any(name not in t or not t[name][0] < end for t in times):
                yield f"{name} is at {[t.get(name) for t in times]}"
        one = trace_of(limpid, path, "--rank", size - 1)
        if f"rank {size - 1} on" not in one or "traces of" in one:
            yield f"one rank is {one}"
        os.remove(path + ".rank1")
        if "missing    rank 1: cannot open" not in trace_of(limpid, path):
            yield "nobody misses the trace of rank 1"


def has_no_step(path):
    try:
        with open(path) as f:
            return '"event":"step"' not in f.read()
    except FileNotFoundError:
        return True


def trace_of_a_killed_rank(limpid):
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        path = os.path.join(folder, "t.jsonl")
        options = ["-p", PROMPT, "-n", 3000, "--ignore-eos", "--threads", 1, "--rank-timeout", 5, "--ranks", 2, "--trace", path]
        process = subprocess.Popen([str(x) for x in [limpid, "run", MINI_MODEL, *options]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            process.stdout.read(40)  # it gives tokens
            until = time.monotonic() + 30
            while has_no_step(path + ".rank1") and time.monotonic() < until:  # a file is written from time to time
                time.sleep(0.02)
            os.kill(process_of(1, path), signal.SIGKILL)
            process.communicate(timeout=60)
        finally:
            process.kill()
        text = trace_of(limpid, path)
        if "traces of 2 of 2\n" not in text or not re.search(r"not whole  rank 1: (its last step is|step) \d", text) or "the same host's clock" not in text:
            yield f"the text is {text}"


# ---- ranks that fail

def process_of(rank, marker):
    """The number of a rank's process, by what its environment and command line say."""
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{path}/environ") as e, open(f"{path}/cmdline") as c:
                if f"OMPI_COMM_WORLD_RANK={rank}" in e.read().split("\0") and marker in c.read().split("\0"):
                    return int(path[6:])
        except OSError:
            continue  # it has ended
    raise AssertionError(f"no process is rank {rank}")


def fails(limpid, number, sentence, *layout):
    """A rank is killed or stopped while a request runs: it gets the reason, health turns red, all ends."""
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as marker:
        options = ["--ranks", "2", *layout, "--threads", "1", "--rank-timeout", "5", "--self-check", "off", "--cache-dir", marker]
        with Server(limpid, MINI_MODEL, options) as s, concurrent.futures.ThreadPoolExecutor(1) as pool:
            victim = process_of(1, marker)
            body = json.dumps({"prompt": "Once", "max_tokens": 4000, "ignore_eos": True})
            asked = pool.submit(s.ask, "POST", "/v1/completions", body)
            time.sleep(1)
            os.kill(victim, number)
            status, _, raw = asked.result(60)
            if status != 500 or sentence not in raw.decode() or "rank 1" not in raw.decode():
                yield f"the request has status {status}: {raw}"
            status, _, raw = s.ask("GET", "/health")
            if status != 503 or json.loads(raw) != {"status": "failed"}:
                yield f"/health has status {status}: {raw}"
            if s.process.wait(60) == 0:
                yield "the server ends with status 0"
            for _ in range(20):  # mpirun sees to it
                if not os.path.exists(f"/proc/{victim}"):
                    return
                time.sleep(0.5)
            yield "the other rank still runs"


# ---- what goes wrong

def refuses(limpid, options, status, *words):
    done = subprocess.run([str(x) for x in [limpid, "run", MINI_MODEL, "-p", "x", "-n", 1, *options]], capture_output=True, text=True,
                          timeout=120)
    if done.returncode != status:
        yield f"{options}: exit status {done.returncode}, expected {status}: {done.stderr[-400:]}"
    for word in words:
        if word not in done.stderr:
            yield f"{options}: no {word!r} in {done.stderr[-400:]!r}"


def bad_file(limpid, layout):
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        path = os.path.join(folder, "cut.gguf")
        with open(MINI_MODEL, "rb") as f, open(path, "wb") as out:
            out.write(f.read(100000))
        done = subprocess.run([str(x) for x in [limpid, "run", path, "-p", "x", *layout]], capture_output=True, text=True, timeout=120)
        if done.returncode != 1 or "cut.gguf" not in done.stderr:
            yield f"exit status {done.returncode}: {done.stderr[-400:]!r}"


def differ(limpid, other, *words):
    """Rank 1 runs in a folder that has another file under the model's name, or none."""
    with tempfile.TemporaryDirectory(prefix="limpid-ranks-") as folder:
        for rank, source in enumerate((MINI_MODEL, other)):
            os.mkdir(f"{folder}/{rank}")
            if source:
                os.symlink(source, f"{folder}/{rank}/m.gguf")
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        for rank in range(2):
            command += [*([":"] if rank else []), "-n", "1", "-wdir", f"{folder}/{rank}", limpid, "run", "m.gguf", "-p", "x", "-n", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            yield f"exit status 0: {done.stdout!r}"
        for word in words:
            if word not in done.stderr:
                yield f"no {word!r} in {done.stderr[-600:]!r}"


def main():
    args = arguments(__doc__)
    if not shutil.which("mpirun"):
        skip("mpirun is missing (Debian: openmpi-bin)")
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # MPI leaves memory behind
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", "true"]
    launched = subprocess.run(launch, capture_output=True, text=True, timeout=120)
    if launched.returncode:
        skip(f"mpirun cannot start two processes here: {launched.stderr.strip()[-300:]}")
    probe = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "1", args.limpid, "tokenize", MINI_MODEL, "x"],
                           capture_output=True, text=True)
    if "has no MPI" in probe.stderr:
        skip("this build has no MPI")
    checks = Checks(args)
    models = [Golden(n) for n in golden_names()]
    names = list(LAYOUTS)
    if args.sanitizer:
        models = models[::4]
    for i, g in enumerate(models):  # every model in half of the layouts, neighbours in the two halves
        mine = [names[1], names[7], names[8]] if args.sanitizer else names[i % 2::2]
        for name in mine:
            if "--pipeline" not in LAYOUTS[name] or LAYOUTS[name][-1] <= g.info["n_layer"]:
                checks.add(f"{g.name} {name}", golden, args.limpid, g, LAYOUTS[name], "cpu")
        for name in () if args.sanitizer or "experts" not in g.ref else [x for x in DATA if x not in mine]:
            checks.add(f"{g.name} {name}", golden, args.limpid, g, LAYOUTS[name], "cpu")
        if i % 3 == 0 and not args.sanitizer:
            checks.add(f"{g.name} ref", golden, args.limpid, g, LAYOUTS["3"], "ref")
    for i, g in enumerate(models[:1] if args.sanitizer else models[::3]):
        layout = LAYOUTS[("2", "3 whole", "2 stages")[i % 3]]
        checks.add(f"{g.name} {' '.join(map(str, layout))} read ahead", golden, args.limpid, g, [*layout, "--prefetch"], "cpu")
        checks.add(f"{g.name} 3, read ahead and repacked", golden, args.limpid, g, [*LAYOUTS["3"], "--prefetch", "--repack", "on"], "cpu")
    for name in ("2 whole",) if args.sanitizer else ("3", "2 whole", "2 stages of 2", "2 data", "2 data, whole", "4 data, whole"):
        checks.add(f"{models[0].name} {name} deterministic", same_bits, args.limpid, models[0], LAYOUTS[name])
    for name in () if args.sanitizer else ("2 stages", "3 stages", "2 stages of 2"):
        checks.add(f"windows, {name}", long_prompt, args.limpid, LAYOUTS[name])
    for name in ("2 stages of 2", "3 data, whole") if args.sanitizer else ("2", "2 stages", "2 stages of 2", "2 data", "3 data, whole"):
        checks.add(f"drafts, {name}", speculates, args.limpid, LAYOUTS[name])
    for name, layout in (("dsa_shared", "2 stages of 2"),) if args.sanitizer else (
            ("ds3", "2"), ("dsa_shared", "2 stages of 2"), ("glm45", "3 data, whole")):
        checks.add(f"experts on disk, {name}, {layout}", from_disk, args.limpid, Golden(name), LAYOUTS[layout])
    if not args.sanitizer:
        checks.add("experts on disk, a read fails on a rank", reads_fail, args.limpid, LAYOUTS["2"])
    for name in () if args.sanitizer else ("2 stages of 2", "3 stages"):
        checks.add(f"drafts as in one process, {name}", same_drafts, args.limpid, LAYOUTS[name])
    for model, name in (("dsa_shared", "2 stages of 2"),) if args.sanitizer else (
            ("dsa_shared", "3 whole"), ("dsa_shared", "2 stages of 2"), ("dsa_shared", "3 data"), ("qwen3", "4"), ("glm45", "2 stages of 2")):
        checks.add(f"probes, {model} {name}", probes, args.limpid, Golden(model), LAYOUTS[name])
    if not args.sanitizer:
        checks.add("diff", compares, args.limpid)
        checks.add("some probes", some_probes, args.limpid, Golden("dsa_sparse"), LAYOUTS["2 stages"])
    for name, chunk in (("3 data, whole", 17),) if args.sanitizer else (("2 data", 64), ("3 data, whole", 17), ("4 data", 512)):
        checks.add(f"sequences, {name}, chunks of {chunk}", divides_sequences, args.limpid, LAYOUTS[name][1], [*PLAIN, *LAYOUTS[name]],
                   PLAIN, chunk)
        checks.add(f"more sequences than a rank has pages for, {name}", more_than_a_rank_has, args.limpid, LAYOUTS[name])
        checks.add(f"caches together, {name}", caches_together, args.limpid, LAYOUTS[name])
    if not args.sanitizer:
        checks.add("more ranks than experts", more_ranks_than_experts, args.limpid, Golden("dsa_shared"))
    for name in ("2 data, whole",) if args.sanitizer else EXCHANGES:
        checks.add(f"what is exchanged, {name}", exchanges, args.limpid, name)
    if not args.sanitizer:
        checks.add("data where heads do not fit", chooses_data, args.limpid)
    for name in ("2 data",) if args.sanitizer else ("2", "2 stages", "4", "2 data", "3 data, whole"):
        checks.add(f"server, {name}", serves, args.limpid, LAYOUTS[name])
    for name in ("2",) if args.sanitizer else ("2", "2 stages of 2"):
        checks.add(f"trace, {name}", traces, args.limpid, LAYOUTS[name])
    checks.add("trace of a rank that is killed", trace_of_a_killed_rank, args.limpid)
    refused = (
        (["--ranks", "0"], 2, ["--ranks is '0'"]), (["--ranks", "x"], 2, ["--ranks is 'x'"]),
        (["--pipeline", 2], 2, ["needs several ranks"]),
        (["--ranks", 3, "--pipeline", 2], 2, ["3 ranks", "the nearest is 1"]),
        (["--ranks", 2, "--shard-experts", "half"], 2, ["shard_experts is 'half'"]),
        (["--attention-parallel", "data"], 2, ["over several ranks"]),
        (["--ranks", 2, "--attention-parallel", "rows"], 2, ["attention_parallel is 'rows'"]),
        (["--ranks", 2, "--pipeline", 2, "--attention-parallel", "data"], 1, ["--attention-parallel data", "--pipeline"]),
        (["--ranks", 2, "--memory-budget", "12M", "--shard-experts", "split"], 1, ["--shard-experts whole"]),
        (["--ranks", 2, "--memory-budget", "5M"], 2, ["rank 0: a memory budget", "at least"]))
    for options, status, words in refused[-3:] if args.sanitizer else refused:
        checks.add(f"refused: {' '.join(map(str, options))}", refuses, args.limpid, options, status, *words)
    whole = ["--attention-parallel", "data", "--shard-experts", "whole"]
    checks.add("a rank is killed", fails, args.limpid, signal.SIGKILL, "has ended")
    checks.add("a rank hangs, data, whole", fails, args.limpid, signal.SIGSTOP, "is stopped", *whole)
    if not args.sanitizer:
        checks.add("a rank is killed, data", fails, args.limpid, signal.SIGKILL, "has ended", "--attention-parallel", "data")
        checks.add("a rank is killed, data, whole", fails, args.limpid, signal.SIGKILL, "has ended", *whole)
        checks.add("a rank hangs", fails, args.limpid, signal.SIGSTOP, "is stopped")
    checks.add("no file on a rank", differ, args.limpid, None, "rank 1 on", "cannot open")
    checks.add("another file on a rank", differ, args.limpid, models[0].path, "rank 1 on", "another file")
    checks.add("a cut file", bad_file, args.limpid, LAYOUTS["2"])
    checks.finish()


if __name__ == "__main__":
    main()
