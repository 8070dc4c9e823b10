#!/usr/bin/env python3
"""A device that fails while a server runs (planted in limpid-faulty): the request gets the sentence, the
server turns unhealthy and refuses new ones, nothing hangs.

    device_fails.py LIMPID --faulty LIMPID_FAULTY [--sanitizer]
"""
import json
import os
import signal
import sys
import tempfile

from harness import MINI_MODEL, ROOT, Checks, arguments

sys.path.insert(0, os.path.join(ROOT, "tests", "api"))
from client import Server  # noqa: E402


def complete(server, n):
    status, _, body = server.ask("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": n, "ignore_eos": True}))
    return status, json.loads(body)


def fails_in_a_step(args):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/limpid"  # the fault is planted by an option in front of the command
        with open(path, "w") as f:
            f.write(f'#!/bin/sh\nexec "{args.faulty}" --fault device-breaks "$@"\n')
        os.chmod(path, 0o755)
        yield from fails_on(path)


def fails_on(limpid):
    with Server(limpid, MINI_MODEL, ["--ctx", "1024", "--self-check", "off"]) as s:
        status, answer = complete(s, 3)
        if status != 200:
            yield f"a request before the failure has status {status}: {answer}"
        status, answer = complete(s, 200)
        if status < 500 or "the device broke" not in answer["error"]["message"]:
            yield f"the request in whose step the device fails has status {status}: {answer}"
        status, _, body = s.ask("GET", "/health")
        if status != 503 or json.loads(body) != {"status": "failed"}:
            yield f"/health has status {status}: {body}"
        status, answer = complete(s, 3)
        if status != 503 or "restart" not in answer["error"]["message"]:
            yield f"a request behind the failure has status {status}: {answer}"
        _, _, body = s.ask("GET", "/metrics")
        if "\nlimpid_healthy 0" not in body.decode():
            yield "limpid_healthy is not 0"
        s.process.send_signal(signal.SIGTERM)
        if s.process.wait(30) != 0:
            yield f"the server ends with status {s.process.returncode}"


def main():
    args = arguments(__doc__, [("--faulty", dict(required=True, help="a build whose faults can be planted"))])
    checks = Checks(args)
    checks.add("fails in a step", fails_in_a_step, args)
    checks.finish()


if __name__ == "__main__":
    main()
