#!/usr/bin/env python3
"""What holding an answer to a JSON schema costs: decode steps with and without, in turns, on one server.

    grammar.py [LIMPID] [MODEL] [ROUNDS]

Each round generates as many tokens behind the same prompt, free and held; a step's time is the engine's own (GET
/engine), sampling and grammar included. Prints the medians in ms and their ratio.
"""
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))
from client import Server  # noqa: E402

N_TOKENS = 200
PERSON = {"type": "object", "properties": {"name": {"type": "string", "minLength": 20}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
SCHEMA = {"type": "array", "items": PERSON, "minItems": 200}  # long enough not to end by itself


def decode_steps(server, **fields):
    """Milliseconds of each step of one answer, the prompt's left out."""
    since = json.loads(server.ask("GET", "/engine")[2])["steps"]
    server.complete(prompt="[gMASK]<sop><|user|>Write JSON.<|assistant|></think>", max_tokens=N_TOKENS, temperature=1.0,
                    seed=1, ignore_eos=True, **fields)
    recent = json.loads(server.ask("GET", f"/engine?since={since}")[2])["recent"]
    return [1000 * step["duration_s"] for step in recent if step["answer_tokens"] == 1 and step["prompt_tokens"] == 0]


def main():
    limpid, model, rounds = (sys.argv[1:] + [str(ROOT / "build/release/limpid"), str(ROOT / "models/mini-glm-dsa.gguf"),
                                             "15"][len(sys.argv) - 1:])
    free, held = [], []
    with Server(limpid, model) as server:
        decode_steps(server, structured_outputs={"json": SCHEMA})  # compiles it; a server does that once for all
        for _ in range(int(rounds)):
            free += decode_steps(server)
            held += decode_steps(server, structured_outputs={"json": SCHEMA})
        server.stop()
    a, b = statistics.median(free), statistics.median(held)
    mean = statistics.mean(held) / statistics.mean(free)
    print(f"free {a:.3f} ms, held {b:.3f} ms a token: medians {b / a:.3f}, means {mean:.3f} ({len(free)} and {len(held)} steps)")


if __name__ == "__main__":
    main()
