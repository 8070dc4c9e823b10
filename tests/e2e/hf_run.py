#!/usr/bin/env python3
"""Hugging Face folders run in place, and the factors (NAME.scale) of NVFP4 files.

    hf_run.py LIMPID [--sanitizer] [--only TEXT]

- files: each matrix of a golden model as NVFP4, or where its rows do not fit as BF16, with a factor beside
  it; logits equal those of a file that holds the products as F32. Whoever multiplies in full precision
  agrees to rounding; kernels that round activations to 8 bits come near.
- folders: every golden model written as a folder (hf_folders.py) gives the golden logits within 1e-4 on
  every backend and route, with one thread as with two; its FP8, NVFP4 and INT4 forms those of the F32
  file of the values that they mean, on every backend.
- commands: inspect, tokenize, doctor, serve, run, bench and a trace take a folder.
- memory: of a BF16 folder the weights stay where they are mapped.
"""
import json
import os
import re
import subprocess
import tempfile
import urllib.request

import gguf_edit
import hf_folders
from gguf_edit import T_NVFP4, Tensor
from harness import Checks, Dump, Golden, arguments, golden_names, np, run, too_far

TOLERANCE = 1e-4
SAME = 3e-5   # two float32 roundings of each weight, against one
NEAR = 0.06   # of the logits' size: activations of 8 bits
VECTORS = re.compile(r"norm|bias|exp_probs_b|rope_freqs")

# ---- files with factors --------------------------------------------------------------------------


def pack_nvfp4(packed, scale_bits):
    """ModelOptimizer's nibbles [out, in / 2] (low first) and scale bytes [out, in / 16] as GGUF blocks."""
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1, 4, 2, 8)
    quants = nibbles[:, :, :, 0] | nibbles[:, :, :, 1] << 4                    # [out, blocks, 4, 8]
    scales = scale_bits.reshape(packed.shape[0], -1, 4)
    return np.concatenate([scales, quants.reshape(*scales.shape[:2], 32)], axis=2).tobytes()


def with_factors(x, i):
    """The i-th matrix of a stack: (type, bytes, factor, the values that all this means)."""
    if x.shape[1] % 64:
        factor = np.float32(0.7 + 0.1 * (i % 5))
        bits = hf_folders.bf16_bits(x / factor)
        return gguf_edit.T_BF16, bits.tobytes(), factor, hf_folders.bf16_values(bits).reshape(x.shape) * factor
    packed, scale_bits, second, product = hf_folders._nvfp4(x)
    return T_NVFP4, pack_nvfp4(packed, scale_bits), second, product * second


def rewrite(g):
    """(the model with factors, the same values as F32)"""
    scaled, plain = gguf_edit.read(g.path), gguf_edit.read(g.path)
    scaled.tensors, plain.tensors = [], []
    for n, t in enumerate(gguf_edit.read(g.path).tensors):
        values = hf_folders.tensor_values(t)
        if values.ndim < 2 or VECTORS.search(t.name) or t.name == "token_embd.weight" and n % 2:
            scaled.tensors.append(t)
            plain.tensors.append(t)
            continue
        stack = values.reshape(-1, *values.shape[-2:])
        parts = [with_factors(x, i) for i, x in enumerate(stack)]
        factors = np.array([p[2] for p in parts], np.float32)
        if "attn_k_b" in t.name or "attn_v_b" in t.name:  # one for all heads
            whole = with_factors(stack.reshape(-1, stack.shape[2]), 0)
            parts = [(whole[0], whole[1], whole[2], whole[3].reshape(stack.shape))]
            factors = np.array([whole[2]], np.float32)
        scaled.tensors.append(Tensor(t.name, t.ne, parts[0][0], b"".join(p[1] for p in parts)))
        scaled.tensors.append(Tensor(re.sub(r"weight$", "scale", t.name), [len(factors)], gguf_edit.T_F32, factors.tobytes()))
        plain.tensors.append(Tensor(t.name, t.ne, gguf_edit.T_F32, b"".join(p[3].astype("<f4").tobytes() for p in parts)))
    return scaled, plain


def write(model, path):
    with open(path, "wb") as f:
        f.write(model.bytes())
    return path


def is_exact(options):
    return "ref" in options or "plain" in options


def near(g, got, want):
    """Rounded activations: half of the positions must come near. Some choose other experts; behind
    top_k keys most choose other keys."""
    k = g.info["stats"]["topk"] if g.selects else len(want)
    far = np.median(np.abs(got[:k] - want[:k]).max(axis=1)) / np.abs(want).max()
    return f"logits are off by {far:.3f} of their size, allowed {NEAR}" if not far <= NEAR else None


