#!/usr/bin/env python3
"""limpid imatrix: sums of squares of what meets each column, against a forward pass in numpy (float64).

    imatrix.py LIMPID [--sanitizer] [--only TEXT]

The forward pass is MLA with a mixture of experts, written from docs/attention.md; it must give the golden
logits first. dsa_sparse has a top-k of 16, so that in chunks of 16 tokens every key is seen, and an MTP
layer. Checked: every sum and count of every matrix, the same from a file with fused attn_kv_b, both forms
of file, the number of threads, Ctrl-C, mistakes.
"""
import json
import os
import signal
import struct
import subprocess
import tempfile
import time

import dequant
import fused_kv_b
import gguf_edit
import hf_folders
from harness import MINI_MODEL, Checks, Golden, arguments, not_wrote, np, run

gguf_edit.BLOCKS.update(dequant.BLOCKS)
MODEL, CHUNK, N_CHUNKS = "dsa_sparse", 16, 5
TEXT = "".join(chr(33 + i * 7 % 90) + (" " if i % 5 == 0 else "") for i in range(160))


class Forward:
    """Inputs of every matrix of an MLA model while tokens run, float64."""

    def __init__(self, path):
        self.g = gguf_edit.read(path)
        arch = self.g.value("general.architecture").decode()
        self.key = lambda name: self.g.value(f"{arch}.{name}")
        self.w = {t.name: dequant.values(t.type, t.data, t.ne[0]).astype(np.float64).reshape(t.ne[::-1]) for t in self.g.tensors}
        self.n_layers = self.key("block_count") - self.key("nextn_predict_layers")
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.sums, self.counts, self.latents = {}, {}, {}

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * self.w[name]

    def meet(self, name, x, mat=0, n_mats=1):
        """Counts the rows x for a matrix; returns the matrix."""
        self.sums.setdefault(name, np.zeros((n_mats, x.shape[-1])))[mat] += (x * x).sum(axis=0)
        self.counts.setdefault(name, np.zeros(n_mats))[mat] += len(x)
        return self.w[name] if n_mats == 1 else self.w[name][mat]

    def dot(self, name, x):
        return x @ self.meet(name, x).T

    def rotate(self, x, positions):
        """x [T, H, rope], adjacent pairs."""
        n = x.shape[-1]
        angle = positions[:, None] * (self.key("rope.freq_base") ** (-np.arange(0, n, 2) / n))
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(x.shape)

    def attention(self, blk, x):
        heads, latent = self.key("attention.head_count"), self.key("attention.kv_lora_rank")
        rope, positions = self.key("rope.dimension_count"), np.arange(len(x), dtype=np.float64)
        low = self.norm(self.dot(blk + "attn_q_a.weight", x), blk + "attn_q_a_norm.weight")
        q = self.dot(blk + "attn_q_b.weight", low).reshape(len(x), heads, -1)
        kv = self.dot(blk + "attn_kv_a_mqa.weight", x)
        for name, rows in (("indexer.attn_q_b", low), ("indexer.attn_k", x), ("indexer.proj", x)):
            if blk + name + ".weight" in self.w:
                self.meet(blk + name + ".weight", rows)
        c = self.norm(kv[:, :latent], blk + "attn_kv_a_norm.weight")
        self.latents[blk] = c
        k_pe = self.rotate(kv[:, None, latent:], positions)[:, 0]
        q_nope, q_pe = q[..., :-rope], self.rotate(q[..., -rope:], positions)
        out = []
        for h in range(heads):
            k_b = self.meet(blk + "attn_k_b.weight", q_nope[:, h], h, heads)  # [latent, nope]
            scores = (q_nope[:, h] @ k_b.T @ c.T + q_pe[:, h] @ k_pe.T) / np.sqrt(q.shape[-1])
            scores[np.triu_indices(len(x), 1)] = -np.inf
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            z = p / p.sum(axis=1, keepdims=True) @ c
            out.append(z @ self.meet(blk + "attn_v_b.weight", z, h, heads).T)
        return self.dot(blk + "attn_output.weight", np.concatenate(out, axis=1))

    def swiglu(self, blk, kind, x, expert=0, n_experts=1):
        gate, up = (x @ self.meet(f"{blk}ffn_{m}{kind}.weight", x, expert, n_experts).T for m in ("gate", "up"))
        act = gate / (1 + np.exp(-gate)) * up
        return act @ self.meet(f"{blk}ffn_down{kind}.weight", act, expert, n_experts).T

    def ffn(self, blk, x):
        if blk + "ffn_gate.weight" in self.w:
            return self.swiglu(blk, "", x)
        s = 1 / (1 + np.exp(-self.dot(blk + "ffn_gate_inp.weight", x)))
        n, used = s.shape[1], self.key("expert_used_count")
        chosen = np.argsort(-(s + self.w[blk + "exp_probs_b.bias"]), axis=1)[:, :used]
        weight = np.take_along_axis(s, chosen, 1)
        weight = weight / weight.sum(axis=1, keepdims=True) * self.key("expert_weights_scale")
        out = self.swiglu(blk, "_shexp", x)
        for e in range(n):
            rows, place = np.nonzero(chosen == e)
            if len(rows):
                out[rows] += weight[rows, place][:, None] * self.swiglu(blk, "_exps", x[rows], e, n)
        return out

    def layer(self, l, h):
        blk = f"blk.{l}."
        h = h + self.attention(blk, self.norm(h, blk + "attn_norm.weight"))
        return h + self.ffn(blk, self.norm(h, blk + "ffn_norm.weight"))

    def chunk(self, ids):
        """Logits [T, vocab] of a text from its beginning, and the MTP layer's inputs."""
        h = self.w["token_embd.weight"][ids]
        for l in range(self.n_layers):
            h = self.layer(l, h)
        final = self.norm(h, "output_norm.weight")
        logits = self.dot("output.weight", final)
        if self.key("nextn_predict_layers"):
            blk = f"blk.{self.n_layers}."
            pair = np.concatenate([self.norm(self.w["token_embd.weight"][ids[1:]], blk + "nextn.enorm.weight"),
                                   self.norm(final[:-1], blk + "nextn.hnorm.weight")], axis=1)
            self.layer(self.n_layers, self.dot(blk + "nextn.eh_proj.weight", pair))
        return logits


