#!/usr/bin/env python3
"""The installed library as an embedder meets it: `cmake --install` into a fresh prefix that is then moved,
the programs of examples/ built by pkg-config and by find_package, shared and static, and run; the Python
binding against the header. The texts they must give are in tests/mini/skills.jsonl, made by torch.

    library.py LIMPID [--sanitizer] [--only TEXT]
"""
import glob
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from harness import MINI, MINI_MODEL, ROOT, Checks, Failed, arguments, run

EXAMPLES = os.path.join(ROOT, "examples")
HEADER = os.path.join(ROOT, "include", "limpid.h")
WARNINGS = ["-O1", "-g", "-Wall", "-Wextra", "-Werror"]
PLAIN = ["capital-101", "capital-107", "opposite-119", "next-50"]  # prompts without chat: the text goes on
CHAT = ["copy-86", "reverse-83"]                                  # ends by itself


class Build:
    """The build folder of the limpid that is tested, and its installation."""

    def __init__(self, folder, scratch):
        with open(os.path.join(folder, "CMakeCache.txt"), encoding="utf-8") as f:
            cache = dict(re.findall(r"^(\w+):\w+=(.*)$", f.read(), re.M))
        self.cc = cache["CMAKE_C_COMPILER"]
        self.sanitize = [f"-fsanitize={cache['LIMPID_SANITIZE']}"] if cache.get("LIMPID_SANITIZE") else []
        self.has_shared = cache["LIMPID_SHARED"] in ("ON", "1", "TRUE")
        self.scratch = scratch
        first, self.prefix = os.path.join(scratch, "first"), os.path.join(scratch, "moved", "to")
        run(["cmake", "--install", folder, "--prefix", first])
        shutil.move(first, self.prefix)
        self.libdir = os.path.dirname(self.found("liblimpid.a"))
        self.env = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(self.found("limpid.pc")),
                        CMAKE_PREFIX_PATH=self.prefix)

    def found(self, name):
        paths = glob.glob(os.path.join(self.prefix, "**", name), recursive=True)
        if not paths:
            raise Failed(f"the installation has no {name}")
        return paths[0]

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=self.env, timeout=300)
        if done.returncode:
            raise Failed(f"{shlex.join(command)}: exit status {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
        return done.stdout

    def pkg_config(self, *options):
        return shlex.split(self.run("pkg-config", *options, "limpid"))

    def compile(self, source, out, *flags, standard="gnu11"):
        self.run(self.cc, f"-std={standard}", *WARNINGS, *self.sanitize, source, "-o", out, *flags)


# ---- what the examples must say

def skills():
    with open(os.path.join(MINI, "skills.jsonl"), encoding="utf-8") as f:
        lines = {line["id"]: line for line in map(json.loads, f)}
    return [(lines[i]["prompt"], lines[i]["expect"]) for i in PLAIN + CHAT]


def check_line(out, prompt, expect, is_chat):
    """event_loop and generate.py: `prompt ->text [how]`, a text that may hold line breaks."""
    found = re.search(re.escape(f"{prompt} ->") + r"(.*?) \[(\w+)\]\n", out, re.S)
    if not found:
        return f"no line for {prompt!r} in {out!r}"
    text, how = found.groups()
    right = text == expect and how == "stop" if is_chat else text.startswith(expect)
    return None if right else f"{prompt!r} gave {text!r} [{how}], expected {expect!r}"


def check_generate(build, program):
    for prompt, expect in skills()[:2]:
        out = build.run(program, MINI_MODEL, prompt, "12")
        if not out.startswith(expect):
            yield f"generate on {prompt!r} gave {out!r}, expected {expect!r}"
    done = subprocess.run([program, "/no/such/file"] + ["text"], capture_output=True, text=True, env=build.env)
    if done.returncode != 1 or "/no/such/file" not in done.stderr:
        yield f"generate on a missing file: exit status {done.returncode}, {done.stderr!r}"


def check_event_loop(build, program):
    wanted = skills()
    for mode in ("step", "thread"):
        out = build.run(program, mode, MINI_MODEL, "Once upon a time", *[prompt for prompt, _ in wanted])
        for i, (prompt, expect) in enumerate(wanted):
            yield check_line(out, prompt, expect, i >= len(PLAIN))
        if not re.search(r"^Once upon a time -> \w.* \[cancelled\]$", out, re.M):
            yield f"{mode}: the first request was not cancelled behind a beginning: {out!r}"
        if len(re.findall(r" \[\w+\]$", out, re.M)) != len(wanted) + 1:
            yield f"{mode}: not every request ended once: {out!r}"


def check_programs(build, folder):
    yield from check_generate(build, os.path.join(folder, "generate"))
    yield from check_event_loop(build, os.path.join(folder, "event_loop"))


# ---- the ways to build them

def with_pkg_config(build, static):
    folder = os.path.join(build.scratch, "pkg-config-static" if static else "pkg-config")
    os.makedirs(folder)
    flags = build.pkg_config("--cflags", "--libs", *(["--static"] if static else []))
    if static:
        flags = ["-l:liblimpid.a" if flag == "-llimpid" else flag for flag in flags]
    else:
        flags.append(f"-Wl,-rpath,{build.libdir}")  # the prefix is no place where the system looks
    for name in ("generate", "event_loop"):
        build.compile(os.path.join(EXAMPLES, name + ".c"), os.path.join(folder, name), *flags)
    yield from check_programs(build, folder)


def with_find_package(build, static):
    folder = os.path.join(build.scratch, "find-package-static" if static else "find-package")
    shutil.copytree(EXAMPLES, folder)
    if static:
        path = os.path.join(folder, "CMakeLists.txt")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("REQUIRED)", "REQUIRED COMPONENTS static)"))
    flags = " ".join(build.sanitize)
    build.run("cmake", "-S", folder, "-B", os.path.join(folder, "out"), f"-DCMAKE_C_COMPILER={build.cc}",
              f"-DCMAKE_C_FLAGS={flags}")
    build.run("cmake", "--build", os.path.join(folder, "out"))
    needed = build.run("readelf", "-d", os.path.join(folder, "out", "generate"))
    if ("liblimpid.so" in needed) == static:
        yield f"generate was linked with the wrong library: {needed}"
    yield from check_programs(build, os.path.join(folder, "out"))


