#!/usr/bin/env python3
"""limpid merge and limpid split: byte for byte, and whatever goes wrong.

    merge_split.py LIMPID [--sanitizer] [--only TEXT]

What split must write is told by a second implementation below, from the bytes of the file alone; what
merge must write is the file that was split. Sets as others write them are built from golden models.
Ended halfway and run again, both end right.
"""
import hashlib
import os
import random
import resource
import signal
import struct
import subprocess
import tempfile
import time

import gguf_edit
import make_bad_gguf
from gguf_edit import ARR, BOOL, F32, F64, I16, I32, I64, I8, STR, T_F32, T_I8, Tensor, U16, U32, U64, U8
from harness import Checks, Failed, GOLDEN, MINI_MODEL, arguments, not_wrote, run

FIXED = {U8: 1, I8: 1, U16: 2, I16: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, U64: 8, I64: 8, F64: 8}
SPLIT_KEYS = (b"split.no", b"split.count", b"split.tensors.count")


# ---- a second implementation ----

class Parsed:
    """Where everything is in a file: pairs and descriptors as bytes, data with the padding behind it."""

    def __init__(self, data):
        self.data, self.at = data, 24
        self.version, n_tensors, n_kv = struct.unpack_from("<IQQ", data, 4)
        self.pairs = [self.pair() for _ in range(n_kv)]
        self.align = 32
        for key, raw in self.pairs:
            if key == b"general.alignment":
                self.align = struct.unpack("<I", raw[-4:])[0]
        heads = [self.descriptor() for _ in range(n_tensors)]
        self.head_end = self.at
        start = self.at + -self.at % self.align
        offsets = [offset for _, offset in heads] + [len(data) - start]
        self.tensors = [(head, data[start + a:start + b]) for (head, a), b in zip(heads, offsets[1:])]

    def number(self, fmt):
        value = struct.unpack_from("<" + fmt, self.data, self.at)[0]
        self.at += struct.calcsize(fmt)
        return value

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def value(self, type_):
        if type_ == STR:
            self.string()
        else:
            self.at += FIXED[type_]

    def pair(self):
        start, key, type_ = self.at, self.string(), self.number("I")
        if type_ == ARR:
            element, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.value(element)
        else:
            self.value(type_)
        return key, self.data[start:self.at]

    def descriptor(self):
        start = self.at
        self.string()
        n_dims = self.number("I")
        self.at += 8 * n_dims + 4
        head = self.data[start:self.at]
        return head, self.number("Q")


def split_pairs(no, count, total):
    def pair(key, type_, fmt, value):
        return gguf_edit.string(key) + struct.pack("<I" + fmt, type_, value)
    return [pair(SPLIT_KEYS[0], U16, "H", no), pair(SPLIT_KEYS[1], U16, "H", count), pair(SPLIT_KEYS[2], I32, "i", total)]


def pad(n, align):
    return n + -n % align


def assemble(version, pairs, tensors, align):
    out, offset = [b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)), *pairs], 0
    for head, data in tensors:
        out.append(head + struct.pack("<Q", offset))
        offset += pad(len(data), align)
    head = b"".join(out)
    if tensors:
        head += b"\0" * (-len(head) % align)
    return head + b"".join(data for _, data in tensors)


def cut(p, limit, value, no_tensor_first, head_bytes):
    """The tensors of each part."""
    parts = [[]]
    for head, data in p.tensors:
        part, first = parts[-1], len(parts) == 1
        together = sum(pad(len(d), p.align) for _, d in part + [(head, data)])
        names = sum(len(h) + 8 for h, _ in part + [(head, data)])
        if first and no_tensor_first:
            new = True
        elif limit == "--max-tensors":
            new = len(part) == value
        elif limit == "--max-data":
            new = bool(part) and together > value
        else:
            new = (first or bool(part)) and pad(head_bytes[0 if first else 1] + names, p.align) + together > value
        if new:
            parts.append([])
        parts[-1].append((head, data))
    return parts


