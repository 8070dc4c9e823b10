#!/usr/bin/env python3
"""The doctor on files with one fault each in their container, names, metadata, vocabulary or template: it
must name that one and nothing else; and on good files it must find nothing.

    doctor_file.py LIMPID [--sanitizer] [--only TEXT]

A row is a name, a function that makes the file from a good one, and what the fault must name (`op` of
the report; of a tensor with its layer).
"""
import json
import os
import subprocess
import sys
import tempfile

from gguf_edit import ARR, BOOL, F32, I32, STR, T_I8, T_I32, U16, U32, read
from harness import GOLDEN, MINI_MODEL, Checks, arguments

ROWS = []


def row(name, what, base="mini", layer=None):
    """A function(model) that changes it, or returns {file name: bytes} of which the first is opened."""
    def add(function):
        ROWS.append((name, what, base, layer, function))
        return function
    return add


def key(model, suffix):
    return model.value("general.architecture").decode() + "." + suffix


def setter(name, what, suffix, *value, base="mini"):
    row(name, what, base)(lambda m: m.set(key(m, suffix) if not suffix.startswith(("general.", "tokenizer.")) else suffix, *value))


def dropper(name, what, *suffixes, base="mini"):
    def drop(m):
        for suffix in suffixes:
            m.drop(suffix if suffix.startswith(("general.", "tokenizer.")) else key(m, suffix))
    row(name, what, base)(drop)


def without(m, test):
    m.tensors = [t for t in m.tensors if not test(t.name)]


# ---- the container ----

@row("cut off", "model.gguf")
def _(m):
    return {"model.gguf": m.bytes()[:-5000]}


@row("trailing data", "model.gguf")
def _(m):
    return {"model.gguf": m.bytes() + b"x" * 4096}