def factors_count(limpid, scaled, plain, g, options):
    want = Dump(limpid, plain, g.tokens, "--backend", "ref", "--kv", "f32").logits
    got = Dump(limpid, scaled, g.tokens, "--kv", "f32", *options).logits
    yield too_far("logits with factors", got, want, SAME) if is_exact(options) else near(g, got, want)
    off = Dump(limpid, g.path, g.tokens, "--backend", "ref", "--kv", "f32").logits
    if np.abs(off - want).max() < 10 * SAME:
        yield "the factors and NVFP4 values change nothing: this test tests nothing"


def stray_factors(limpid, scaled, path, change, words):
    model = gguf_edit.read(scaled)
    change(model)
    done = run([limpid, "inspect", write(model, path)], status=1)
    if words not in done.stderr or done.stderr.count("\n") != 1:
        yield f"expected one sentence with '{words}', got: {done.stderr}"


def add_files(checks, limpid, folder, sanitizer):
    for name in ("dsa_sparse", "qwen3") if sanitizer else ("dsa_sparse", "glm45", "ds2_lite", "llama", "qwen3"):
        g = Golden(name)
        scaled, plain = (write(m, f"{folder}/{name}-{what}.gguf") for m, what in zip(rewrite(g), ("scaled", "f32")))
        for options in (["--backend", "ref"], ["--cpu", "plain"], ["--threads", "2"]):
            for route in (["--route", "expanded"], ["--route", "absorbed", "--chunk", "3"]) if g.is_mla else ([],):
                checks.add(f"factors {name} {' '.join(options + route)}", factors_count, limpid, scaled, plain, g, options + route)
    bad = f"{folder}/dsa_sparse-scaled.gguf"

    def cut(model):
        t = model.tensor("blk.3.ffn_up_exps.scale")
        t.ne, t.data = [t.ne[0] - 1], t.data[:-4]

    def orphan(model):
        model.tensors.append(Tensor("blk.3.attn_norm.scale", [1], gguf_edit.T_F32, b"\0\0\x80\x3f"))

    checks.add("factors: wrong count", stray_factors, limpid, bad, f"{folder}/cut.gguf", cut, "blk.3.ffn_up_exps.scale has shape [7]")
    checks.add("factors: no owner", stray_factors, limpid, bad, f"{folder}/orphan.gguf", orphan, "blk.3.attn_norm.scale holds factors")


def memory_only_type(limpid, path):
    """FP8 blocks are in memory only: no file may claim them."""
    model = gguf_edit.read(Golden("qwen3").path)
    t = model.tensor("output_norm.weight")
    t.type, t.ne, t.data = 43, [128], bytes(132)
    done = run([limpid, "inspect", write(model, path)], status=1)
    if "output_norm.weight" not in done.stderr or done.stderr.count("\n") != 1:
        yield f"type 43 in a file: {done.stderr}"


# ---- folders -------------------------------------------------------------------------------------


def golden_folder(limpid, folder, g, options):
    yield too_far("logits", Dump(limpid, folder, g.tokens, *options).logits, g.ref["logits_f64"], TOLERANCE)


def threads_agree(limpid, folder, g):
    one, two = (Dump(limpid, folder, g.tokens, "--deterministic", "--threads", n).logits for n in (1, 2))
    if not np.array_equal(one.view(np.uint32), two.view(np.uint32)):
        yield "two threads give other bits than one"


def quantised_folder(limpid, folder, f32, g, options, rounds):
    want = Dump(limpid, f32, g.tokens, "--backend", "ref", "--kv", "f32").logits
    got = Dump(limpid, folder, g.tokens, "--kv", "f32", *options).logits
    yield near(g, got, want) if rounds and not is_exact(options) else too_far("logits", got, want, SAME)


def f32_file(g, exact, path):
    """The golden file with these values, float32."""
    model = gguf_edit.read(g.path)
    for t in model.tensors:
        x = exact.get(t.name)
        if x is not None:
            assert list(x.shape[::-1]) == t.ne, t.name
            t.type, t.data = gguf_edit.T_F32, x.astype("<f4").tobytes()
    return write(model, path)


