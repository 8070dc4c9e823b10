#!/usr/bin/env python3
"""limpid beside llama.cpp and ik_llama.cpp on the same file: their own benchmarks and ours, in turns (A B C A B C),
the machine's read bandwidth measured around each, medians and ratios at the end.

    compare.sh MODEL [--ik DIR] [--llama DIR] [-p N,..] [-n N,..] [-d DEPTH,..] [-b BATCH,..] [--rounds R] [--csv F]

DIR is where a peer's programs are (its build/bin). What is run, with every flag, and the versions are in the CSV.
llama.cpp: llama-bench, and llama-batched-bench for batches. ik_llama.cpp: llama-bench at depth 0, llama-sweep-bench
behind it (which steps through all depths in pieces of the prompt's length), llama-batched-bench for batches; with --dsa
once more with its sparse attention.
"""
import argparse
import collections
import csv
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
HOW_TO_BUILD = """no peer was found: give --ik DIR or --llama DIR, where DIR holds their built programs.

llama.cpp (also inside the source package of llama-cpp-python):
    pip download --no-deps --no-binary :all: llama-cpp-python && tar xf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B llama-build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON
    cmake --build llama-build --target llama-bench llama-batched-bench      # --llama llama-build/bin
ik_llama.cpp:
    git clone https://github.com/ikawrakow/ik_llama.cpp
    cmake -S ik_llama.cpp -B ik-build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON
    cmake --build ik-build --target llama-bench llama-batched-bench llama-sweep-bench      # --ik ik-build/bin"""

Key = collections.namedtuple("Key", "test tokens depth batch")
Row = collections.namedtuple("Row", "engine version round test tokens depth batch tok_s limit_gb_s command")


class Failed(Exception):
    pass


def lines_of(command, until=None, timeout=7200):
    """The lines of a program's output and errors; it is stopped once `until` says so of one. Some write a log file
    where they are started, so that is a folder of its own."""
    lines = []
    with tempfile.TemporaryDirectory() as folder, \
            subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", cwd=folder) as process:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if until and until(lines[-1]):
                process.terminate()
                return lines
        status = process.wait(timeout)
    if status:
        raise Failed(f"{command[0]} ended with status {status}: {' / '.join(lines[-3:])[-400:]}")
    return lines


def json_lines(lines):
    out = []
    for line in lines:
        if line.startswith("{"):
            try:
                out.append(json.loads(line))
            except ValueError:
                pass
    return out


def commas(numbers):
    return ",".join(str(n) for n in numbers)