@row("git LFS pointer", "model.gguf")
def _(m):
    return {"model.gguf": b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 23938976\n"}


@row("not downloaded: zeros", "model.gguf")
def _(m):
    return {"model.gguf": bytes(100000)}


def parts(m, n=3):
    """The bytes of n parts of a set."""
    out = []
    total = len(m.tensors)
    for i in range(n):
        part = m.copy()
        if i:
            part.keys = []
        part.tensors = m.tensors[total * i // n:total * (i + 1) // n]
        part.set("split.no", U16, i)
        part.set("split.count", U16, n)
        part.set("split.tensors.count", I32, total)
        out.append(part.bytes())
    return out


def named(list_, order=(0, 1, 2)):
    return {f"m-{i + 1:05}-of-{len(list_):05}.gguf": list_[k] for i, k in enumerate(order) if k is not None}


@row("parts joined by cat", "model.gguf", "dsa_dense")
def _(m):
    a, b, c = parts(m)
    return {"model.gguf": a + b + c}


row("a part is missing", "m-00002-of-00003.gguf", "dsa_dense")(lambda m: named(parts(m), (0, None, 2)))
row("two parts swapped", "m-00002-of-00003.gguf", "dsa_dense")(lambda m: named(parts(m), (0, 2, 1)))
row("the first part swapped", "m-00001-of-00003.gguf", "dsa_dense")(lambda m: named(parts(m), (1, 0, 2)))
row("a part doubled", "m-00003-of-00003.gguf", "dsa_dense")(lambda m: named(parts(m), (0, 1, 1)))


@row("a part cut off", "m-00002-of-00003.gguf", "dsa_dense")
def _(m):
    a, b, c = parts(m)
    return named([a, b[:-3000], c])


@row("a part of another model", ("m-00002-of-00003.gguf", "m-00001-of-00003.gguf"), "dsa_dense")
def _(m):
    other = read(os.path.join(GOLDEN, "dsa_sparse.gguf"))
    a, _, c = parts(m)
    return named([a, parts(other)[1], c])


# ---- names and tensors ----

def rename(m, old, new):
    m.tensor(old).name = new


row("a Hugging Face name", "model.layers.3.self_attn.q_b_proj.weight", layer=3)(
    lambda m: rename(m, "blk.3.attn_q_b.weight", "model.layers.3.self_attn.q_b_proj.weight"))
row("another spelling", "blk.2.attn_kv_a.weight", layer=2)(
    lambda m: rename(m, "blk.2.attn_kv_a_mqa.weight", "blk.2.attn_kv_a.weight"))
row("half a Hugging Face name", "blk.4.mlp.gate.e_score_correction_bias", layer=4)(
    lambda m: rename(m, "blk.4.exp_probs_b.bias", "blk.4.mlp.gate.e_score_correction_bias"))
row("a tensor is missing", "blk.3.attn_v_b.weight", layer=3)(lambda m: without(m, lambda n: n == "blk.3.attn_v_b.weight"))
row("a routing bias is missing", "blk.2.exp_probs_b.bias", layer=2)(lambda m: without(m, lambda n: n == "blk.2.exp_probs_b.bias"))
row("all routing biases are missing", "blk.1.exp_probs_b.bias", layer=1)(lambda m: without(m, lambda n: "exp_probs_b" in n))
row("a layer is missing", "blk.2", layer=2)(lambda m: without(m, lambda n: n.startswith("blk.2.")))
row("an indexer is missing", "blk.2.indexer.attn_q_b.weight", "dsa_sparse", 2)(
    lambda m: without(m, lambda n: n == "blk.2.indexer.attn_q_b.weight"))
row("a whole indexer is missing", "blk.2.indexer", "dsa_sparse", 2)(lambda m: without(m, lambda n: n.startswith("blk.2.indexer.")))
row("all indexers are missing", "blk.0.indexer", "dsa_dense", 0)(lambda m: without(m, lambda n: ".indexer." in n))
row("an unknown tensor", "blk.1.attn_sinks.weight", layer=1)(
    lambda m: m.tensors.append(renamed_copy(m, "blk.1.attn_norm.weight", "blk.1.attn_sinks.weight")))
row("the head is missing", "output.weight")(lambda m: without(m, lambda n: n == "output.weight"))


def renamed_copy(m, old, new):
    t = m.tensor(old).copy()
    t.name = new
    return t


@row("the head is the embedding", "output.weight")
def _(m):
    m.tensor("output.weight").data = m.tensor("token_embd.weight").data


@row("a matrix on its side", "blk.1.attn_q_a.weight", "dsa_shared", 1)
def _(m):
    m.tensor("blk.1.attn_q_a.weight").ne.reverse()


@row("a matrix of integers", "blk.1.attn_q_a.weight", "dsa_dense", 1)
def _(m):
    t = m.tensor("blk.1.attn_q_a.weight")
    t.type, t.data = T_I8, t.data[:len(t.data) // 2]


@row("a norm of integers", "blk.1.attn_norm.weight", "dsa_dense", 1)
def _(m):
    m.tensor("blk.1.attn_norm.weight").type = T_I32


# ---- metadata ----

ARCH = {"mini": "glm-dsa", "dsa_dense": "glm-dsa", "dsa_sparse": "glm-dsa", "dsa_shared": "glm-dsa", "ds3": "deepseek2",
        "glm45": "glm4moe", "qwen3": "qwen3", "llama": "llama", "ds2_lite": "deepseek2", "glm47_flash": "deepseek2"}


def changed(suffix, *value, base="mini", name=None):
    setter(name or f"{suffix} is {value[-1]}", ARCH[base] + "." + suffix, suffix, *value, base=base)


def dropped(suffix, base="mini"):
    dropper(f"{suffix} is missing in {base}", ARCH[base] + "." + suffix, suffix, base=base)


for suffix, value in (("embedding_length", 320), ("attention.kv_lora_rank", 256), ("attention.head_count", 8), ("expert_count", 16),
                      ("attention.key_length_mla", 128), ("attention.value_length_mla", 128), ("rope.dimension_count", 32),
                      ("attention.q_lora_rank", 128), ("attention.indexer.key_length", 64), ("attention.indexer.head_count", 8),
                      ("feed_forward_length", 512), ("expert_feed_forward_length", 128), ("leading_dense_block_count", 2),
                      ("leading_dense_block_count", 0), ("block_count", 7), ("block_count", 5), ("nextn_predict_layers", 0),
                      ("expert_shared_count", 2), ("expert_used_count", 9), ("attention.indexer.top_k", 0), ("context_length", 0),
                      ("expert_gating_func", 1), ("expert_gating_func", 7), ("vocab_size", 3583)):
    changed(suffix, U32, value)
changed("attention.head_count_kv", U32, 4, base="qwen3")
changed("attention.key_length", U32, 8, base="llama")
changed("expert_weights_norm", BOOL, 0)
changed("attention.layer_norm_rms_epsilon", F32, 1e-3)
changed("attention.layer_norm_rms_epsilon", F32, 1e-11)
changed("rope.freq_base", F32, 100.0)
changed("rope.scaling.yarn_beta_fast", F32, 0.5, base="ds3")
for suffix, base in (("expert_shared_count", "mini"), ("nextn_predict_layers", "mini"), ("nextn_predict_layers", "glm45"),
                     ("leading_dense_block_count", "mini"), ("rope.dimension_count", "glm45"), ("expert_weights_norm", "ds3"),
                     ("rope.scaling.yarn_log_multiplier", "ds3"), ("rope.scaling.yarn_log_multiplier", "ds2_lite"),
                     ("rope.scaling.type", "ds3"), ("rope.scaling.factor", "ds3"), ("attention.kv_lora_rank", "mini"),
                     ("attention.key_length_mla", "mini"), ("expert_count", "mini")):
    dropped(suffix, base)
dropper("no scaling at all", "deepseek2.rope.scaling.type", *("rope.scaling." + k for k in (
    "type", "factor", "original_context_length", "yarn_beta_fast", "yarn_beta_slow", "yarn_log_multiplier")), base="ds3")
setter("blocks of version 1", "general.quantization_version", "general.quantization_version", U32, 1)
setter("all layers full", "glm-dsa.attention.indexer.types", "attention.indexer.types", ARR, BOOL, [1] * 8, base="dsa_shared")
setter("a full layer said to share", "glm-dsa.attention.indexer.types", "attention.indexer.types", ARR, BOOL,
       [1, 1, 1, 0, 0, 0, 0, 0], base="dsa_shared")


@row("a key of another architecture", "deepseek2.rope.freq_base")
def _(m):
    m.keys[m.index("glm-dsa.rope.freq_base")][0] = "deepseek2.rope.freq_base"


@row("one token too few", "tokenizer.ggml.tokens")
def _(m):
    m.value("tokenizer.ggml.tokens").pop()
    m.value("tokenizer.ggml.token_type").pop()


@row("one row of the embedding too few", "token_embd.weight", "dsa_dense")
def _(m):
    t = m.tensor("token_embd.weight")
    t.ne[1] -= 1
    t.data = t.data[:len(t.data) // (t.ne[1] + 1) * t.ne[1]]


# ---- tokenizer ----

for pre in ("llama-bpe", "default", "smollm", "qwen2", "deepseek-v3", "unheard-of"):
    setter(f"pre-tokenizer {pre}", "tokenizer.ggml.pre", "tokenizer.ggml.pre", STR, pre.encode())
dropper("no pre-tokenizer", "tokenizer.ggml.pre", "tokenizer.ggml.pre")
setter("pre-tokenizer glm4 for Llama", "tokenizer.ggml.pre", "tokenizer.ggml.pre", STR, b"glm4", base="llama")
setter("end one too high", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_id", U32, 3549)
setter("end is a word", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_id", U32, 500)
setter("end out of range", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_id", U32, 100000)
setter("turn's end is no end", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eot_token_id", U32, 3554)
setter("beginning is a word", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.bos_token_id", U32, 7)


@row("tokens shifted by one", "tokenizer.ggml.tokens")
def _(m):
    tokens = m.value("tokenizer.ggml.tokens")
    tokens.insert(0, b"!!!!!!!!!")
    tokens.pop()
    types = m.value("tokenizer.ggml.token_type")
    types.insert(0, 1)
    types.pop()


@row("types shifted by one", "tokenizer.ggml.token_type")
def _(m):
    types = m.value("tokenizer.ggml.token_type")
    types.append(types.pop(0))


@row("types of another list", "tokenizer.ggml.token_type")
def _(m):
    types = m.value("tokenizer.ggml.token_type")
    types[:] = [1] * len(types)


def retype(text):
    def change(m):
        at = m.value("tokenizer.ggml.tokens").index(text.encode())
        m.value("tokenizer.ggml.token_type")[at] = 1
    row(f"{text} is ordinary text", text)(change)


retype("<|user|>")
retype("[gMASK]")
retype("<|assistant|>")


def merges(name, change):
    def apply(m):
        at = m.index("tokenizer.ggml.merges")
        m.keys[at][1] = (ARR, STR, change(m.value("tokenizer.ggml.merges")))
    row(name, "tokenizer.ggml.merges")(apply)


merges("half of the merges", lambda list_: list_[:len(list_) // 2])
merges("the last merges cut off", lambda list_: list_[:-60])
merges("merges in reverse", lambda list_: list_[::-1])
merges("a merge without its space", lambda list_: [list_[0].replace(b" ", b"")] + list_[1:])
dropper("no merges", "tokenizer.ggml.merges", "tokenizer.ggml.merges")


@row("two tokens of one text", "tokenizer.ggml.tokens")
def _(m):
    tokens = m.value("tokenizer.ggml.tokens")
    tokens[600] = tokens[601]


@row("a byte is missing", "tokenizer.ggml.tokens")
def _(m):
    tokens = m.value("tokenizer.ggml.tokens")
    tokens[tokens.index(b"e")] = b"e_e_e"


# ---- chat template ----

TEMPLATE = "tokenizer.chat_template"
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
PLAIN_GLM = ("{{ '[gMASK]<sop>' }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")


def template(name, text, what=TEMPLATE, base="mini"):
    def change(m):
        m.set(TEMPLATE, STR, text.encode())
    row("template " + name, what, base)(change)


template("without its prefix", PLAIN_GLM.replace("[gMASK]<sop>", ""))
template("with half its prefix", PLAIN_GLM.replace("<sop>", ""))
template("of another family", CHATML)
template("with an unknown role", PLAIN_GLM.replace("'<|' + m.role + '|>'", "'<|' + m.role + '_x|>'"))
template("that does not end", PLAIN_GLM + "{% for a in range(100000) %}{% for b in range(100000) %}{{ a }}{% endfor %}{% endfor %}")
template("with a fault", PLAIN_GLM + "{% if %}")
template("that raises", "{{ raise_exception('no') }}")
template("that leaves out the user", PLAIN_GLM.replace("m.content", "(m.content if m.role != 'user' else '')"))
template("that leads to no answer", PLAIN_GLM.split("{% if add")[0])
template("that mixes speakers", PLAIN_GLM.replace("m.role +", "'user' +"))
template("that swaps speakers", PLAIN_GLM.replace("m.role +", "{'user': 'assistant', 'assistant': 'user'}.get(m.role, m.role) +"))
LLAMA = ("{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content + '<|eot_id|>' }}"
         "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
template("that ends with no end", LLAMA.replace("<|eot_id|>", "<|end_header_id|>"), "<|end_header_id|>", "llama")
template("that begins twice", LLAMA.replace("{{ bos_token }}", "{{ bos_token + bos_token }}"), base="llama")


# ---- running ----

GOOD = {"right GLM template": ("dsa_dense", lambda m: m.set(TEMPLATE, STR, PLAIN_GLM.encode())),
        "right Llama template": ("llama", lambda m: m.set(TEMPLATE, STR, LLAMA.encode())),
        "right ChatML template": ("qwen2", lambda m: m.set(TEMPLATE, STR, CHATML.encode())),
        "parts": ("dsa_dense", lambda m: named(parts(m)))}


def base_path(name):
    return MINI_MODEL if name == "mini" else os.path.join(GOLDEN, name + ".gguf")


def write(folder, made):
    for name, data in made.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    return os.path.join(folder, next(iter(made)))


def make(folder, base, change):
    m = read(base_path(base))
    made = change(m)
    return write(folder, made if isinstance(made, dict) else {"model.gguf": m.bytes()})


def examine(limpid, path):
    done = subprocess.run([limpid, "doctor", path, "--quick", "--until", "tokens", "--json", "-"], capture_output=True, timeout=600)
    text = done.stdout.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        raise AssertionError(f"exit {done.returncode}, no JSON: {text[:200]} {done.stderr.decode()[:2000]}")


def faults_of(limpid, folder, base, change):
    report = examine(limpid, make(folder, base, change))
    return [f for f in report["faults"] if f["stage"] in ("file", "tokens") and not f.get("follows")]


def check_row(limpid, name, what, base, layer, change):
    with tempfile.TemporaryDirectory(prefix="limpid-doctor-") as folder:
        found = faults_of(limpid, folder, base, change)
    if len(found) != 1 or found[0]["op"] not in ((what,) if isinstance(what, str) else what):
        yield f"named {[f['op'] + ': ' + f['advice'] for f in found]}, expected {what} alone"
    elif layer is not None and found[0]["layer"] != layer:
        yield f"layer {found[0]['layer']}, expected {layer}"


def check_good(limpid, base, change):
    with tempfile.TemporaryDirectory(prefix="limpid-doctor-") as folder:
        found = faults_of(limpid, folder, base, change)
    if found:
        yield f"accused {[f['op'] + ': ' + f['advice'] for f in found]}"


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    for name, what, base, layer, change in ROWS[::8] if args.sanitizer else ROWS:
        checks.add(name, lambda r=(name, what, base, layer, change): check_row(args.limpid, *r))
    for name in ["mini"] + sorted(f[:-5] for f in os.listdir(GOLDEN) if f.endswith(".gguf")):
        checks.add("good " + name, lambda n=name: check_good(args.limpid, n, lambda m: None))
    for name, (base, change) in GOOD.items():
        checks.add("good " + name, lambda b=base, c=change: check_good(args.limpid, b, c))
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