# ---- the header, the symbols, the binding

class Header:
    """Structs, with the names of their fields, and functions, with their number of arguments."""

    def __init__(self):
        with open(HEADER, encoding="utf-8") as f:
            text = re.sub(r"//[^\n]*", "", f.read())
        self.structs = {name: [self.declared(d) for d in self.declarators(body)]
                        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", text, re.S)}
        self.functions = {name: 0 if args.strip() == "void" else args.count(",") + 1
                          for name, args in re.findall(r"\b(limpid_\w+)\(([^()]*)\);", text)}

    @staticmethod
    def declarators(body):
        for statement in filter(str.strip, body.split(";")):
            yield from [statement] if "(*" in statement else statement.split(",")

    @staticmethod
    def declared(text):
        pointer = re.search(r"\(\*(\w+)\)", text)
        return pointer.group(1) if pointer else re.search(r"(\w+)\s*(\[\w+\])?\s*$", text).group(1)


def check_header(build):
    """It compiles alone as C11 and, where there is a compiler, as C++."""
    strict = ["-Werror", "-Wall", "-Wextra", "-pedantic", "-fsyntax-only"]
    build.run(build.cc, "-std=c11", *strict, "-x", "c", HEADER)
    if shutil.which("c++"):
        build.run("c++", "-std=c++11", *strict, "-x", "c++", HEADER)
    return ()


def check_symbols(build):
    """liblimpid.so shows the functions of the header and nothing else."""
    shown = {line.split()[-1] for line in
             build.run("nm", "-D", "--defined-only", os.path.join(build.libdir, "liblimpid.so")).splitlines()}
    for name in sorted(shown ^ set(Header().functions)):
        yield f"{name} is {'shown, but not in limpid.h' if name in shown else 'in limpid.h, but not shown'}"


def load_binding(build):
    os.environ["LIMPID_LIBRARY"] = os.path.join(build.libdir, "liblimpid.so")
    sys.path.insert(0, EXAMPLES)
    import limpid
    return limpid


def check_binding(build):
    """Names, number and order of all fields, arguments and constants."""
    limpid, header = load_binding(build), Header()
    structs = {name: [field for field, *_ in c._fields_] for name, c in vars(limpid).items()
               if inspect.isclass(c) and hasattr(c, "_fields_") and name.startswith("limpid_")}
    if structs != header.structs:
        yield f"structs of limpid.py {structs}\nof limpid.h {header.structs}"
    functions = {name: len(types) - 1 for name, types in limpid.FUNCTIONS.items()}
    if functions != header.functions:
        yield f"functions and their arguments differ: {set(functions.items()) ^ set(header.functions.items())}"


# What C says of a field: offset, size, and the letter by which ctypes calls its type; P for all that is
# no number.
PROBE = """
#include <limpid.h>
#include <stddef.h>
#include <stdio.h>
#define LETTER(x) _Generic((x), int: 'i', unsigned: 'i', long: 'l', unsigned long: 'L', float: 'f', \\
                           double: 'd', _Bool: '?', default: 'P')
#define FIELD(t, f) printf(#t "." #f " %zu %zu %c\\n", offsetof(t, f), sizeof((t *)0)->f, LETTER(((t *)0)->f))
int main(void) {
"""


def check_layout(build):
    limpid, header = load_binding(build), Header()
    source, want = os.path.join(build.scratch, "probe.c"), []
    with open(source, "w", encoding="utf-8") as f:
        f.write(PROBE)
        for name, fields in header.structs.items():
            c = getattr(limpid, name)
            f.write(f'printf("{name} %zu\\n", sizeof({name}));\n')
            want.append(f"{name} {limpid.ctypes.sizeof(c)}")
            for field, kind in c._fields_:
                at = getattr(c, field)
                letter = getattr(kind, "_type_", "P")
                letter = letter if isinstance(letter, str) and letter in "ilLfd?" else "P"
                f.write(f"FIELD({name}, {field});\n")
                want.append(f"{name}.{field} {at.offset} {at.size} {letter}")
        for name in re.findall(r"\bLIMPID_\w+", open(HEADER, encoding="utf-8").read()):
            value = getattr(limpid, name[len("LIMPID_"):], None)
            if value is not None:
                f.write(f'printf("{name} %d\\n", {name});\n')
                want.append(f"{name} {value}")
        f.write("}\n")
    program = os.path.join(build.scratch, "probe")
    build.run(build.cc, "-std=gnu11", *build.pkg_config("--cflags"), source, "-o", program)
    for got, expected in zip(build.run(program).splitlines(), want):
        if got != expected:
            yield f"C has {got}, limpid.py {expected}"
    if not want:
        yield "limpid.h has no structs"


def check_python(build):
    wanted = skills()
    build.env["LIMPID_LIBRARY"] = os.path.join(build.libdir, "liblimpid.so")
    out = build.run(sys.executable, "-B", os.path.join(EXAMPLES, "generate.py"), MINI_MODEL, *[p for p, _ in wanted])
    for i, (prompt, expect) in enumerate(wanted):
        yield check_line(out, prompt, expect, i >= len(PLAIN))


def check_python_classes(build):
    limpid = load_binding(build)
    prompt, expect = skills()[0]
    with limpid.Model(MINI_MODEL) as model, limpid.Engine(model, n_context=256, kv_type="f32") as engine:
        ids = model.tokenize(prompt)
        if model.detokenize(ids) != prompt:
            yield f"{ids} came back as {model.detokenize(ids)!r}"
        if "<|user|>Hi<|assistant|>" not in model.chat_prompt('[{"role": "user", "content": "Hi"}]'):
            yield "the chat prompt lacks its message"
        with limpid.Request(engine, ids, max_tokens=16, temperature=0, stop=["."]) as request:  # without a thread
            events = list(request)
        text = "".join(event.text for event in events)
        if text + "." != expect or events[-1].finish_reason != "stop":
            yield f"stopped at a full stop the text is {text!r}, {events[-1]}"
        engine.start()
        n_calls = []
        on_event = limpid.limpid_request_options.ON_EVENT(lambda user: n_calls.append(1))
        with limpid.Request(engine, ids, max_tokens=5, temperature=0, on_event=on_event) as request:
            n_events = len(list(request))
        if len(n_calls) < n_events:
            yield f"{n_events} events, but {len(n_calls)} calls of on_event"
        with limpid.Request(engine, ids, max_tokens=200, ignore_eos=True) as request:
            next(request)
            request.cancel()
            try:
                list(request)
                yield "a cancelled request went on to its end"
            except limpid.Error as e:
                if e.status != limpid.CANCELLED:
                    yield f"a cancelled request failed with {e.status}: {e}"
        for field, value in (("kv_type", "f8"), ("route", "scenic")):
            try:
                limpid.Engine(model, **{field: value}).close()
                yield f"{field} {value} was taken"
            except limpid.Error as e:
                if e.status != limpid.INVALID or value not in str(e):
                    yield f"{field} {value}: {e.status}, {e}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-library-") as scratch:
        build = Build(os.path.dirname(os.path.abspath(args.limpid)), scratch)
        checks.add("pkg-config, static", with_pkg_config, build, True)
        checks.add("find_package, static", with_find_package, build, True)
        checks.add("header", check_header, build)
        if build.has_shared:
            checks.add("pkg-config", with_pkg_config, build, False)
            checks.add("find_package", with_find_package, build, False)
            checks.add("symbols", check_symbols, build)
        if build.has_shared and not build.sanitize:  # Python is no program with a sanitizer in it
            checks.add("binding", check_binding, build)
            checks.add("layout", check_layout, build)
            checks.add("python", check_python, build)
            checks.add("python classes", check_python_classes, build)
        note = "" if build.has_shared else " (no shared library: LIMPID_SHARED is off)"
        checks.finish(" (the Python binding is not run with sanitizers)" if build.sanitize else note)


if __name__ == "__main__":
    main()
