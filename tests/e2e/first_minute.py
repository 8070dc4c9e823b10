#!/usr/bin/env python3
"""A newcomer's first minute: no model named, a folder, mistakes, a conversation at a terminal, an installed prefix.

    first_minute.py LIMPID [--sanitizer] [--only TEXT] [--build DIR]
"""
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import tempfile

from harness import MINI_MODEL, Checks, arguments
from terminal import PROMPT, Terminal, plain

ASK = "What is 347 + 285?"
SUM = str(347 + 285)


def run(limpid, *command, text=None):
    done = subprocess.run([limpid, *command], input=text, capture_output=True, timeout=180)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def chat(limpid, folder, *options, **named):
    """A conversation with a history of its own."""
    env = {"XDG_STATE_HOME": folder, "HOME": folder, **named.pop("env", {})}
    return Terminal([limpid, "run", MINI_MODEL, *options], env=env, **named)


# ---- which model ----

def builtin(limpid):
    status, out, err = run(limpid, "run", "--chat", "-p", ASK, "-n", "64")
    if status or SUM not in out:
        yield f"run without a model: exit status {status}, {out!r}, {err!r}"
    if "no model was named" not in err or "mini-glm-dsa.gguf" not in err:
        yield f"it does not say which model runs: {err!r}"


def serves(limpid, given, needles):
    """A server that says where it is, to programs and to people."""
    server = subprocess.Popen([limpid, "serve", *given, "--port", "0", "--ctx", "512"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    ready = server.stdout.readline().decode()
    found = re.fullmatch(r"limpid: serving (\S+) at (http://127\.0\.0\.1:\d+)\n", ready)
    if not found:
        yield f"the line when ready is {ready!r}"
    server.send_signal(signal.SIGINT)
    err = server.communicate(timeout=120)[1].decode()
    if server.returncode:
        yield f"exit status {server.returncode}: {err!r}"
    for needle in [*needles, f"open {found[2]}/" if found else ""]:
        if needle not in err:
            yield f"standard error does not say {needle!r}: {err!r}"


def folder_of_one(limpid, folder):
    inner = os.path.join(folder, "it's one")
    os.makedirs(os.path.join(inner, "sub"))
    os.symlink(MINI_MODEL, os.path.join(inner, "sub", "a model.gguf"))
    for command in (["run", inner, "-p", "Hello", "-n", "1"], ["inspect", inner], ["tokenize", inner, "Hello"]):
        status, _, err = run(limpid, *command)
        if status or "a model.gguf" not in err:
            yield f"{command[0]}: exit status {status}, {err!r}"
    yield from serves(limpid, [inner], ["a model.gguf"])


def next_command(err, limpid):
    """The last command that a message prints, as the words that a shell makes of it."""
    lines = [line.strip() for line in err.splitlines() if line.startswith("    limpid ")]
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {lines[-1]}"], capture_output=True, check=True).stdout
    return [limpid] + [os.fsdecode(w) for w in words.split(b"\0")[1:-1]]


def folder_of_several(limpid, folder):
    inner = os.path.join(folder, "several")
    os.makedirs(os.path.join(inner, "deep", "deeper"))
    for name in ("b.gguf", "deep/c-00001-of-00003.gguf", "deep/c-00003-of-00003.gguf", "deep/deeper/d.gguf",
                 "zürich 'q' $x.gguf", "esc\x1b[31m.gguf"):
        os.symlink(MINI_MODEL, os.path.join(inner, name))
    status, _, err = run(limpid, "serve", inner)
    if status != 2:
        yield f"exit status {status}, expected 2"
    for needle in ("4 models", "b.gguf  23.9 MB", "c-00001-of-00003.gguf", "47.9 MB", "3 parts", "missing: 00002"):
        if needle not in err:
            yield f"the list does not say {needle!r}: {err!r}"
    if "d.gguf" in err or "c-00003" in err or "\x1b" in err:
        yield f"the list says too much: {err!r}"
    if next_command(err, limpid)[1:] != ["serve", os.path.join(inner, "b.gguf")]:
        yield f"the next command is another: {err!r}"


def printed_command_works(limpid, folder):
    """Whatever the name, the command that is printed can be copied."""
    for name in ("zürich 'q' $x.gguf", "esc\x1b[31m.gguf", "new\nline.gguf", "*.gguf", "~.gguf", "back\\slash'\x1b.gguf"):
        with tempfile.TemporaryDirectory(dir=folder) as inner:
            os.symlink(MINI_MODEL, os.path.join(inner, name))
            # 80 characters in common, so that the other is near whatever the name
            status, _, err = run(limpid, "inspect", os.path.join(inner, name[:-1]))
            command = next_command(err, limpid)
            if status != 1 or command[1:] != ["inspect", os.path.join(inner, name)]:
                yield f"{name!r}: exit status {status}, {err!r}"
            elif run(limpid, *command[1:])[0]:
                yield f"{name!r}: the command fails"


def whole_lines(limpid, folder):
    """Commands that need more than a model print the whole line that was typed, with the model found."""
    inner = os.path.join(folder, "whole lines")
    os.mkdir(inner)
    model, near, out = os.path.join(inner, "mini.gguf"), os.path.join(inner, "mni.gguf"), os.path.join(inner, "an output.gguf")
    os.symlink(MINI_MODEL, model)
    for line in (["merge", near, out], ["split", near, out[:-5], "--max-size", "8M"], ["quantize", near, out, "Q4_0", "--force"],
                 ["diff", near, MINI_MODEL, "--no-values"], ["diff", MINI_MODEL, near, "--no-values"],
                 ["imatrix", near, "-f", __file__, "-o", out, "--chunks", "1"], ["convert", near, out, "--outtype", "f16"]):
        status, _, err = run(limpid, *line)
        command = next_command(err, limpid)[1:]
        if not status or command != [model if word == near else word for word in line]:
            yield f"{line[0]}: exit status {status}, the next command is {command}: {err!r}"
        elif line[0] in ("split", "diff", "imatrix") and (done := run(limpid, *command))[0]:
            yield f"{line[0]}: the next command fails: {done}"
    for command, more, pattern in (("quantize", [out, "Q4_0"], "'*BF16*.gguf'"), ("imatrix", ["-f", "text", "-o", out], "'*BF16*.gguf'"),
                                   ("merge", [out], "'*Q4_K_M*.gguf'"), ("convert", [out], None)):
        _, _, err = run(limpid, command, "some-org/some-name", *more)
        download = "hf download some-org/some-name" + (f" --include {pattern}" if pattern else "") + " --local-dir some-name\n"
        if download not in err or next_command(err, limpid)[1:] != [command, "some-name", *more]:
            yield f"{command}: {err!r}"


def mistakes(limpid, folder):
    inner = os.path.join(folder, "mistakes")
    for name in ("none", "hf", "hf-part", "torch", "split", "names"):
        os.makedirs(os.path.join(inner, name))
    for name in ("hf/config.json", "hf/model-00001-of-00002.safetensors", "hf-part/model.safetensors", "torch/pytorch_model.bin"):
        open(os.path.join(inner, name), "w").close()
    os.symlink(MINI_MODEL, os.path.join(inner, "split", "c-00002-of-00003.gguf"))
    os.symlink(MINI_MODEL, os.path.join(inner, "names", "GLM-5-Q4_K_M.gguf"))
    cases = [
        (f"{inner}/none", ["no GGUF file", "limpid run FILE.gguf"]),
        (f"{inner}/hf", ["config.json"]),
        (f"{inner}/hf/model-00001-of-00002.safetensors", ["part of a checkpoint", "config.json", f"limpid run {inner}/hf/"]),
        (f"{inner}/hf-part", ["config.json", "tokenizer.json", f"limpid run {inner}/hf-part"]),
        (f"{inner}/torch", ["neither a GGUF file nor a config.json"]),
        (f"{inner}/torch/pytorch_model.bin", ["PyTorch", "limpid run FILE.gguf"]),
        (f"{inner}/split", ["has 3 parts, and 2", "c-00001-of-00003.gguf, c-00003-of-00003.gguf"]),
        (f"{inner}/names/glm-5-q4_k_s.gguf", [f"limpid run {inner}/names/GLM-5-Q4_K_M.gguf"]),
        (f"{inner}/names/GLM-5", [f"limpid run {inner}/names/GLM-5-Q4_K_M.gguf"]),
        (f"{inner}/nams", [f"limpid run {inner}/names"]),
        (f"{inner}/nowhere/a.gguf", [f"no folder {inner}/nowhere"]),
        ("zai-org/GLM-5-GGUF", ["hf download zai-org/GLM-5-GGUF", "limpid run GLM-5-GGUF"]),
        ("hf.co/a/b", ["hf download a/b", "limpid run b"]),
        ("https://huggingface.co/a/b/resolve/main/Q4/m-00001-of-00009.gguf?download=true",
         ["hf download a/b --include 'Q4/m-*.gguf'", "limpid run b"]),
        ("https://example.org/x/m.gguf?a=1&b=2", ["curl -L -o m.gguf 'https://example.org/x/m.gguf?a=1&b=2'",
                                                  "limpid run m.gguf"]),
        ("llama3:8b", ["limpid run FILE.gguf"]),
    ]
    for given, needles in cases:
        status, _, err = run(limpid, "run", given)
        if status != 1:
            yield f"{given}: exit status {status}, expected 1"
        for needle in needles:
            if needle not in err:
                yield f"{given}: the message does not say {needle!r}: {err!r}"


def forbidden(limpid, folder):
    inner = os.path.join(folder, "forbidden")
    os.makedirs(inner)
    os.chmod(inner, 0)
    status, _, err = run(limpid, "run", inner)
    os.chmod(inner, 0o700)
    if status != 1 or f"chmod +rx {inner}" not in err:
        yield f"exit status {status}, {err!r}"


def installed(limpid, folder, build):
    """An installed limpid finds its model, wherever it was put."""
    prefix = os.path.join(folder, "pre fix")
    done = subprocess.run(["cmake", "--install", build, "--prefix", prefix], capture_output=True)
    program, model = os.path.join(prefix, "bin", "limpid"), os.path.join(prefix, "share", "limpid", "mini-glm-dsa.gguf")
    if not os.path.exists(program):
        yield f"cmake --install: {done.stderr.decode()}"
        return
    status, out, err = run(program, "run", "-p", "1, 2, 3,", "-n", "3")
    if status or "4" not in out or shlex.quote(model) not in err:
        yield f"exit status {status}, {out!r}, {err!r}"


# ---- a conversation ----

def talks(limpid, folder):
    with chat(limpid, folder) as t:
        t.until(PROMPT)
        answer = t.line(ASK)
        if SUM not in answer or "\x1b[2m" not in answer or "\x1b[0m" not in answer:
            yield f"no dimmed reasoning and answer: {answer!r}"
        if "think>" in answer:
            yield f"tags are shown: {answer!r}"
        answer = t.line("/think off") + t.line("What is the capital of France?")
        if "Paris" not in answer or "\x1b[2m" in answer:
            yield f"/think off: {answer!r}"
        path = os.path.join(folder, "saved.json")
        t.line(f"/save {path}")
        with open(path, encoding="utf-8") as f:
            saved = json.load(f)
        if [m["role"] for m in saved] != ["user", "assistant"] * 2:
            yield f"saved roles: {saved}"
        first = saved[1]
        if SUM not in first["content"] or "think>" in first["content"] or not first.get("reasoning_content", "").strip():
            yield f"content and reasoning are not apart: {first}"
        if "reasoning_content" in saved[3] and saved[3]["reasoning_content"].strip():
            yield f"reasoning after /think off: {saved[3]}"
        if "not this conversation's" in t.line(f"/save {path}"):
            yield "saving again in the same file is refused"
        if "1 left" not in t.line("/undo"):
            yield "/undo does not leave one turn"
        if SUM not in t.line("/retry"):
            yield "/retry does not answer the first question"
        t.line("/clear")
        if "2 turns" not in t.line(f"/load {path}"):
            yield "/load does not give both turns"
        if "Paris" not in t.line("/retry"):
            yield "/retry after /load does not answer the last question"
        markdown = os.path.join(folder, "saved.md")
        t.line(f"/save {markdown}")
        text = open(markdown, encoding="utf-8").read()
        if "## user\n\n" + ASK not in text or "\n> " not in text or "## assistant" not in text:
            yield f"Markdown: {text!r}"
        t.type("/exit\r")
        if t.ends():
            yield f"exit status {t.process.returncode}"


def commands(limpid, folder):
    with chat(limpid, folder, "-n", "8") as t:
        t.until(PROMPT)
        needles = [("/help", "/system"), ("/hepl", "/help?"), ("/nonsense", "/help lists them"), ("/set", "top_p"),
                   ("/set temperature 0.5", "temperature: 0.5"), ("/set temperature 300", "at most 100"),
                   ("/set top_p 0", "more than 0"), ("/set top_k x", "whole number"), ("/set max_tokens 3", "3"),
                   ("/set colour red", "no setting 'colour'"), ("/retry", "no message"), ("/undo", "no turn"),
                   ("/system", "none"), ("/system You are Bob.", "is set"), ("/system", "You are Bob."),
                   ("/system none", "taken out"), ("/save", "needs the name"), ("/save x.txt", ".json"),
                   ("/load /nonexistent.json", "/nonexistent.json"), ("/think maybe", "on or off"), ("/stats", "prefill")]
        for line, needle in needles:
            answer = t.line(line)
            if needle not in answer.split("\n", 1)[1]:
                yield f"{line}: {answer!r} does not say {needle!r}"
        answer = t.line("Hello")
        if "cut after 3 tokens" not in answer:
            yield f"max_tokens 3: {answer!r}"
        bad = os.path.join(folder, "bad.json")
        for text, needle in (("[1]", "role"), ("{}", "array of messages"), ("[", "line 1"),
                             ('[{"role": "user"}]', "no text")):
            with open(bad, "w") as f:
                f.write(text)
            if needle not in t.line(f"/load {bad}"):
                yield f"/load of {text} does not say {needle!r}"
        t.type("\x04")
        if t.ends():
            yield f"exit status {t.process.returncode}"


def messages_of(t, folder, name):
    path = os.path.join(folder, name)
    t.line(f"/save {path}")
    with open(path, encoding="utf-8") as f:
        return [m["content"] for m in json.load(f) if m["role"] == "user"]


def several_lines(limpid, folder):
    with chat(limpid, folder, "-n", "2", "--no-think") as t:
        t.until(PROMPT)
        t.type('"""one\r')
        t.until("... ")
        t.type("two\r")
        t.until("... ")
        t.line('three"""')
        t.type("four \\\r")
        t.until("... ")
        t.line("five")
        t.line('"""six"""')
        t.type("\x1b[200~seven\reight\r\x1b[201~")  # as terminals paste
        if ">>> " in plain(t.quiet(1)).replace(">>> seven", ""):
            yield "a pasted line was sent"
        t.until("\r\n") if t.type(" nine\r") else t.until(PROMPT)
        t.type("ten\x1b\releven\r")  # Alt-Enter
        t.until(PROMPT)
        t.line(" /twelve")
        t.type("Zürich →😀\x7f\x7f\r")  # backspace takes characters, not bytes
        t.until(PROMPT)
        got = messages_of(t, folder, "lines.json")
        want = ["one\ntwo\nthree", "four \nfive", "six", "seven\neight\n nine", "ten\neleven", " /twelve", "Zürich "]
        if got != want:
            yield f"messages {got}, expected {want}"


def history(limpid, folder):
    path = os.path.join(folder, "limpid", "history")
    with chat(limpid, folder, "-n", "1") as t:
        t.until(PROMPT)
        t.line("first ü")
        t.type('"""second\r')
        t.until("... ")
        t.line('line"""')
        t.type("\x1b[A\x1b[A\r")  # up, up
        t.until(PROMPT)
        got = messages_of(t, folder, "history.json")
        if got != ["first ü", "second\nline", "first ü"]:
            yield f"messages {got}"
        t.type("\x04")
        t.ends()
    if stat.S_IMODE(os.stat(path).st_mode) != 0o600:
        yield f"mode of the history is {os.stat(path).st_mode:o}"
    with chat(limpid, folder, "-n", "1") as t:  # another program, the same history
        t.until(PROMPT)
        t.type("\x1b[A\x1b[A\x1b[A\r")
        t.until(PROMPT)
        t.type("\x12sec\r")  # Ctrl-R searches
        t.quiet(1)
        t.type("\r")
        t.until(PROMPT)
        got = messages_of(t, folder, "history2.json")
        if got[0] != "second\nline":
            yield f"messages after a new start {got}"


def interrupts(limpid, folder):
    with chat(limpid, folder, "--ignore-eos") as t:
        t.until(PROMPT)
        t.type("Tell me a story about a fox named Max.\r")
        t.until("Max.\r\n")
        t.until("x")  # the answer runs
        t.type("\x03")
        t.until(PROMPT)
        if t.process.poll() is not None:
            yield "Ctrl-C in an answer ends the program"
            return
        path = os.path.join(folder, "cut.json")
        t.line(f"/save {path}")
        with open(path, encoding="utf-8") as f:
            if [m["role"] for m in json.load(f)] != ["user", "assistant"]:
                yield "what had come of the answer is lost"
        t.type("never sent")
        t.until("never sent")
        t.type("\x03")
        if "again" in t.until(PROMPT):
            yield "Ctrl-C on a line asks whether to leave"
        t.type("\x03")
        if "Ctrl-D" not in t.until(PROMPT):
            yield "Ctrl-C at an empty prompt gives no hint"
        t.type("\x03")
        if t.ends():
            yield f"exit status {t.process.returncode}"
    with chat(limpid, folder) as t:  # what ends a program puts the terminal back
        t.until(PROMPT)
        t.process.terminate()
        if t.ends() != -signal.SIGTERM or not t.seen.endswith(b"\x1b[?2004l"):
            yield f"SIGTERM: {t.process.returncode}, {t.seen[-20:]!r}"


def resizes_and_stops(limpid, folder):
    with chat(limpid, folder, "-n", "1") as t:
        t.until(PROMPT)
        t.type("abc")
        t.until("abc")
        t.process.send_signal(signal.SIGWINCH)
        t.process.send_signal(signal.SIGSTOP)
        t.process.send_signal(signal.SIGCONT)
        t.quiet(1)
        t.type("def\r")
        t.until(PROMPT)
        got = messages_of(t, folder, "resized.json")
        if got != ["abcdef"]:
            yield f"messages {got}"


def without_colour(limpid, folder):
    with chat(limpid, folder, env={"NO_COLOR": "1"}) as t:
        t.until(PROMPT)
        answer = t.line(ASK)
        if "\x1b[2m" in answer or SUM not in answer or "</think>" not in answer:
            yield f"NO_COLOR: {answer!r}"
    with chat(limpid, folder, pipe_output=True) as t:
        t.until(PROMPT)
        t.type(ASK + "\r")
        t.until(PROMPT)
        t.type("\x04")
        t.ends()
        out = t.process.stdout.read()
        if b"\x1b" in out or SUM.encode() not in out or b"</think>" not in out or b">>>" in out:
            yield f"standard output that is no terminal: {out!r}"
    status, out, err = run(limpid, "run", MINI_MODEL, text=(ASK + "\n/help\n/exit\nno\n").encode())
    if status or "\x1b" in out or ">>>" in out + err or out.count("\n") < 2 or SUM not in out or "/system" in err:
        yield f"a pipe: {status}, {out!r}, {err!r}"


def sampling(limpid):
    base = ["run", MINI_MODEL, "-p", "Once upon a time", "-n", "12", "--temp", "1.5", "--seed", "7"]
    plain_text = run(limpid, *base)[1]
    for option, value in (("--min-p", "0.9"), ("--repeat-penalty", "5"), ("--presence-penalty", "2"),
                          ("--frequency-penalty", "2")):
        status, out, err = run(limpid, *base, option, value)
        if status or (option == "--min-p" and out == plain_text):
            yield f"{option} {value}: exit status {status}, {err!r}"
    for option, value in (("--min-p", "1.5"), ("--repeat-penalty", "0"), ("--presence-penalty", "-3"), ("--top-p", "0")):
        status, _, err = run(limpid, *base, option, value)
        if status != 2 or option not in err:
            yield f"{option} {value}: exit status {status}, {err!r}"


def grammars(limpid, folder):
    schema, grammar = os.path.join(folder, "schema.json"), os.path.join(folder, "answer.gbnf")
    with open(schema, "w") as f:
        json.dump({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                   "required": ["name", "age"], "additionalProperties": False}, f)
    with open(grammar, "w") as f:
        f.write('root ::= "ja" | "nein"\n')
    ask = ["run", MINI_MODEL, "-n", "100"]
    _, out, err = run(limpid, *ask, "--chat", "-p", "Write JSON with name Anna and age 31", "--json-schema", schema)
    try:
        answer = json.loads(out.split("</think>")[1])  # the reasoning is free
        if set(answer) != {"name", "age"}:
            yield f"--json-schema: {answer}"
    except (ValueError, IndexError):
        yield f"--json-schema: {out!r}, {err!r}"
    _, out, err = run(limpid, *ask, "-p", "The capital of France is", "--grammar", grammar)
    if out not in ("ja\n", "nein\n"):
        yield f"--grammar: {out!r}, {err!r}"
    _, out, err = run(limpid, *ask, "--chat", "--no-think", "-p", ASK, "--regex", "[0-9]{3}")
    if not re.fullmatch(r"\d{3}\n", out):
        yield f"--regex: {out!r}, {err!r}"
    for option, value, status in (("--regex", "(", 1), ("--grammar", "/nonexistent", 1), ("--json-schema", grammar, 1)):
        got = run(limpid, *ask, "-p", "x", option, value)
        if got[0] != status or not got[2]:
            yield f"{option} {value}: {got}"
    if run(limpid, *ask, "-p", "x", "--regex", "a", "--grammar", grammar)[0] != 2:
        yield "two grammars at once are not wrong usage"


def main():
    args = arguments(__doc__, [("--build", {"default": "", "help": "the build folder, to install from"})])
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-first-") as folder:
        checks.add("no model", builtin, args.limpid)
        checks.add("serve without a model", serves, args.limpid, [], ["no model was named"])
        for name, function in (("folder of one", folder_of_one), ("folder of several", folder_of_several),
                               ("printed command", printed_command_works), ("whole lines", whole_lines),
                               ("mistakes", mistakes)):
            checks.add(name, function, args.limpid, folder)
        notes = []
        if os.geteuid() != 0:
            checks.add("forbidden folder", forbidden, args.limpid, folder)
        else:
            notes.append("forbidden folder: root may read everything")
        if args.build:
            checks.add("installed", installed, args.limpid, folder, args.build)
        else:
            notes.append("installed: no --build")
        for function in (talks, commands, several_lines, history, interrupts, resizes_and_stops, without_colour):
            own = os.path.join(folder, function.__name__)
            os.mkdir(own)
            checks.add("chat: " + function.__name__, function, args.limpid, own)
        checks.add("sampling options", sampling, args.limpid)
        checks.add("grammars", grammars, args.limpid, folder)
        checks.finish("".join(f"\nskipped: {note}" for note in notes))


if __name__ == "__main__":
    main()