class Limpid:
    name = "limpid"

    def __init__(self, program, args):
        self.program, self.args, self.rows = os.path.abspath(program), args, []
        self.version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()

    def limits(self):
        done = subprocess.run([self.program, "bench", "--limits", "--threads", str(self.args.threads), "--json", "-"],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def run(self, work):
        with tempfile.NamedTemporaryFile(suffix=".json") as f:
            command = [self.program, "bench", self.args.model, "-p", commas(work.prefills) or "0", "-n",
                       commas(work.decodes) or "0", "-d", commas(work.depths), "-b", commas(work.batches), "--repeat",
                       work.repeat, "--threads", self.args.threads, "--kv", self.args.kv, "--json", f.name]
            lines_of(command)
            found = json.load(open(f.name))
        self.rows += found
        for r in found:
            yield Key(r["test"], r["tokens"], r["depth"], r["batch"]), r["tok_s"], command


class Peer:
    def __init__(self, folder, args):
        self.folder, self.args, self.version = pathlib.Path(folder).resolve(), args, "unknown"
        for name in self.programs:
            if not (self.folder / name).is_file():
                raise SystemExit(f"{self.folder} has no {name}; needed: {', '.join(self.programs)}")

        try:
            said = "\n".join(lines_of([self.folder / self.programs[-1], "--version"]))
        except Failed:
            return
        found = re.search(r"version: .*", said)
        if found:
            self.version = found[0].strip()

    def llama_bench(self, prefills, decodes, depths, flags):
        command = [self.folder / "llama-bench", "-m", self.args.model, "-p", commas(prefills) or "0", "-n",
                   commas(decodes) or "0", "-t", self.args.threads, "-r", 1, "-o", "json", *flags]
        if depths:
            command += ["-d", commas(depths)]
        text = "\n".join(lines_of(command))
        found = re.search(r"^\[\s*\{.*^\]", text, re.S | re.M)
        if not found:
            raise Failed(f"{command[0]} printed no rows: {text[-300:]}")
        for r in json.loads(found[0]):
            if self.version == "unknown":
                self.version = f"{r['build_commit']} ({r['build_number']})"
            n = r["n_prompt"] or r["n_gen"]
            yield (Key("prefill" if r["n_prompt"] else "decode", n, r.get("n_depth", 0), 1), r["avg_ts"], command)

    def batched(self, work, flags):
        """Decode of several sequences with prompts of their own; a prompt has one token at depth 0."""
        for depth in work.depths:
            for n in work.decodes:
                for batch in work.batches:
                    if batch == 1:
                        continue
                    prompt = max(depth, 1)
                    context = -(-batch * (prompt + n + 1) // 256) * 256
                    command = [self.folder / "llama-batched-bench", "-m", self.args.model, "-c", context, "-b", 2048,
                               "-ub", 512, "-npp", prompt, "-ntg", n, "-npl", batch, "-t", self.args.threads, *flags]
                    for rate in self.batched_rates(lines_of(command)):
                        yield Key("decode", n, depth, batch), rate, command

    @staticmethod
    def batched_rates(lines):
        """The column S_TG of the table: PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG, T, S."""
        for line in lines:
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            if len(cells) == 10 and all(re.fullmatch(r"[\d.]+", c) for c in cells):
                yield float(cells[7])


class Llama(Peer):
    name = "llama.cpp"
    programs = ("llama-bench", "llama-batched-bench")

    def run(self, work):
        depths = [d for d in work.depths if d <= self.args.llama_deepest]
        if depths:
            yield from self.llama_bench(work.prefills, work.decodes if 1 in work.batches else [], depths,
                                        ["-fa", "auto"])
        yield from self.batched(work._replace(depths=depths), [])


class Ik(Peer):
    name = "ik_llama.cpp"
    programs = ("llama-bench", "llama-batched-bench", "llama-sweep-bench")
    flags = ["-mla", 3, "-fa", "on", "-rtr"]

    def sweep(self, work, depths, flags):
        """A step of the sweep is a prompt of `piece` tokens and then the decoded ones, behind what is there."""
        decode = work.decodes[0] if work.decodes else 4
        for piece in work.prefills or [512]:
            wanted = sorted(d for d in depths if d % piece == 0)
            if not wanted:
                print(f"{self.name}: no depth of {depths} is a multiple of {piece}: not measured", file=sys.stderr)
                continue
            context = -(-(wanted[-1] + piece + decode) // 256) * 256
            command = [self.folder / "llama-sweep-bench", "-m", self.args.model, "-c", context, "-b", max(2048, piece),
                       "-ub", piece, "-n", decode, "-t", self.args.threads, *self.flags, *flags, "--output-format",
                       "jsonl"]
            last = f'"n_kv": {wanted[-1]},'
            for r in json_lines(lines_of(command, until=lambda line: line.startswith("{") and last in line)):
                if r["n_kv"] not in wanted:
                    continue
                if work.prefills:
                    yield Key("prefill", piece, r["n_kv"], 1), r["speed_pp"], command
                if work.decodes and 1 in work.batches and piece == (work.prefills or [512])[0]:
                    yield Key("decode", decode, r["n_kv"], 1), r["speed_tg"], command

    def run(self, work):
        deep = [d for d in work.depths if d > 0]
        if 0 in work.depths:
            yield from self.llama_bench(work.prefills, work.decodes if 1 in work.batches else [], None,
                                        ["-mla", 3, "-fa", 1, "-fmoe", 1, "-rtr", 1])
        if deep and (work.prefills or 1 in work.batches):
            yield from self.sweep(work, deep, [])
        yield from self.batched(work, self.flags)


class IkSparse(Ik):
    """Its sparse attention, for a model with an indexer; at depth 0 nothing is left out."""
    name = "ik_llama.cpp dsa"

    def run(self, work):
        deep = [d for d in work.depths if d > 0]
        if deep and (work.prefills or 1 in work.batches):
            yield from self.sweep(work, deep, ["-dsa"])


Work = collections.namedtuple("Work", "prefills decodes depths batches repeat")


def find_peers(args):
    """Those whose folders were given; else a llama.cpp on PATH."""
    peers = []
    if args.ik:
        peers.append(Ik(args.ik, args))
        if args.dsa:
            peers.append(IkSparse(args.ik, args))
    llama = args.llama
    if not peers and not llama and shutil.which("llama-bench") and shutil.which("llama-batched-bench"):
        llama = os.path.dirname(shutil.which("llama-bench"))
    if llama:
        peers.append(Llama(llama, args))
    return peers


def compare(args, work, peers, tell=print):
    """Rows of all rounds, and limpid's own as it wrote them. A peer that fails is left out of the rest."""
    args.model = os.path.abspath(args.model)
    limpid, rows, broken = Limpid(args.limpid, args), [], set()
    for number in range(args.rounds):
        for engine in [limpid, *peers]:
            if engine.name in broken:
                continue
            before = limpid.limits()["limit_gb_s"]
            tell(f"round {number + 1} of {args.rounds}: {engine.name} ({before:.1f} GB/s before)", file=sys.stderr)
            found = []
            try:
                for key, rate, command in engine.run(work):
                    found.append((key, rate, command))
            except (Failed, OSError, ValueError, KeyError) as why:
                if engine is limpid:
                    raise SystemExit(f"limpid failed: {why}")
                tell(f"{engine.name} is left out from here on: {why}", file=sys.stderr)
                broken.add(engine.name)
            gb_s = statistics.median([before, limpid.limits()["limit_gb_s"]])
            rows += [Row(engine.name, engine.version, number + 1, *key, rate, gb_s, " ".join(str(c) for c in command))
                     for key, rate, command in found]
    return rows, limpid.rows


def medians(rows):
    """{key: {engine: tok/s}}, in the order of the keys."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for r in rows:
        found[Key(r.test, r.tokens, r.depth, r.batch)][r.engine].append(r.tok_s)
    order = sorted(found, key=lambda k: (k.test != "prefill", k.depth, k.batch, k.tokens))
    return {k: {e: statistics.median(v) for e, v in found[k].items()} for k in order}


def better_peer(rates):
    """(name, tok/s) of the fastest engine that is not limpid, or None."""
    peers = {e: v for e, v in rates.items() if e != Limpid.name}
    return max(peers.items(), key=lambda item: item[1]) if peers else None


def print_table(rows, out=sys.stdout):
    engines = list(dict.fromkeys(r.engine for r in rows))
    gb_s = collections.defaultdict(list)
    for r in rows:
        gb_s[r.engine].append(r.limit_gb_s)
    width = max(len(e) for e in engines) + 2
    print(f"{'test':8} {'tokens':>6} {'depth':>6} {'batch':>5}" + "".join(f"{e:>{width}}" for e in engines) +
          "  ratio to the better peer", file=out)
    for key, rates in medians(rows).items():
        peer = better_peer(rates)
        cells = "".join(f"{rates[e]:{width}.2f}" if e in rates else f"{'-':>{width}}" for e in engines)
        ratio = f"{rates[Limpid.name] / peer[1]:.2f}" if peer and Limpid.name in rates and peer[1] else "-"
        print(f"{key.test:8} {key.tokens:6} {key.depth:6} {key.batch:5}{cells}  {ratio}", file=out)
    print("read bandwidth beside it, GB/s (median): " +
          ", ".join(f"{e} {statistics.median(gb_s[e]):.1f}" for e in engines), file=out)


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(Row._fields)
        # Where programs and models lie is nobody's business: their names are enough to run it again.
        out.writerows(r._replace(command=re.sub(r"(?<!\S)/\S*/", "", r.command)) for r in rows)


def numbers(text):
    return sorted({int(part) for part in text.split(",")})


def parser():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("model", metavar="MODEL")
    add_engines(p)
    p.add_argument("-p", default="512", metavar="N,..", help="prompt tokens (default 512; 0 = none)")
    p.add_argument("-n", default="32", metavar="N,..", help="tokens to decode (default 32; 0 = none)")
    p.add_argument("-d", default="0", metavar="DEPTH,..", help="tokens in the cache before (default 0)")
    p.add_argument("-b", default="1", metavar="BATCH,..", help="sequences that decode at once (default 1)")
    p.add_argument("--rounds", type=int, default=3, help="turns of all engines (default 3); medians are printed")
    p.add_argument("--repeat", type=int, default=1, help="limpid's repeats in a round (default 1)")
    p.add_argument("--csv", metavar="F", help="write every measurement")
    return p


def add_engines(p):
    p.add_argument("--limpid", default=str(ROOT / "build/release/limpid"), metavar="PATH")
    p.add_argument("--ik", metavar="DIR", help="ik_llama.cpp's programs")
    p.add_argument("--llama", metavar="DIR", help="llama.cpp's programs")
    p.add_argument("--dsa", action="store_true", help="ik_llama.cpp once more with its sparse attention")
    p.add_argument("--llama-deepest", type=int, default=1 << 30, metavar="N",
                   help="llama.cpp only to this depth: it fills the cache again for every test")
    p.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    p.add_argument("--kv", default="f16", metavar="TYPE", help="limpid's type of the KV cache (default f16; the peers' is f16)")


def main():
    args = parser().parse_args()
    peers = find_peers(args)
    if not peers:
        print(HOW_TO_BUILD, file=sys.stderr)
        return 3
    work = Work([n for n in numbers(args.p) if n], [n for n in numbers(args.n) if n], numbers(args.d), numbers(args.b),
                args.repeat)
    rows, _ = compare(args, work, peers)
    print_table(rows)
    if args.csv:
        write_csv(args.csv, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