def add_folders(checks, limpid, folder, sanitizer):
    for name in golden_names():
        g = Golden(name)
        path = hf_folders.from_golden(name).write(f"{folder}/{name}", shards=1 + len(name) % 3, unaligned=len(name) % 2 == 0)
        routes = ([["--route", "expanded"], ["--route", "absorbed", "--chunk", "5"]] if g.is_mla else [["--chunk", "5"]])
        for options in routes[:1] if sanitizer else routes + [[], ["--backend", "ref"]]:
            checks.add(f"folder {name} {' '.join(options)}", golden_folder, limpid, path, g, options)
        if not sanitizer:
            checks.add(f"folder {name} threads", threads_agree, limpid, path, g)
    names = ("dsa_sparse",) if sanitizer else ("dsa_sparse", "ds3", "llama", "dsa_full_dims", "glm45")
    for i, name in enumerate(names):
        g = Golden(name)
        for scheme in ("fp8", "nvfp4") if sanitizer or i > 2 else ("fp8", "fp8-channel", "nvfp4", "nvfp4-pack", "int4"):
            ck = hf_folders.from_golden(name)
            exact = hf_folders.to_gguf(ck, ck.quantise(scheme))
            path, f32 = ck.write(f"{folder}/{name}-{scheme}", shards=2), f32_file(g, exact, f"{folder}/{name}-{scheme}.gguf")
            for options in (["--backend", "ref"], ["--cpu", "plain"], ["--threads", "2"]):
                checks.add(f"folder {name} {scheme} {' '.join(options)}", quantised_folder, limpid, path, f32, g, options,
                           not scheme.startswith("fp8"))


# ---- commands ------------------------------------------------------------------------------------


def inspected(limpid, path, type_name):
    report = json.loads(run([limpid, "inspect", "--json", path]).stdout)
    types = {t for group in report["tensors"]["groups"] for t in (group["types"] if "types" in group else [group["type"]])} \
        if "groups" in report.get("tensors", {}) else set()
    if not report["can_run"] or report["architecture"] != "glm-dsa":
        yield f"inspect: can_run {report['can_run']}, architecture {report['architecture']}"
    if type_name not in json.dumps(report):
        yield f"inspect shows no {type_name} (types {types})"


def same_tokens(limpid, path, gguf):
    text = "Hello, wörld! 12345 tokens\n\n  and  spaces"
    a, b = (run([limpid, "tokenize", p, text]).stdout for p in (path, gguf))
    if a != b:
        yield f"tokenize: {a} of the folder, {b} of the file"


def doctor_is_content(limpid, path, quick):
    done = subprocess.run([limpid, "doctor", path, "--quick", "--until", "layers"], capture_output=True, text=True, timeout=1200)
    want = subprocess.run([limpid, "doctor", quick, "--quick", "--until", "layers"], capture_output=True, text=True, timeout=1200)
    if done.returncode != want.returncode:
        yield f"doctor says {done.returncode} of the folder, {want.returncode} of the file:\n{done.stdout}{done.stderr}"


class Server:
    def __init__(self, limpid, *options):
        self.process = subprocess.Popen([limpid, "serve", *options, "--port", "0", "--ctx", "256"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://[^\s/]+:\d+", line)
        if not found:
            self.process.kill()
            raise AssertionError(f"serve did not start: {line}{self.process.communicate()[1]}")
        self.url = found[0]

    def ask(self, path, body=None):
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}), timeout=600) as r:
            return json.load(r)

    def memory(self):
        """KB of memory that is a file's, and of memory that is not."""
        status = open(f"/proc/{self.process.pid}/status").read()
        return tuple(int(re.search(what + r":\s+(\d+)", status)[1]) for what in ("RssFile", "RssAnon"))

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=60)


def served(limpid, path, gguf):
    answers = []
    for model in (path, gguf):
        server = Server(limpid, model)
        try:
            answer = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 2 + 3?"}],
                                                         "max_tokens": 12, "temperature": 0})
            answers.append((server.ask("/v1/models")["data"][0]["id"], answer["choices"][0]["message"]["content"]))
        finally:
            server.close()
    if answers[0][1] != answers[1][1] or not answers[0][0]:
        yield f"serve: {answers[0]} of the folder, {answers[1]} of the file"


def suggested(limpid, gguf, path):
    """general.sampling.* are the defaults of run and serve."""
    model = gguf_edit.read(gguf)
    for key, value in (("temp", 0.7), ("top_p", 0.9), ("min_p", 7.0)):
        model.set("general.sampling." + key, gguf_edit.F32, value)
    model.set("general.sampling.top_k", gguf_edit.I32, 1)
    write(model, path)
    ask = [limpid, "run", path, "-p", "Once upon", "-n", "6", "--seed"]
    plain, first, second = (run([limpid, "run", gguf, "-p", "Once upon", "-n", "6"]), run(ask + ["1"]), run(ask + ["2", "--top-p", "1"]))
    if "temperature 0.7, top_p 0.9, top_k 1 (" not in first.stderr or "top_p" in second.stderr or "settings" in plain.stderr:
        yield f"run says: {first.stderr} {second.stderr} {plain.stderr}"
    if not first.stdout == second.stdout == plain.stdout:  # the one most probable token
        yield f"run does not take the file's top_k: {first.stdout!r}, {second.stdout!r}, greedily {plain.stdout!r}"
    server = Server(limpid, path)
    try:
        body = {"prompt": "Once upon", "max_tokens": 6, "seed": 1}
        texts = [server.ask("/v1/completions", dict(body, **more))["choices"][0]["text"]
                 for more in ({}, {"seed": 2}, {"temperature": 0})]
        other = {server.ask("/v1/completions", dict(body, seed=seed, top_k=0, top_p=1, temperature=3))["choices"][0]["text"]
                 for seed in range(4)}
    finally:
        server.close()
    if len(set(texts)) != 1 or other == set(texts):
        yield f"serve: {texts}; with other settings of the request {other}"


