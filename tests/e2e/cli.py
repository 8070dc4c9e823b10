#!/usr/bin/env python3
"""What scripts rely on: exit statuses, outputs that cannot be written, input with NUL bytes.

    cli.py LIMPID [--sanitizer] [--only TEXT]
"""
import os
import re
import shutil
import subprocess
import tempfile

import gguf_edit
from harness import GOLDEN, MINI_MODEL, Checks, arguments

DUMP = ["dump", MINI_MODEL, "--tokens", "1,2"]
RUN = ["run", MINI_MODEL, "-p", "hi", "-n", "2"]

# name, arguments, standard input, exit status, what standard error must name
CASES = [
    ("kv", [*RUN, "--kv", "f64"], b"", 2, "f64"),
    ("route", [*RUN, "--route", "round"], b"", 2, "round"),
    ("backend", [*RUN, "--backend", "abacus"], b"", 2, "abacus"),
    ("log", [*RUN, "--log", "loud"], b"", 2, "loud"),
    ("threads", [*RUN, "--threads", "1025"], b"", 2, "1025"),
    ("plan", ["inspect", MINI_MODEL, "--ctx", "9223372036854775807"], b"", 2, "--ctx is 9223372036854775807"),
    ("model", ["run", "/nonexistent.gguf", "-p", "hi"], b"", 1, "/nonexistent.gguf"),
    ("hidden full", [*DUMP, "--hidden", "/dev/full"], b"", 1, "/dev/full"),
    ("tokens empty", ["dump", MINI_MODEL, "--tokens", ""], b"", 1, "--tokens"),
    ("tokens torn", ["dump", MINI_MODEL, "--tokens", "1,2,3;"], b"", 1, "--tokens"),
    ("decode NUL", ["tokenize", MINI_MODEL, "--decode"], b"1,2\0,3", 1, "NUL"),
    ("chat NUL", ["run", MINI_MODEL, "-n", "2"], b"a\0b\n", 1, "NUL"),
]
if not os.path.exists("/dev/nvidiactl"):  # whether this build has the backend or not
    CASES.append(("no GPU", [*RUN, "--backend", "cuda"], b"", 1, "--backend cpu"))
TO_FULL = [["tokenize", MINI_MODEL, "hello"], ["tokenize", MINI_MODEL, "--decode", "100"], [*DUMP, "--greedy", "2"],
           RUN, ["inspect", MINI_MODEL], ["--help"], ["--version"]]


def ends(limpid, command, text, status, needle):
    done = subprocess.run([limpid, *command], input=text, capture_output=True, timeout=120)
    message = done.stderr.decode(errors="replace")
    if done.returncode != status:
        yield f"exit status {done.returncode}, expected {status}: {message!r}"
    if needle not in message:
        yield f"the message does not name {needle!r}: {message!r}"


def full(limpid, command):
    with open("/dev/full", "w") as device:
        done = subprocess.run([limpid, *command], stdout=device, stderr=subprocess.PIPE, timeout=120)
    if done.returncode != 1 or b"cannot write" not in done.stderr:
        yield f"output to a full disk: exit status {done.returncode}, {done.stderr!r}"


def answers_lines(limpid):
    """A program that talks to a conversation through pipes gets the end of each line at once."""
    chat = subprocess.Popen([limpid, "run", MINI_MODEL, "-n", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(2):
        chat.stdin.write(b"hi\n")
        chat.stdin.flush()
        if not chat.stdout.readline().endswith(b"\n"):
            yield "no whole line came back"
    chat.stdin.close()
    if chat.wait(60):
        yield f"exit status {chat.returncode}"
    chat.stdout.close()


def pre_is_warned_of(limpid, folder):
    model = gguf_edit.read(os.path.join(GOLDEN, "dsa_sparse.gguf"))
    model.drop("tokenizer.ggml.pre")
    path = os.path.join(folder, "no-pre.gguf")
    with open(path, "wb") as f:
        f.write(model.bytes())
    done = subprocess.run([limpid, "tokenize", path, "hello"], capture_output=True, timeout=60)
    if done.returncode or b"tokenizer.ggml.pre is missing" not in done.stderr:
        yield f"exit status {done.returncode}, {done.stderr!r}"


def model_is_kept(limpid, folder):
    """No output takes the place of the model."""
    path = os.path.join(folder, "model.gguf")
    shutil.copy(MINI_MODEL, path)
    yield from ends(limpid, ["dump", path, "--tokens", "1,2", "--logits", path], b"", 2, "written over")
    yield from ends(limpid, ["run", path, "-p", "hi", "-n", "1", "--trace", path], b"", 2, "written over")
    if open(path, "rb").read() != open(MINI_MODEL, "rb").read():
        yield "the model was written over"


def help_is_short(limpid):
    """All commands, in groups, on a terminal of usual width; so are their own options."""
    out = subprocess.run([limpid, "--help"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^  limpid (\w+)", out, re.M)
    if len(names) != len(set(names)) or len(names) < 16:
        yield f"the commands are {names}"
    for title in ("Run and serve", "Look and debug", "Files"):
        if f"\n\n{title}\n\n  limpid " not in out:
            yield f"there is no group {title!r}: {out}"
    for name in names:
        out += subprocess.run([limpid, name, "--help"], capture_output=True, text=True, check=True).stdout
    yield from (f"a line of {len(line)}: {line}" for line in out.splitlines() if len(line) > 119)


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-cli-") as folder:
        for name, command, text, status, needle in CASES:
            checks.add(name, ends, args.limpid, command, text, status, needle)
        for command in TO_FULL:
            checks.add("full disk: " + command[0], full, args.limpid, command)
        checks.add("chat by lines", answers_lines, args.limpid)
        checks.add("missing pre", pre_is_warned_of, args.limpid, folder)
        checks.add("help", help_is_short, args.limpid)
        checks.add("the model is kept", model_is_kept, args.limpid, folder)
        checks.finish()


if __name__ == "__main__":
    main()
