"""Faults of files: each function takes a good model (gguf_edit.Gguf) and spoils it in one way, as converters, quantisers and
downloads have done. `FAULTS` lists them with what a doctor must name."""
import struct

import numpy as np

from gguf_edit import ARR, BOOL, F32, I32, STR, T_BF16, T_F16, T_F32, T_Q8_0, U16, U32


# ---- values of tensors ----

def values(t):
    """As float32, [ne[2] or 1, ne[1] or 1, ne[0]]."""
    shape = (t.ne[2] if len(t.ne) > 2 else 1, t.ne[1] if len(t.ne) > 1 else 1, t.ne[0])
    if t.type == T_F32:
        return np.frombuffer(t.data, "<f4").reshape(shape).copy()
    if t.type == T_F16:
        return np.frombuffer(t.data, "<f2").astype("f4").reshape(shape)
    if t.type == T_BF16:
        return (np.frombuffer(t.data, "<u2").astype("u4") << 16).view("f4").reshape(shape)
    assert t.type == T_Q8_0
    blocks = np.frombuffer(t.data, np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    return (blocks["d"].astype("f4")[:, None] * blocks["q"]).reshape(shape)


def put(t, x):
    x = np.ascontiguousarray(x, "f4")
    if t.type == T_F32:
        t.data = x.tobytes()
        return
    if t.type in (T_F16, T_BF16):
        t.data = x.astype("<f2").tobytes() if t.type == T_F16 else (x.view("u4") >> 16).astype("<u2").tobytes()
        return
    assert t.type == T_Q8_0
    rows = x.reshape(-1, 32)
    d = (np.abs(rows).max(1) / 127).astype("f2")
    scale = np.where(d > 0, d, 1).astype("f4")
    blocks = np.zeros(len(rows), np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    blocks["d"] = d
    blocks["q"] = np.clip(np.rint(rows / scale[:, None]), -127, 127)
    t.data = blocks.tobytes()


def change(name, function):
    def plant(g):
        t = g.tensor(name)
        put(t, function(values(t)))
    return plant


def transposed(name):
    """Each matrix of the tensor written column by column, its shape left as it was."""
    return change(name, lambda x: np.stack([m.T.reshape(m.shape) for m in x]))


def swapped(a, b):
    def plant(g):
        s, t = g.tensor(a), g.tensor(b)
        s.data, t.data = t.data, s.data
    return plant


def experts_swapped(names, e, f):
    def plant(g):
        for name in names:
            t = g.tensor(name)
            x = values(t)
            x[[e, f]] = x[[f, e]]
            put(t, x)
    return plant


def halves_for_pairs(x, rows):
    """Rows in pairs (2i, 2i+1) put as the other style has them, (i, i + n/2); or back."""
    out = x.copy()
    n = len(rows)
    order = [rows[2 * i] for i in range(n // 2)] + [rows[2 * i + 1] for i in range(n // 2)]
    out[:, rows, :] = x[:, order, :]
    return out


def permuted_q(layer, heads=4, head=256, nope=192):
    def function(x):
        for h in range(heads):
            x = halves_for_pairs(x, list(range(h * head + nope, (h + 1) * head)))
        return x
    return change(f"blk.{layer}.attn_q_b.weight", function)


def permuted_k(layer, latent=512, rope=64):
    return change(f"blk.{layer}.attn_kv_a_mqa.weight", lambda x: halves_for_pairs(x, list(range(latent, latent + rope))))


def permuted_index_k(layer, rope=64):
    def plant(g):
        for name in ("attn_k.weight", "k_norm.weight", "k_norm.bias"):
            t = g.tensor(f"blk.{layer}.indexer.{name}")
            x = values(t)
            put(t, halves_for_pairs(x if "attn" in name else x.reshape(1, -1, 1), list(range(rope))).reshape(x.shape))
    return plant


def all_layers(function, n=5):
    def plant(g):
        for layer in range(n):
            function(layer)(g)
    return plant


def garbage(name, at, n_bytes):
    def plant(g):
        t = g.tensor(name)
        t.data = t.data[:at] + np.random.default_rng(5).bytes(n_bytes) + t.data[at + n_bytes:]
    return plant


def poke(name, at, data):
    def plant(g):
        t = g.tensor(name)
        t.data = t.data[:at] + data + t.data[at + len(data):]
    return plant


def layer_names(g, layer):
    return [t for t in g.tensors if t.name.startswith(f"blk.{layer}.")]


def layer_copied(source, to):
    def plant(g):
        for t in layer_names(g, source):
            g.tensor(t.name.replace(f"blk.{source}.", f"blk.{to}.")).data = t.data
    return plant


def layers_swapped(a, b):
    def plant(g):
        for t in layer_names(g, a):
            u = g.tensor(t.name.replace(f"blk.{a}.", f"blk.{b}."))
            t.data, u.data = u.data, t.data
    return plant


# ---- keys and names ----

def key(name, *value):
    return lambda g: g.set(name, *value)


def dropped(name):
    return lambda g: g.drop(name)


def without(name):
    def plant(g):
        g.tensors.remove(g.tensor(name))
    return plant


def without_all(part):
    def plant(g):
        g.tensors = [t for t in g.tensors if part not in t.name]
    return plant


def renamed(name, to):
    def plant(g):
        g.tensor(name).name = to
    return plant


def added(name, like):
    def plant(g):
        t = g.tensor(like).copy()
        t.name = name
        g.tensors.append(t)
    return plant


def reshaped(name, ne):
    def plant(g):
        g.tensor(name).ne = ne
    return plant


def tokens_shifted(g):
    _, element, items = g.get("tokenizer.ggml.tokens")
    g.set("tokenizer.ggml.tokens", ARR, element, items[1:] + items[:1])


def types_shifted(g):
    _, element, items = g.get("tokenizer.ggml.token_type")
    g.set("tokenizer.ggml.token_type", ARR, element, items[1:] + items[:1])


def token_cut(g):
    for name in ("tokens", "token_type"):
        _, element, items = g.get("tokenizer.ggml." + name)
        g.set("tokenizer.ggml." + name, ARR, element, items[:-1])


def control_made_normal(text):
    def plant(g):
        _, _, tokens = g.get("tokenizer.ggml.tokens")
        _, element, types = g.get("tokenizer.ggml.token_type")
        types = list(types)
        types[tokens.index(text)] = 1
        g.set("tokenizer.ggml.token_type", ARR, element, types)
    return plant


def merges_cut(g):
    _, element, items = g.get("tokenizer.ggml.merges")
    g.set("tokenizer.ggml.merges", ARR, element, items[: len(items) // 2])


def merges_reversed(g):
    _, element, items = g.get("tokenizer.ggml.merges")
    g.set("tokenizer.ggml.merges", ARR, element, items[::-1])


def template(old, new):
    def plant(g):
        text = g.value("tokenizer.chat_template")
        assert old in text, old
        g.set("tokenizer.chat_template", STR, text.replace(old, new))
    return plant


def tie(g):
    """The embedding's bytes in the output matrix."""
    g.tensor("output.weight").data = g.tensor("token_embd.weight").data


CHATML = (b"{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          b"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
NAN16, INF16 = struct.pack("<e", float("nan")), struct.pack("<e", float("inf"))
NAN32 = struct.pack("<f", float("nan"))
EXPERTS = [f"blk.3.ffn_{part}_exps.weight" for part in ("gate", "up", "down")]

# (name, base model, plant, layer or None, what the doctor must name (a regular expression over the tensor, operation or key))
FAULTS = [
    # names and shapes
    ("a norm is missing", "mini", without("blk.2.ffn_norm.weight"), 2, r"blk\.2\.ffn_norm"),
    ("the indexer's keys are missing on one layer", "mini", without("blk.1.indexer.attn_k.weight"), 1, r"blk\.1\.indexer\.attn_k"),
    ("the router's selection bias was dropped", "mini", without("blk.3.exp_probs_b.bias"), 3, r"exp_probs_b"),
    ("the selection bias was dropped on all layers", "mini", without_all("exp_probs_b"), None, r"exp_probs_b"),
    ("a tensor kept its Hugging Face name", "mini", renamed("blk.3.attn_kv_a_mqa.weight", "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"),
     3, r"kv_a_mqa|kv_a_proj"),
    ("a tensor that nobody knows", "mini", added("blk.2.attn_sinks.weight", "blk.2.attn_norm.weight"), 2, r"attn_sinks"),
    ("a matrix has the shape of its transpose", "mini", reshaped("blk.3.attn_output.weight", [256, 1024]), 3, r"blk\.3\.attn_output"),
    ("the output matrix is missing", "mini", without("output.weight"), None, r"output"),
    ("the embedding stands for the output matrix", "mini", tie, None, r"output|token_embd"),
    # values
    ("one NaN in a block scale", "mini", poke("blk.2.ffn_down_exps.weight", 34 * 700, NAN16), 2, r"blk\.2\.ffn_down_exps"),
    ("one infinite block scale", "mini", poke("blk.1.attn_output.weight", 34 * 40, INF16), 1, r"blk\.1\.attn_output"),
    ("a NaN in a norm", "golden:ds3", poke("blk.1.attn_norm.weight", 8, NAN32), 1, r"blk\.1\.attn_norm"),
    ("a NaN in a router row", "golden:dsa_sparse", poke("blk.2.ffn_gate_inp.weight", 40, NAN32), 2, r"blk\.2\.ffn_gate_inp"),
    ("an expert is all zero", "mini", change(EXPERTS[1], lambda x: np.concatenate([x[:5], 0 * x[5:6], x[6:]])), 3, r"blk\.3\.ffn_up_exps"),
    ("a matrix is all zero", "golden:llama", change("blk.1.attn_v.weight", lambda x: 0 * x), 1, r"blk\.1\.attn_v"),
    ("a matrix has constant rows", "mini", change("blk.2.attn_q_a.weight", lambda x: x[:, :, :1] + 0 * x), 2, r"blk\.2\.attn_q_a"),
    ("4 KiB of a matrix are garbage", "mini", garbage("blk.1.attn_q_b.weight", 34 * 2000, 4096), 1, r"blk\.1\.attn_q_b"),
    ("a matrix is 16 times too large", "mini", change("blk.2.attn_output.weight", lambda x: 16 * x), 2, r"blk\.2\.attn_output"),
    ("a norm is 16 times too small", "mini", change("blk.3.ffn_norm.weight", lambda x: x / 16), 3, r"blk\.3\.ffn_norm"),
    ("k_b is transposed", "mini", transposed("blk.3.attn_k_b.weight"), 3, r"blk\.3\.attn_k_b"),
    ("v_b is transposed", "mini", transposed("blk.1.attn_v_b.weight"), 1, r"blk\.1\.attn_v_b"),
    ("a square matrix is transposed", "mini", transposed("blk.2.attn_q_a.weight"), 2, r"blk\.2\.attn_q_a"),
    ("a shared expert's matrix is transposed", "mini", transposed("blk.4.ffn_down_shexp.weight"), 4, r"blk\.4\.ffn_down_shexp"),
    ("experts are swapped in one of three stacks", "mini", experts_swapped(EXPERTS[:1], 1, 6), 3, r"blk\.3\.ffn_(gate|up|down)_exps"),
    ("experts are swapped against their router", "mini", experts_swapped(EXPERTS, 2, 5), 3, r"blk\.3\.ffn_(gate|up|down)_exps|ffn_gate_inp"),
    ("gate and up are swapped", "mini", swapped("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"), 0, r"blk\.0\.ffn_(gate|up)"),
    ("two norms are swapped", "mini", swapped("blk.2.attn_norm.weight", "blk.2.ffn_norm.weight"), 2, r"blk\.2\.(attn|ffn)_norm"),
    ("a layer stands twice", "mini", layer_copied(2, 3), None, r"blk\.[23]|layer"),
    ("two layers are swapped", "mini", layers_swapped(1, 3), None, r"blk\.[13]|layer"),
    ("a matrix is negated", "mini", change("blk.2.attn_output.weight", lambda x: -x), 2, r"blk\.2\.attn_output"),
    ("the rotated rows of q are in the other order", "mini", permuted_q(2), 2, r"blk\.2\.attn_q_b"),
    ("the rotated rows of k are in the other order", "mini", permuted_k(1), 1, r"blk\.1\.attn_kv_a_mqa"),
    ("all rotated rows are in the other order", "mini", lambda g: (all_layers(permuted_q)(g), all_layers(permuted_k)(g)), None,
     r"attn_q_b|attn_kv_a_mqa|rope"),
    ("the rotated rows of the indexer's keys are in the other order", "mini", all_layers(permuted_index_k), None, r"indexer"),
    # metadata that changes the mathematics
    ("rope base 10,000 for 1,000,000", "mini", key("glm-dsa.rope.freq_base", F32, 10000.0), None, r"rope"),
    ("epsilon 0.01", "mini", key("glm-dsa.attention.layer_norm_rms_epsilon", F32, 0.01), None, r"epsilon"),
    ("softmax for sigmoid", "mini", key("glm-dsa.expert_gating_func", U32, 1), None, r"gating"),
    ("the chosen experts' weights are not normalised", "mini", key("glm-dsa.expert_weights_norm", BOOL, 0), None, r"expert_weights_norm|normalis"),
    ("the experts' scale is 1 for 2.5", "mini", key("glm-dsa.expert_weights_scale", F32, 1.0), None, r"expert_weights_scale"),
    ("one expert for four", "mini", key("glm-dsa.expert_used_count", U32, 1), None, r"expert_used_count"),
    ("layers are marked as sharing a selection that are not", "mini", key("glm-dsa.attention.indexer.types", ARR, BOOL, [1, 0, 0, 0, 0]), None,
     r"indexer"),
    ("a layer without an indexer is marked as having one", "golden:dsa_shared", key("glm-dsa.attention.indexer.types", ARR, BOOL, [1] * 8),
     None, r"indexer"),
    ("top-k 16 for 256", "mini", key("glm-dsa.attention.indexer.top_k", U32, 16), None, r"top_k|indexer"),
    ("the YaRN factor is missing", "golden:ds3", dropped("deepseek2.rope.scaling.factor"), None, r"rope\.scaling|yarn"),
    ("YaRN's softmax factor is missing", "golden:ds3", dropped("deepseek2.rope.scaling.yarn_log_multiplier"), None, r"yarn_log_multiplier"),
    ("a key has another architecture's prefix", "mini",
     lambda g: (dropped("glm-dsa.rope.freq_base")(g), key("deepseek2.rope.freq_base", F32, 1e6)(g)), None, r"rope\.freq_base|rope base"),
    # tokenizer and template
    ("the vocabulary is off by one", "mini", tokens_shifted, None, r"tokens"),
    ("the vocabulary lacks its last token", "mini", token_cut, None, r"token"),
    ("the token types are off by one", "mini", types_shifted, None, r"token_type"),
    ("a control token is typed as text", "mini", control_made_normal(b"<|user|>"), None, r"token_type|<\|user\|>"),
    ("half of the merges are missing", "mini", merges_cut, None, r"merges"),
    ("the merges are in reverse", "mini", merges_reversed, None, r"merges"),
    ("another pre-tokenizer", "mini", key("tokenizer.ggml.pre", STR, b"gpt-2"), None, r"tokenizer\.ggml\.pre"),
    ("no pre-tokenizer is named", "mini", dropped("tokenizer.ggml.pre"), None, r"tokenizer\.ggml\.pre"),
    ("the end token is an ordinary word", "mini", key("tokenizer.ggml.eos_token_id", U32, 300), None, r"eos"),
    ("the template lacks its prefix", "mini", template(b"[gMASK]<sop>", b""), None, r"chat_template"),
    ("the template is of another family", "mini", key("tokenizer.chat_template", STR, CHATML), None, r"chat_template"),
    ("the template does not parse", "mini", template(b"{%- if tools -%}", b"{%- if -%}"), None, r"chat_template"),
]


# ---- containers: files, not models ----

def parts(g, n=3):
    """The bytes of a split set."""
    out = []
    per = (len(g.tensors) + n - 1) // n
    for i in range(n):
        part = g.copy()
        part.tensors = [t.copy() for t in g.tensors[i * per:(i + 1) * per]]
        if i:
            part.keys = []
        part.set("split.no", U16, i)
        part.set("split.count", U16, n)
        part.set("split.tensors.count", I32, len(g.tensors))
        out.append(part.bytes())
    return out


def part_name(i, n=3):
    return f"m-{i + 1:05d}-of-{n:05d}.gguf"


def container_faults(good, other):
    """(name, {file: bytes}, which file to open, what must be named)"""
    whole, p, q = good.bytes(), parts(good), parts(other)
    named = {part_name(i): part for i, part in enumerate(p)}
    cut = dict(named)
    cut[part_name(1)] = p[1][: len(p[1]) // 2]
    swap = dict(named)
    swap[part_name(1)], swap[part_name(2)] = p[2], p[1]
    lost = {k: v for k, v in named.items() if k != part_name(2)}
    mixed = dict(named)
    mixed[part_name(1)] = q[1]
    return [
        ("the file is cut", {"m.gguf": whole[: len(whole) * 2 // 3]}, "m.gguf", r"m\.gguf|blk\.|tensor"),
        ("a part of the set is cut", cut, part_name(0), part_name(1)),
        ("two parts of the set are swapped", swap, part_name(0), r"m-0000[23]"),
        ("a part of the set is missing", lost, part_name(0), part_name(2)),
        ("a part of the set is of another model", mixed, part_name(0), part_name(1) + r"|blk\."),
        ("parts were joined with cat", {"m.gguf": p[0] + p[1] + p[2]}, "m.gguf", r"m\.gguf|split"),
    ]
