#!/usr/bin/env python3
"""While a prompt as long as the context allows is computed, running answers get a token in every step, and a short
question goes in between: shown by the trace, not by the clock.

    fairness.py LIMPID [--sanitizer]
"""
import argparse
import json
import pathlib
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
from client import Server  # noqa: E402

MODEL = ROOT / "models" / "mini-glm-dsa.gguf"
MOST_WAIT = 2  # steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("limpid")
    parser.add_argument("--sanitizer", action="store_true")
    args = parser.parse_args()
    context = 1024 if args.sanitizer else 4096
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "trace.jsonl")
        options = ["--ctx", str(context), "--kv-tokens", str(3 * context), "--chunk", "64", "--max-batch-tokens", "64",
                   "--trace", str(trace), "--self-check", "off"]
        with Server(args.limpid, str(MODEL), options) as server:
            def ask(prompt, n):
                server.complete(prompt=prompt, max_tokens=n, temperature=0, ignore_eos=True)

            answers = [threading.Thread(target=ask, args=([10 + i, 20, 30], context // 2)) for i in range(4)]
            for thread in answers:
                thread.start()
            server.wait_for(lambda m: m["limpid_sequences_running"] == 4)
            long = threading.Thread(target=ask, args=([40 + i % 900 for i in range(context - 4)], 2))
            long.start()
            server.wait_for(lambda m: m["limpid_sequences_running"] == 5)
            ask([500, 501, 502], 1)  # a question that comes while the long prompt runs
            for thread in answers + [long]:
                thread.join()
            server.stop()
        check([json.loads(line) for line in trace.read_text().splitlines()], context)


def check(events, context):
    requests = [e for e in events if e["event"] == "request"]
    long = next(e for e in requests if e["n_prompt"] == context - 4)["sequence"]
    question = next(e for e in requests if e["n_prompt"] == 3 and e["n_tokens"] == 4 and e["what"] == "ended")["sequence"]
    rows = {}  # step -> sequence -> its tokens in the step
    for e in events:
        if e["event"] == "attention" and e["layer"] == 0:
            rows.setdefault(e["step"], {})[e["sequence"]] = e["n_query"]
    prefill = [s for s, r in sorted(rows.items()) if r.get(long, 0) > 1]
    streams = [e["sequence"] for e in requests if e["what"] == "admitted" and e["n_prompt"] == 3 and
               e["sequence"] != question]
    assert len(streams) == 4 and len(prefill) > context // 64, (streams, len(prefill))
    for sequence in streams:
        mine = [s for s, r in sorted(rows.items()) if sequence in r]
        during = [s for s in mine if prefill[0] <= s <= prefill[-1]]
        assert during, f"sequence {sequence} got nothing while the long prompt ran"
        gaps = [b - a for a, b in zip(mine, mine[1:])]
        assert max(gaps) <= MOST_WAIT, f"sequence {sequence} waited {max(gaps)} steps"
    asked = min(s for s, r in rows.items() if question in r)
    assert prefill[0] < asked < prefill[-1], "the question waited for the long prompt's end"
    due = [e for e in events if e["event"] == "schedule"]
    late = [e for e in due if e["answer_tokens"] != e["answers"]]
    assert not late, f"{len(late)} of {len(due)} steps left an answer out: {late[0]}"
    print(f"a prompt of {context - 4} tokens took {len(prefill)} steps; 4 answers got a token in each of them, and a "
          f"question went in between")


main()