def split(data, limit, value, no_tensor_first=False):
    """The files that limpid split must write."""
    p = Parsed(data)
    own = [raw for key, raw in p.pairs if key not in SPLIT_KEYS]
    later = [raw for key, raw in p.pairs if key == b"general.alignment" and p.align != 32]
    heads = [len(assemble(3, pairs + split_pairs(0, 1, 0), [], p.align)) for pairs in (own, later)]
    parts = cut(p, limit, value, no_tensor_first, heads)
    return [assemble(p.version, (later if i else own) + split_pairs(i, len(parts), len(p.tensors)), tensors, p.align)
            for i, tensors in enumerate(parts)]


# ---- helpers ----

def save(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def load(path):
    with open(path, "rb") as f:
        return f.read()


def part_names(prefix, n):
    return [f"{prefix}-{i + 1:05}-of-{n:05}.gguf" for i in range(n)]


def save_set(prefix, parts):
    return [save(name, data) for name, data in zip(part_names(prefix, len(parts)), parts)]


def listing(folder):
    return {name: hashlib.sha256(load(os.path.join(folder, name))).hexdigest() for name in os.listdir(folder)
            if os.path.isfile(os.path.join(folder, name))}


def in_folder(function, *arguments_):
    with tempfile.TemporaryDirectory(prefix="limpid-merge-") as folder:
        return [fault for fault in function(folder, *arguments_) or () if fault]


def differs(what, got, want):
    if got == want:
        return None
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return f"{what} is not what it must be: {len(got)} bytes, expected {len(want)}; the first difference is at byte {at}"


def one_line(done):
    lines = done.stderr.strip().split("\n")  # a command to give next may follow, indented
    message = done.stderr
    if any(not line.startswith("    ") for line in lines[1:]) or not lines[0].startswith("limpid: error: "):
        return f"not one sentence: {message!r}"
    return None


# ---- there and back ----

def there_and_back(folder, limpid, data, limit, value, *flags):
    """split writes what the second implementation says, and merge gives the file back, by any part."""
    save(f"{folder}/in.gguf", data)
    run([limpid, "split", f"{folder}/in.gguf", f"{folder}/p", limit, value, *flags])
    want = split(data, limit, value, bool(flags))
    names = part_names(f"{folder}/p", len(want))
    if sorted(os.listdir(folder)) != sorted([os.path.basename(n) for n in names] + ["in.gguf"]):
        yield f"split left {sorted(os.listdir(folder))[:6]}, expected {len(want)} parts"
        return
    for name, part in zip(names, want):
        yield differs(os.path.basename(name), load(name), part)
        if limit == "--max-size" and os.path.getsize(name) > value and len(Parsed(part).tensors) > 1:
            yield f"{name} has {os.path.getsize(name)} bytes, over the limit {value}"
    done = run([limpid, "merge", random.Random(value).choice(names), f"{folder}/out.gguf"])
    yield differs("the merged file", load(f"{folder}/out.gguf"), data)
    yield not_wrote(done, f"{folder}/out.gguf")
    if not done.stdout.startswith(f"wrote {folder}/out.gguf: {len(Parsed(data).tensors)} tensor"):
        yield f"the last line is {done.stdout!r}"


def back_only(folder, limpid, data, limit, value, *flags):
    """Where limpid's own key is in part 1 (split_keys.h): the parts are its own, the file is the same."""
    save(f"{folder}/in.gguf", data)
    run([limpid, "split", f"{folder}/in.gguf", f"{folder}/p", limit, value, *flags])
    first = next(n for n in sorted(os.listdir(folder)) if n.startswith("p-00001-"))
    run([limpid, "merge", f"{folder}/{first}", f"{folder}/out.gguf"])
    yield differs("the merged file", load(f"{folder}/out.gguf"), data)
    # and cut anew
    run([limpid, "split", f"{folder}/{first}", f"{folder}/q", "--max-tensors", "2"])
    first = next(n for n in sorted(os.listdir(folder)) if n.startswith("q-00001-"))
    run([limpid, "merge", f"{folder}/{first}", f"{folder}/again.gguf"])
    yield differs("the file that was cut twice", load(f"{folder}/again.gguf"), data)


def small(tensors=5, align=32, seed=1):
    """A model of nothing: keys of every type, tensors whose size is no multiple of the alignment."""
    rng = random.Random(seed)
    g = gguf_edit.Gguf()
    if align != 32:
        g.align = align
    g.keys = [["general.architecture", (STR, "none")], ["a.u8", (U8, 200)], ["a.i8", (I8, -3)], ["a.u16", (U16, 65535)],
              ["a.i16", (I16, -2)], ["a.u32", (U32, 7)], ["a.i32", (I32, -7)], ["a.f32", (F32, 0.1)], ["a.bool", (BOOL, 1)],
              ["a.str", (STR, "ü \x01".encode())], ["a.empty", (STR, b"")], ["a.u64", (U64, 2**63)], ["a.i64", (I64, -2**63)],
              ["a.f64", (F64, float("nan"))], ["b.strs", (ARR, STR, [b"", b"x", b"\0\xff"])], ["b.none", (ARR, STR, [])],
              ["b.bools", (ARR, BOOL, [1, 0, 1])], ["b.f64", (ARR, F64, [1.5, -0.0])], ["b.u8", (ARR, U8, list(range(33)))]]
    if align != 32:
        g.keys.insert(3, ["general.alignment", (U32, align)])
    for i in range(tensors):
        n = rng.randrange(1, 400)
        g.tensors.append(Tensor(f"t{i}.weight", [n], T_I8, rng.randbytes(n)))
    return g


def without_padding(data, keep):
    """The padding behind the last tensor cut down to `keep` bytes."""
    p = Parsed(data)
    n = struct.unpack_from("<Q", p.tensors[-1][0], len(p.tensors[-1][0]) - 12)[0]  # one axis of bytes
    gap = -n % p.align
    return data[:len(data) - gap + min(keep, gap)]


def odd_padding(data):
    """Non-zero bytes behind every tensor."""
    p = Parsed(data)
    out, at = bytearray(data), pad(p.head_end, p.align)
    for head, body in p.tensors:
        n = struct.unpack_from("<Q", head, len(head) - 12)[0]
        out[at + n:at + len(body)] = bytes(0xA0 + i % 64 for i in range(len(body) - n))
        at += len(body)
    return bytes(out)


def add_round_trips(checks, limpid, sanitizer):
    def add(name, function, *arguments_):
        checks.add(name, in_folder, function, limpid, *arguments_)
    models = ["dsa_shared", "glm45", "qwen3"] if sanitizer else sorted(n[:-5] for n in os.listdir(GOLDEN) if n.endswith(".gguf"))
    for i, name in enumerate(models):
        data = load(os.path.join(GOLDEN, name + ".gguf"))
        for limit, value in (("--max-tensors", 7 + i), ("--max-size", 150000 + 7777 * i), ("--max-data", 100000 + 5555 * i)):
            add(f"{name} {limit} {value}", there_and_back, data, limit, value)
        add(f"{name} without tensors first", there_and_back, data, "--max-size", 200000, "--no-tensor-first-split")
    mini = load(MINI_MODEL)
    add("mini --max-size 4M", there_and_back, mini, "--max-size", 4000000)
    add("mini --max-tensors 50, none first", there_and_back, mini, "--max-tensors", 50, "--no-tensor-first-split")
    add("each tensor alone", there_and_back, load(os.path.join(GOLDEN, "qwen2.gguf")), "--max-size", 1)
    add("one part", there_and_back, load(os.path.join(GOLDEN, "qwen2.gguf")), "--max-size", 10**12)

    for align in (8, 16, 32, 64, 4096):
        g = small(align=align, seed=align)
        for value in (1, 2, 5):
            add(f"alignment {align}, {value} tensors", there_and_back, g.bytes(), "--max-tensors", value)
        add(f"alignment {align}, non-zero padding", there_and_back, odd_padding(g.bytes()), "--max-tensors", 2)
        add(f"alignment {align}, none first", there_and_back, g.bytes(), "--max-data", 600, "--no-tensor-first-split")
        for keep in (0, 1, 5):
            add(f"alignment {align}, {keep} bytes of the last padding", there_and_back,
                without_padding(odd_padding(g.bytes()), keep), "--max-tensors", 2)
    g = small(seed=2)
    g.version = 2
    add("version 2", there_and_back, g.bytes(), "--max-tensors", 2)
    add("no tensors", there_and_back, small(0).bytes(), "--max-tensors", 1)
    for n in (1, 13):
        add(f"no tensors, {n} bytes behind", back_only, small(0).bytes() + b"\7" * n, "--max-tensors", 1)
    data = bytearray(small(seed=3).bytes())
    p = Parsed(bytes(data))
    assert -p.head_end % 32
    data[p.head_end:pad(p.head_end, 32)] = b"\x55" * (-p.head_end % 32)
    add("non-zero padding behind the header", back_only, bytes(data), "--max-tensors", 2)
    add("the same, none first", back_only, bytes(data), "--max-tensors", 2, "--no-tensor-first-split")


# ---- sets of others ----

def set_of_others(folder, limpid, name, limit, value, none_first):
    """Merged it is the model; cut with the limits that made it, it is the set again."""
    data = load(os.path.join(GOLDEN, name + ".gguf"))
    parts = split(data, limit, value, none_first)
    names = save_set(f"{folder}/set", parts)
    run([limpid, "merge", names[-1], f"{folder}/out.gguf"])
    yield differs("the merged file", load(f"{folder}/out.gguf"), data)
    run([limpid, "split", f"{folder}/out.gguf", f"{folder}/again", limit, value,
         *(["--no-tensor-first-split"] if none_first else [])])
    for again, want in zip(part_names(f"{folder}/again", len(parts)), parts):
        yield differs(os.path.basename(again), load(again), want)
    for n, path in enumerate(names):  # the set itself cut anew, by any of its parts
        if n % 3 == 0:
            run([limpid, "split", path, f"{folder}/cut{n}", "--max-tensors", "11"])
            want = split(data, "--max-tensors", 11)
            for again, part in zip(part_names(f"{folder}/cut{n}", len(want)), want):
                yield differs(os.path.basename(again), load(again), part)


def folder_of_a_set(folder, limpid):
    os.mkdir(f"{folder}/set")
    data = small().bytes()
    save_set(f"{folder}/set/m", split(data, "--max-tensors", 2))
    run([limpid, "merge", f"{folder}/set", f"{folder}/out.gguf"])
    yield differs("the merged file", load(f"{folder}/out.gguf"), data)


def several_alignments(folder, limpid):
    """Each part has its own; the file has part 1's."""
    g = small(6, seed=9)
    sets = make_bad_gguf.parts(g, 3)
    sets[0].set("general.alignment", U32, 64)
    sets[0].align = 64
    sets[2].set("general.alignment", U32, 16)
    sets[2].align = 16
    names = save_set(f"{folder}/m", [p.bytes() for p in sets])
    run([limpid, "merge", names[0], f"{folder}/out.gguf"])
    g.align = 64
    g.keys.append(["general.alignment", (U32, 64)])
    got, want = Parsed(load(f"{folder}/out.gguf")), Parsed(g.bytes())
    yield differs("the data", b"".join(d for _, d in got.tensors), b"".join(d for _, d in want.tensors))
    if sorted(got.pairs) != sorted(want.pairs) or [h for h, _ in got.tensors] != [h for h, _ in want.tensors]:
        yield "metadata or descriptors are not part 1's"


def short_middle(folder, limpid):
    """A part in the middle without its last padding: zeros take its place."""
    g = small(6, seed=11)
    sets = [p.bytes() for p in make_bad_gguf.parts(g, 3)]
    sets[1] = without_padding(sets[1], 0)
    names = save_set(f"{folder}/m", sets)
    run([limpid, "merge", names[0], f"{folder}/out.gguf"])
    yield differs("the merged file", load(f"{folder}/out.gguf"), g.bytes())


def keys_of_later_parts(folder, limpid):
    g = small(6, seed=12)
    sets = make_bad_gguf.parts(g, 3)
    sets[1].set("a.u32", U32, 8)
    sets[1].set("a.i8", I8, -3)  # the same as part 1's
    sets[2].set("z.more", STR, b"x")
    names = save_set(f"{folder}/m", [p.bytes() for p in sets])
    done = run([limpid, "merge", names[0], f"{folder}/out.gguf"])
    yield differs("the merged file", load(f"{folder}/out.gguf"), g.bytes())
    for key, there in (("a.u32", True), ("z.more", True), ("a.i8", False), ("split.no", False)):
        if (key in done.stderr) != there:
            yield f"{key} {'is not named' if there else 'is named'}: {done.stderr!r}"


def left_by_others(folder, limpid):
    """The documented exception: split.count 0, as llama-gguf-split leaves it in a merged file."""
    g = small(seed=13)
    clean = g.bytes()
    g.keys.insert(4, ["split.count", (U16, 0)])
    save(f"{folder}/in.gguf", g.bytes())
    run([limpid, "split", f"{folder}/in.gguf", f"{folder}/p", "--max-tensors", 2])
    run([limpid, "merge", f"{folder}/p-00001-of-00003.gguf", f"{folder}/out.gguf"])
    yield differs("the merged file", load(f"{folder}/out.gguf"), clean)
    run([limpid, "merge", f"{folder}/in.gguf", f"{folder}/cleaned.gguf"])
    yield differs("the file without the key", load(f"{folder}/cleaned.gguf"), clean)


# ---- ended halfway ----

def large(folder, megabytes):
    """A file that takes a while: as many tensors of 1 MB."""
    rng = random.Random(5)
    block = rng.randbytes(1 << 20)
    g = small(3)
    g.tensors += [Tensor(f"blk.{i}.weight", [1 << 20], T_I8, block[i:] + block[:i]) for i in range(megabytes)]
    return save(f"{folder}/in.gguf", g.bytes())


def size_of(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # a part that was whole was renamed just now
        return 0


def written(folder, prefix):
    return sum(size_of(e.path) for e in os.scandir(folder) if e.name.startswith(prefix) and not e.name.endswith(".state"))


def end_at(command, folder, prefix, size, how):
    """Starts it and ends it when so many bytes are there, and more than before. Whether it was still at work."""
    size = max(size, written(folder, prefix) + (2 << 20))
    p = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while p.poll() is None and written(folder, prefix) < size:
        time.sleep(0.0005)
    if p.poll() is None:
        p.send_signal(how)
    _, message = p.communicate(timeout=600)
    if p.returncode == 0:
        return False
    if p.returncode != -how:
        raise Failed(f"ended with {p.returncode}: {message}")
    if not any(name.endswith(".state") for name in os.listdir(folder)):
        return False  # it had finished and was on its way out
    if how == signal.SIGINT and "the same command goes on" not in message:
        raise Failed(f"the message is {message!r}")
    return True


def ended_halfway(folder, limpid, what, how, megabytes):
    source = load(large(folder, megabytes))
    p = split(source, "--max-size", 20000000)
    if what == "merge":
        names = save_set(f"{folder}/set", p)
        command = [limpid, "merge", names[0], f"{folder}/out.gguf"]
    else:
        command = [limpid, "split", f"{folder}/in.gguf", f"{folder}/out", "--max-size", "20M"]
    ended = 0
    for share in (0.3, 0.5, 0.7, 0.9):
        if not end_at(command, folder, "out", share * len(source), how):
            break
        ended += 1
    done = run(command) if ended == 4 or not any(n.startswith("out") for n in os.listdir(folder)) else None
    if ended == 0:
        return  # too quick to be met; what there is was right all the same
    if done and " were there, in " not in done.stdout:
        yield f"it began again: {done.stdout!r}"
    if what == "merge":
        yield differs("the merged file", load(f"{folder}/out.gguf"), source)
    else:
        for name, want in zip(part_names(f"{folder}/out", len(p)), p):
            yield differs(os.path.basename(name), load(name), want)
    left = [n for n in os.listdir(folder) if "partial" in n]
    if left:
        yield f"left behind: {left}"


def changed_meanwhile(folder, limpid):
    """Another source, size the same: nothing of the first is used."""
    source = large(folder, 60)
    command = [limpid, "split", source, f"{folder}/out", "--max-size", "20M"]
    if not end_at(command, folder, "out", 3 << 20, signal.SIGKILL):
        return
    data = bytearray(load(source))
    data[-100:] = b"\x11" * 100
    save(source, data)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode == 0:
        if "were there" in done.stdout:
            yield f"it went on: {done.stdout!r}"
        for name, want in zip(part_names(f"{folder}/out", 4), split(bytes(data), "--max-size", 20000000)):
            yield differs(os.path.basename(name), load(name), want)
    elif "exists already" not in done.stderr:  # a part was finished before the end came
        yield done.stderr


# ---- refusals ----

def refused(folder, limpid, command, words, status=1, prepare=None):
    """One sentence, the exit status, and the folder as it was."""
    save_set(f"{folder}/m", split(small(6).bytes(), "--max-tensors", 2))
    save(f"{folder}/in.gguf", small(6).bytes())
    save(f"{folder}/there.gguf", b"old")
    save(f"{folder}/x-00002-of-00003.gguf", b"old")
    os.mkdir(f"{folder}/dir")
    os.symlink("m-00002-of-00003.gguf", f"{folder}/soft.gguf")
    os.link(f"{folder}/m-00003-of-00003.gguf", f"{folder}/hard.gguf")
    before = listing(folder)
    done = subprocess.run([limpid, *command], cwd=folder, capture_output=True, text=True, preexec_fn=prepare)
    if done.returncode != status:
        yield f"exit status {done.returncode}, expected {status}: {done.stderr}"
    if words not in done.stderr:
        yield f"the message lacks {words!r}: {done.stderr!r}"
    if status == 1:
        yield one_line(done)
    if listing(folder) != before:
        yield f"the folder changed: {sorted(set(listing(folder).items()) ^ set(before.items()))}"


def damaged_set(folder, limpid, case):
    os.mkdir(f"{folder}/set")
    for name, data in case.files.items():
        save(f"{folder}/set/{name}", data)
    before = listing(f"{folder}/set")
    for command in (["merge", f"set/{case.open}", "out.gguf"], ["split", f"set/{case.open}", "out", "--max-tensors", "2"]):
        done = subprocess.run([limpid, *command], cwd=folder, capture_output=True, text=True)
        if done.returncode != 1:
            yield f"{command[0]}: exit status {done.returncode}: {done.stdout} {done.stderr}"
            continue
        yield one_line(done)
        if not any(n.lower() in done.stderr.lower() for n in case.needles):
            yield f"{command[0]}: the message names none of {case.needles}: {done.stderr!r}"
    if os.listdir(folder) != ["set"] or listing(f"{folder}/set") != before:
        yield f"the folder changed: {os.listdir(folder)}"


def full_disk(folder, limpid):
    """A small tmpfs, where one can be mounted."""
    os.mkdir(f"{folder}/disk")
    source = large(folder, 8)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", f"{folder}/disk"], capture_output=True).returncode:
        return
    try:
        for command in (["split", source, f"{folder}/disk/p", "--max-size", "2M"],):
            done = run([limpid, *command], status=1)
            yield one_line(done)
            if "GB are free" not in done.stderr or f"{folder}/disk/p-*.gguf, all 8 parts together" not in done.stderr:
                yield f"the message is {done.stderr!r}"
            if os.listdir(f"{folder}/disk"):
                yield f"left on the disk: {os.listdir(f'{folder}/disk')}"
    finally:
        subprocess.run(["umount", f"{folder}/disk"])


def replaced(folder, limpid):
    """--force, also where the old file is shorter or longer, and through a link."""
    data = small(6).bytes()
    names = save_set(f"{folder}/m", split(data, "--max-tensors", 2))
    os.symlink("real.gguf", f"{folder}/out.gguf")
    save(f"{folder}/real.gguf", b"x" * 100000)
    run([limpid, "merge", names[0], f"{folder}/out.gguf", "--force"])
    yield differs("the file behind the link", load(f"{folder}/real.gguf"), data)
    if not os.path.islink(f"{folder}/out.gguf"):
        yield "the link is gone"
    save(f"{folder}/p-00002-of-00003.gguf", b"old")
    run([limpid, "split", f"{folder}/real.gguf", f"{folder}/p", "--max-tensors", "2", "--force"])
    for name, want in zip(part_names(f"{folder}/p", 3), split(data, "--max-tensors", 2)):
        yield differs(os.path.basename(name), load(name), want)


def few_bytes():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def add_refusals(checks, limpid):
    def add(name, command, words, status=1, prepare=None):
        checks.add(f"refused: {name}", in_folder, refused, limpid, command, words, status, prepare)
    part, out = "m-00002-of-00003.gguf", "out.gguf"
    for name in (part, "./m-00001-of-00003.gguf", "soft.gguf", "hard.gguf"):
        for force in ([], ["--force"]):
            add(f"{name} is a part {force}", ["merge", part, name, *force], "it is read")
    add("a file that exists", ["merge", part, "there.gguf"], "there.gguf exists already")
    add("a part that exists", ["split", "in.gguf", "x", "--max-tensors", "2"], "x-00002-of-00003.gguf exists already")
    add("the set's own names", ["split", part, "m", "--max-tensors", "2", "--force"], "it is read")
    add("no such folder", ["merge", part, "no/out.gguf"], "the folder no/ cannot be reached")
    add("no such folder, split", ["split", "in.gguf", "no/x", "--max-tensors", "2"], "the folder no/ cannot be reached")
    add("a folder", ["merge", part, "dir"], "dir is a folder")
    add("a device", ["merge", part, "/dev/null", "--force"], "no regular file")
    add("no part of a set", ["merge", "in.gguf", out], "nothing to merge")
    add("no GGUF", ["merge", "there.gguf", out], "not a GGUF file")
    add("no such file", ["merge", "m-00001-of-00004.gguf", out], "there is no such file")
    add("a limit of the process", ["merge", part, out], "ulimit -f", prepare=few_bytes)
    if os.geteuid():
        add("a folder that cannot be written", ["merge", part, "/usr/out.gguf"], "Permission denied")
    for command, words in ((["merge", part], "are needed"), (["merge"], "are needed"), (["split", "in.gguf"], "are needed"),
                           (["split", "in.gguf", "x"], "give one of"), (["merge", part, out, "x"], "unexpected argument"),
                           (["split", "in.gguf", "x", "--max-size", "2", "--max-tensors", "2"], "give one of"),
                           (["split", "in.gguf", "x", "--max-tensors", "0"], "expected 1 or more"),
                           (["split", "in.gguf", "x", "--max-size", "4g"], "expected a size"),
                           (["split", "in.gguf", "x", "--max-data", "0"], "expected a size"),
                           (["split", "in.gguf", "x.gguf", "--max-tensors", "2"], "leave out .gguf"),
                           (["split", "in.gguf", "dir/", "--max-tensors", "2"], "put a name behind it")):
        add("usage " + " ".join(command[2:]), command, words, 2)


def too_many_parts(folder, limpid):
    g = gguf_edit.Gguf()
    g.tensors = [Tensor(f"t{i}", [1], T_F32, b"\0" * 4) for i in range(4097)]
    save(f"{folder}/in.gguf", g.bytes())
    done = run([limpid, "split", f"{folder}/in.gguf", f"{folder}/x", "--max-tensors", "1"], status=1)
    yield one_line(done)
    if "more than 4096 parts" not in done.stderr or os.listdir(folder) != ["in.gguf"]:
        yield f"{done.stderr!r}, {os.listdir(folder)[:5]}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    add_round_trips(checks, args.limpid, args.sanitizer)
    for name, limit, value, none_first in (("dsa_shared", "--max-tensors", 30, False), ("ds3", "--max-data", 200000, False),
                                           ("glm45", "--max-data", 150000, True), ("qwen3", "--max-tensors", 8, True)):
        checks.add(f"a set of others: {name}", in_folder, set_of_others, args.limpid, name, limit, value, none_first)
    for function in (folder_of_a_set, several_alignments, short_middle, keys_of_later_parts, left_by_others, changed_meanwhile,
                     full_disk, replaced, too_many_parts):
        checks.add(function.__name__, in_folder, function, args.limpid)
    for what in ("merge", "split"):
        for how in (signal.SIGKILL, signal.SIGINT):
            checks.add(f"{what} ended by {how.name}", in_folder, ended_halfway, args.limpid, what, how, 60 if args.sanitizer else 100)
    add_refusals(checks, args.limpid)
    good = gguf_edit.read(os.path.join(GOLDEN, "dsa_sparse.gguf"))
    for case in make_bad_gguf.split_sets(good):
        if case.refused_by == "any":
            checks.add(f"damaged set: {case.name}", in_folder, damaged_set, args.limpid, case)
    checks.finish()


if __name__ == "__main__":
    main()