def read(path):
    """A file of the GGUF form: {name: (sums [n_mats, n_in], counts [n_mats])}, and its keys."""
    g = gguf_edit.read(path)
    arrays = {t.name: dequant.values(t.type, t.data, t.ne[0]) for t in g.tensors}
    return {n[:-8]: (a, arrays[n[:-8] + ".counts"][:, 0]) for n, a in arrays.items() if n.endswith(".in_sum2")}, dict(g.keys)


def read_older(path):
    """The older form: {name: (sums / calls, calls)}, number of chunks, dataset."""
    data = open(path, "rb").read()
    at, out = 4, {}
    for _ in range(struct.unpack_from("<i", data)[0]):
        n = struct.unpack_from("<i", data, at)[0]
        name = data[at + 4:at + 4 + n].decode()
        calls, values = struct.unpack_from("<ii", data, at + 4 + n)
        at += 12 + n
        out[name] = (np.frombuffer(data, "<f4", values, at) / calls, calls)
        at += 4 * values
    chunks, n = struct.unpack_from("<ii", data, at)
    return out, chunks, data[at + 8:at + 8 + n].decode(), at + 8 + n == len(data)


class Case:
    def __init__(self, limpid, folder):
        self.limpid, self.folder, self.golden = limpid, folder, Golden(MODEL)
        self.text = self.path("text.txt")
        with open(self.text, "w") as f:
            f.write(TEXT)
        self.forward = Forward(self.golden.path)

    def path(self, name):
        return os.path.join(self.folder, name)

    def collect(self, model, out, *options, **named):
        return run([self.limpid, "imatrix", model, "-f", self.text, "-o", self.path(out), "--chunk", CHUNK, "--chunks", N_CHUNKS,
                    *options], **named)

    def ids(self):
        ids = json.loads(run([self.limpid, "tokenize", self.golden.path, "--bos", TEXT]).stdout)
        assert len(ids) >= CHUNK * N_CHUNKS
        return np.array(ids)

    def forward_is_golden(self):
        f = Forward(self.golden.path)
        far = np.abs(f.chunk(self.golden.tokens[:CHUNK]) - self.golden.ref["logits_f64"][:CHUNK]).max()
        if far > 1e-5:
            yield f"the test's own forward pass is off by {far:.1e}"

    def run_forward(self):
        ids = self.ids()
        for c in range(N_CHUNKS):
            self.forward.chunk(ids[c * CHUNK:(c + 1) * CHUNK])

    def compare(self, got):
        want = self.forward.sums
        if set(got) != set(want):
            yield f"entries differ: {sorted(set(got) ^ set(want))}"
            return
        for name, sums in want.items():
            if got[name][0].shape != sums.shape or not np.array_equal(got[name][1], self.forward.counts[name]):
                yield f"{name}: {got[name][0].shape}, counts {got[name][1]}, expected {sums.shape}, {self.forward.counts[name]}"
            elif (far := np.abs(got[name][0] - sums).max() / sums.max()) > 2e-4:
                yield f"{name}: off by {far:.1e} of the largest"

    def sums_are_numpys(self, backend):
        out = f"{backend}.gguf"
        done = self.collect(self.golden.path, out, "--process-output", "--backend", backend)
        yield not_wrote(done, self.path(out))
        got, keys = read(self.path(out))
        yield from self.compare(got)
        if keys["general.type"][1] != b"imatrix" or keys["imatrix.chunk_count"] != (gguf_edit.U32, N_CHUNKS) or \
                keys["imatrix.chunk_size"] != (gguf_edit.U32, CHUNK) or keys["imatrix.datasets"][2] != [self.text.encode()]:
            yield f"keys: {keys}"
        if f": {len(got)} tensors, " not in done.stdout or f", from {N_CHUNKS} chunks ({N_CHUNKS * CHUNK} tokens)" not in done.stdout:
            yield f"it says {done.stdout!r}"

    def fused(self):
        model = gguf_edit.read(self.golden.path)
        fused_kv_b.rewrite(model, keep=False)
        with open(self.path("fused-model.gguf"), "wb") as f:
            f.write(model.bytes())
        self.collect(self.path("fused-model.gguf"), "fused.gguf", "--process-output")
        got, _ = read(self.path("fused.gguf"))
        kv_b = {n: got.pop(n) for n in list(got) if "attn_kv_b" in n}
        yield from self.compare(got)  # the halves are counted as attn_k_b and attn_v_b too
        again, ids = Forward(self.golden.path), self.ids()
        want = {f"blk.{l}.": 0 for l in range(self.forward.n_layers + 1)}
        for c in range(N_CHUNKS):
            again.chunk(ids[c * CHUNK:(c + 1) * CHUNK])
            for blk, latents in again.latents.items():
                want[blk] = want[blk] + (latents**2).sum(axis=0)
        for blk, sums in want.items():
            have = kv_b.get(blk + "attn_kv_b.weight")
            if have is None or np.abs(have[0] - sums).max() > 2e-4 * sums.max():
                yield f"{blk}attn_kv_b: {have}"

    def folder_model(self):
        """A Hugging Face folder, run in place."""
        hf_folders.from_golden(MODEL).write(self.path("hf"))
        self.collect(self.path("hf"), "hf.gguf", "--process-output")
        got, _ = read(self.path("hf.gguf"))
        yield from self.compare({n: e for n, e in got.items() if "attn_kv_b" not in n})
        weights = self.path("hf/model.safetensors")
        before = open(weights, "rb").read()
        said = run([self.limpid, "imatrix", self.path("hf"), "-f", self.text, "-o", weights, "--force"], status=1).stderr
        if "would be written over" not in said or open(weights, "rb").read() != before:
            yield f"an output that is part of the model: {said!r}"

    def older_form(self):
        self.collect(self.golden.path, "both.gguf", "--legacy", self.path("both.dat"))
        new, _ = read(self.path("both.gguf"))
        old, chunks, dataset, whole = read_older(self.path("both.dat"))
        if (chunks, dataset, whole) != (N_CHUNKS, self.text, True) or set(old) != set(new):
            yield f"{chunks} chunks of {dataset}, entries {sorted(set(old) ^ set(new))}"
        for name, (sums, counts) in new.items():
            mean = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], 1).reshape(-1)
            if not np.allclose(old[name][0], mean, rtol=1e-5):
                yield f"{name}: the older form has other means"

    def threads(self):
        for n in (1, 3):
            self.collect(self.golden.path, f"t{n}.gguf", "--threads", n)
        if open(self.path("t1.gguf"), "rb").read() != open(self.path("t3.gguf"), "rb").read():
            yield "another number of threads gives another file"

    def interrupted(self):
        """Ctrl-C in the middle: a file of the chunks that were done."""
        long = self.path("long.txt")
        with open(long, "w") as f:
            f.write("The quick brown fox jumps over the lazy dog. " * 20000)
        p = subprocess.Popen([self.limpid, "imatrix", MINI_MODEL, "-f", long, "-o", self.path("cut.gguf"), "--chunk", "32"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(6 if self.sanitizer else 2)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=300)
        if p.returncode or "limpid: stopped after" not in err:
            yield f"exit status {p.returncode}: {out!r} {err!r}"
            return
        _, keys = read(self.path("cut.gguf"))
        if not 0 < keys["imatrix.chunk_count"][1] < 20000 * 9 // 32 or os.path.exists(self.path("cut.gguf.partial")):
            yield f"{keys['imatrix.chunk_count'][1]} chunks"

    def mistakes(self):
        model, there = self.golden.path, self.path("there.gguf")
        open(there, "w").close()
        run([self.limpid, "split", model, self.path("set"), "--max-tensors", "40"])
        parts = sorted(os.path.join(self.folder, f) for f in os.listdir(self.folder) if f.startswith("set-"))
        for status, words, say in (
                (2, ["-f", self.text, "-o", "x.gguf"], "MODEL, -f TEXT and -o OUT.gguf are needed"),
                (2, [model, "-f", self.text, "-o", self.path("x"), "--legacy", self.path("x")], "-o and --legacy name one file"),
                (1, [model, "-f", self.text, "-o", "/dev/null", "--force"], "no regular file"),
                (1, [parts[0], "-f", self.text, "-o", parts[1], "--force"], "is a part of the model"),
                (2, [model, "-o", "x.gguf"], "-f TEXT and -o OUT.gguf are needed"),
                (2, [model, "-f", self.text], "-f TEXT and -o OUT.gguf are needed"),
                (2, [model, "-f", self.text, "-o", "x.gguf", "--chunk", "1"], "--chunk is 1"),
                (1, [model, "-f", self.text, "-o", there], "exists; --force"),
                (1, [model, "-f", self.text, "-o", self.text, "--force"], "would be written over"),
                (1, [model, "-f", self.text, "-o", self.path("no/x.gguf")], "cannot write"),
                (1, [model, "-f", self.path("none.txt"), "-o", self.path("x.gguf")], "none.txt"),
                (1, [model, "-f", self.text, "-o", self.path("x.gguf"), "--chunk", "9999"], "less than one chunk of 9999"),
                (1, [model, "-f", self.text, "-o", self.path("x.gguf"), "--chunk", "16", "--backend", "gpu"], "expected cpu, cuda or ref"),
                (1, [self.text, "-f", self.text, "-o", self.path("x.gguf")], "")):
            said = run([self.limpid, "imatrix", *words], status=status).stderr
            if say not in said or os.path.exists(self.path("x.gguf")):
                yield f"{words}: {said!r}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-imatrix-") as folder:
        case = Case(args.limpid, folder)
        case.sanitizer = args.sanitizer
        case.run_forward()
        checks.add("dequantisers", dequant.faults)
        checks.add("the forward pass", case.forward_is_golden)
        for backend in ("cpu", "ref"):
            checks.add(f"sums, {backend}", case.sums_are_numpys, backend)
        checks.add("fused kv_b", case.fused)
        checks.add("folder", case.folder_model)
        checks.add("older form", case.older_form)
        checks.add("threads", case.threads)
        checks.add("interrupted", case.interrupted)
        checks.add("mistakes", case.mistakes)
        checks.finish()


if __name__ == "__main__":
    main()