def stays_mapped(limpid, path, gguf, weight_bytes):
    use = []
    for model in (path, gguf):
        server = Server(limpid, model, "--threads", "1")
        try:
            server.ask("/v1/completions", {"prompt": "1, 2, 3,", "max_tokens": 2})
            use.append(server.memory())
        finally:
            server.close()
    (in_file, in_memory), (_, usual) = use
    if in_memory > usual + 8000:
        yield f"{in_memory} KB of the folder's are in memory of its own, {usual} KB of the GGUF file's"
    if in_file * 1024 < 0.9 * weight_bytes:
        yield f"only {in_file} KB are mapped, the weights have {weight_bytes} bytes"


def keeps_the_model(limpid, path):
    shard = f"{path}/model.safetensors"
    before = os.path.getsize(shard)
    for command in (["dump", path, "--tokens", "1,2", "--logits", shard], ["run", path, "-p", "a", "-n", "1", "--trace", shard]):
        done = subprocess.run([limpid] + command, capture_output=True, text=True, timeout=600)
        if done.returncode == 0 or os.path.getsize(shard) != before:
            yield f"{command[0]} writes over a part of the model: {done.stderr}"


def chosen(limpid, folder, gguf):
    """A folder with a file and a checkpoint: asked. The checkpoint's config.json names it."""
    os.makedirs(f"{folder}/both", exist_ok=True)
    os.symlink(gguf, f"{folder}/both/model.gguf")
    for name in os.listdir(f"{folder}/mini"):
        os.symlink(f"{folder}/mini/{name}", f"{folder}/both/{name}")
    done = run([limpid, "tokenize", f"{folder}/both", "a"], status=2)
    if "config.json" not in done.stderr or "model.gguf" not in done.stderr or "2 models" not in done.stderr:
        yield f"a folder with two models: {done.stderr}"
    run([limpid, "tokenize", f"{folder}/both/config.json", "a"])
    run([limpid, "tokenize", f"{folder}/both/model.gguf", "a"])


def add_commands(checks, limpid, folder, sanitizer):
    ck = hf_folders.from_mini()
    ck.dtype("BF16", lambda name: not name.endswith("e_score_correction_bias"))
    values = hf_folders.to_gguf(ck)
    path = ck.write(f"{folder}/mini")
    model = gguf_edit.read(hf_folders.MINI_MODEL)
    for t in model.tensors:
        if t.type == gguf_edit.T_Q8_0:
            t.type, t.data = gguf_edit.T_BF16, hf_folders.bf16_bits(values[t.name]).astype("<u2").tobytes()
    gguf = write(model, f"{folder}/mini.gguf")
    weight_bytes = sum(a.data.nbytes for n, a in ck.arrays.items() if "nextn" not in n and "layers.5" not in n)
    checks.add("inspect", inspected, limpid, path, "BF16")
    checks.add("tokenize", same_tokens, limpid, path, gguf)
    checks.add("probe list", lambda: [] if "q" in run([limpid, "probe", "list", path]).stdout else ["probe list says nothing"])
    checks.add("outputs over the model", keeps_the_model, limpid, path)
    checks.add("two models in a folder", chosen, limpid, folder, gguf)
    checks.add("serve", served, limpid, path, gguf)
    checks.add("suggested settings", suggested, limpid, gguf, f"{folder}/suggests.gguf")
    if sanitizer:
        return
    checks.add("memory", stays_mapped, limpid, path, gguf, weight_bytes)
    checks.add("doctor", doctor_is_content, limpid, path, gguf)
    fp8 = hf_folders.from_mini()
    fp8.quantise("fp8")
    checks.add("inspect fp8", inspected, limpid, fp8.write(f"{folder}/mini-fp8"), "F8_E4M3")


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-hf-run-") as folder:
        add_files(checks, args.limpid, folder, args.sanitizer)
        checks.add("type 43 in a file", memory_only_type, args.limpid, f"{folder}/type.gguf")
        add_folders(checks, args.limpid, folder, args.sanitizer)
        add_commands(checks, args.limpid, folder, args.sanitizer)
        checks.finish()


if __name__ == "__main__":
    main()
