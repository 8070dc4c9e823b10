#!/usr/bin/env python3
"""Random schemas asked of a live server: every answer that came to its end is valid for Python's jsonschema.

    answers.py LIMPID MODEL [N_SCHEMAS] [SEED]

The model is small and its temperature high, so that what it writes is held by the schema alone. Answers that the
length limit cut are counted: most must end.
"""
import concurrent.futures
import json
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "api"))
from client import Server  # noqa: E402
from schemas import Maker, format_checker, jsonschema  # noqa: E402


def ask(server, number, schema):
    """(status, finish reason, text), whole or streamed, in one of the forms in which clients ask."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    fields = ({"response_format": form}, {"structured_outputs": {"json": schema}})[number % 2]
    body = {"messages": [{"role": "user", "content": "Write JSON."}], "temperature": 1.0, "seed": number, "max_tokens": 400,
            "chat_template_kwargs": {"enable_thinking": number % 3 == 0}, **fields}
    status, _, raw = server.ask("POST", "/v1/chat/completions", json.dumps(body))
    answer = json.loads(raw)
    if status != 200:
        return status, answer["error"]["message"], ""
    choice = answer["choices"][0]
    return status, choice["finish_reason"], choice["message"]["content"] or ""


def main():
    limpid, model = sys.argv[1:3]
    n, seed = (int(a) for a in (sys.argv[3:] + ["500", "7"][len(sys.argv) - 3:]))
    maker, checker = Maker(seed), format_checker()
    schemas = [maker.whole() for _ in range(n)]
    with Server(limpid, model, ["--max-seqs", "16"]) as server, concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: ask(server, i, schemas[i]), range(n)))
        server.stop()
    counts, faults = {}, 0
    for schema, (status, reason, text) in zip(schemas, answers):
        kind = reason if status == 200 else f"status {status}"
        counts[kind] = counts.get(kind, 0) + 1
        if status not in (200, 400):
            faults += 1
            print(f"STATUS {status}: {reason}\n  of {json.dumps(schema)[:400]}")
        if kind != "stop":
            continue
        try:
            jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text))
        except (jsonschema.ValidationError, ValueError) as error:
            faults += 1
            print(f"NOT VALID: {text}\n  of {json.dumps(schema)}\n  {str(error).splitlines()[0]}")
    print(f"{n} schemas: {counts}, {faults} faults")
    return faults > 0 or counts.get("stop", 0) < n // 2


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
