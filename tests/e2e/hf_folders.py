"""Hugging Face model folders, made in Python from the GGUF files of the tests.

A `Checkpoint` holds what such a folder holds: configurations as dicts, arrays by name. `from_golden` and
`from_mini` make one by the inverse of the usual conversion, written here in numpy and independent of
limpid's: experts apart, kv_b_proj whole again, llama's rotary rows as they were, tokenizer.json from
the tokenizer keys. Methods change its spelling (stacked experts, older configurations) or its precision
(FP8, NVFP4, INT4); `write` puts it into a folder.

    ck = from_golden("ds3")
    ck.write(path, shards=3)

    ck = from_golden("dsa_dense")
    exact = ck.quantise("fp8")       # {name: float32 array}: what the folder now means
    ck.write(path)
    to_gguf(ck, exact)               # {GGUF name: float32 array}: what a conversion must hold
"""
import copy
import json
import os
import re
import struct

import gguf_edit
from harness import MINI_MODEL, Golden, np
from tokenizers_from_gguf import IGNORE_MERGES, PATTERNS

CLASSES = {"glm_moe_dsa": "GlmMoeDsaForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
           "deepseek_v32": "DeepseekV32ForCausalLM", "glm4_moe": "Glm4MoeForCausalLM", "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
           "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# -- numbers ---------------------------------------------------------------------------------------

STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E8M0": "u1", "U8": "u1", "I8": "i1", "I32": "<i4", "I64": "<i8"}


def bf16_bits(x):
    """Nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded_bf16(x):
    return bf16_values(bf16_bits(x)).reshape(np.shape(x))


def _e4m3_table():
    table = np.zeros(256, np.float32)
    for b in range(256):
        exponent, mantissa = (b >> 3) & 15, b & 7
        value = mantissa * 2.0 ** -9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        table[b] = np.nan if b & 0x7F == 0x7F else -value if b & 0x80 else value
    return table


E4M3 = _e4m3_table()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def nearest(table, x):
    """Index of the entry of the (not negative, ascending) table that lies nearest to each of |x|."""
    at = np.clip(np.searchsorted(table, x), 1, len(table) - 1)
    return np.where(x - table[at - 1] <= table[at] - x, at - 1, at).astype(np.uint8)


def e4m3_bits(x):
    return nearest(E4M3[:127], np.abs(x)) | np.where(np.signbit(x), 0x80, 0).astype(np.uint8)


class Array:
    """dtype: its name in safetensors; data: a numpy array of the stored type."""

    def __init__(self, dtype, data):
        self.dtype, self.data = dtype, np.ascontiguousarray(data, STORED[dtype]).reshape(np.shape(data))

    def values(self):
        if self.dtype == "BF16":
            return bf16_values(self.data).reshape(self.data.shape)
        return E4M3[self.data] if self.dtype == "F8_E4M3" else self.data.astype(np.float32)


def stored(x, dtype):
    x = np.asarray(x, np.float32)
    return Array(dtype, bf16_bits(x).reshape(x.shape) if dtype == "BF16" else x)


# -- GGUF tensors ----------------------------------------------------------------------------------

def tensor_values(t):
    """float32, row-major (outermost axis first)."""
    shape = t.ne[::-1]
    if t.type == gguf_edit.T_F32:
        return np.frombuffer(t.data, "<f4").reshape(shape).copy()
    if t.type == gguf_edit.T_F16:
        return np.frombuffer(t.data, "<f2").astype(np.float32).reshape(shape)
    if t.type == gguf_edit.T_BF16:
        return bf16_values(np.frombuffer(t.data, "<u2")).reshape(shape)
    assert t.type == gguf_edit.T_Q8_0, t.type
    blocks = np.frombuffer(t.data, np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    return (blocks["d"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)).reshape(shape)


def split_halves(x, n_heads):
    """llama: rows (j, i) of a head -> (i, j), i < 2: adjacent pairs to halves."""
    return x.reshape(n_heads, x.shape[0] // n_heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def adjacent_pairs(x, n_heads):
    return x.reshape(n_heads, 2, x.shape[0] // n_heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


# GGUF stem -> name in the checkpoint. "*": one array for each expert.
STEMS = {
    "attn_norm.weight": "input_layernorm.weight", "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_a.weight": "self_attn.q_a_proj.weight", "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
    "attn_q_b.weight": "self_attn.q_b_proj.weight", "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
    "indexer.attn_q_b.weight": "self_attn.indexer.wq_b.weight", "indexer.attn_k.weight": "self_attn.indexer.wk.weight",
    "indexer.k_norm.weight": "self_attn.indexer.k_norm.weight", "indexer.k_norm.bias": "self_attn.indexer.k_norm.bias",
    "indexer.proj.weight": "self_attn.indexer.weights_proj.weight",
    "attn_q.weight": "self_attn.q_proj.weight", "attn_k.weight": "self_attn.k_proj.weight", "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias", "attn_k.bias": "self_attn.k_proj.bias", "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight", "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight", "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    "ffn_gate_exps.weight": "mlp.experts.*.gate_proj.weight", "ffn_up_exps.weight": "mlp.experts.*.up_proj.weight",
    "ffn_down_exps.weight": "mlp.experts.*.down_proj.weight",
    "ffn_gate_shexp.weight": "mlp.shared_experts.gate_proj.weight", "ffn_up_shexp.weight": "mlp.shared_experts.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_experts.down_proj.weight",
    "nextn.eh_proj.weight": "eh_proj.weight", "nextn.enorm.weight": "enorm.weight", "nextn.hnorm.weight": "hnorm.weight",
    "nextn.shared_head_norm.weight": "shared_head.norm.weight", "nextn.shared_head_head.weight": "shared_head.head.weight",
    "nextn.embed_tokens.weight": "embed_tokens.weight"}
GLOBALS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")


def arrays_of(tensors, config):
    """{GGUF name: float32} -> {name in the checkpoint: float32}."""
    out, heads = {}, {"attn_q": config["num_attention_heads"], "attn_k": config.get("num_key_value_heads")}
    for name, x in tensors.items():
        if name in GLOBALS:
            out[GLOBALS[name]] = x
            continue
        block, stem = BLOCK.fullmatch(name).groups()
        p = f"model.layers.{block}."
        if stem == "attn_k_b.weight":  # [H, latent, nope], and v_b [H, v, latent]
            v_b = tensors[f"blk.{block}.attn_v_b.weight"]
            out[p + "self_attn.kv_b_proj.weight"] = np.concatenate([x.transpose(0, 2, 1), v_b], axis=1).reshape(-1, x.shape[1])
        elif "*" in STEMS.get(stem, ""):
            for e, one in enumerate(x):
                out[p + STEMS[stem].replace("*", str(e))] = one
        elif stem != "attn_v_b.weight":
            if config["model_type"] == "llama" and stem.split(".")[0] in heads:
                x = split_halves(x, heads[stem.split(".")[0]])
            out[p + STEMS[stem]] = x
    return out


def to_gguf(ck, exact=None, nextn=True):
    """The tensors, float32, that a conversion of the checkpoint must hold. exact: values in place of those
    of ck.arrays (what `quantise` gave)."""
    c, out, experts = ck.config, {}, {}
    values = exact or {n: a.values() for n, a in ck.arrays.items()}
    back = {v: k for k, v in STEMS.items()}
    back["post_attention_layernorm.weight"] = "post_attention_norm.weight" if c["model_type"] == "glm4_moe" else "ffn_norm.weight"
    for name, x in values.items():
        found = LAYER.fullmatch(name)
        if not found:
            out[{v: k for k, v in GLOBALS.items()}[name]] = x
            continue
        layer, stem = found.groups()
        p = f"blk.{layer}."
        if int(layer) >= c["num_hidden_layers"] and not nextn:
            continue
        expert = re.fullmatch(r"mlp\.experts\.(\d+)\.(\w+)_proj\.weight", stem)
        if expert:
            experts.setdefault(p + f"ffn_{expert[2]}_exps.weight", {})[int(expert[1])] = x
        elif re.fullmatch(r"mlp\.experts\.gate_up_proj(\.weight)?", stem):
            half = x.shape[1] // 2
            out[p + "ffn_gate_exps.weight"], out[p + "ffn_up_exps.weight"] = x[:, :half], x[:, half:]
        elif re.fullmatch(r"mlp\.experts\.down_proj(\.weight)?", stem):
            out[p + "ffn_down_exps.weight"] = x
        elif stem == "self_attn.kv_b_proj.weight":
            whole = x.reshape(c["num_attention_heads"], c["qk_nope_head_dim"] + c["v_head_dim"], -1)
            out[p + "attn_k_b.weight"] = whole[:, :c["qk_nope_head_dim"]].transpose(0, 2, 1)
            out[p + "attn_v_b.weight"] = whole[:, c["qk_nope_head_dim"]:]
        else:
            if c["model_type"] == "llama" and re.match(r"self_attn\.[qk]_proj", stem):
                x = adjacent_pairs(x, c["num_attention_heads" if ".q_proj" in stem else "num_key_value_heads"])
            out[p + back[stem]] = x
    for name, matrices in experts.items():
        out[name] = np.stack([matrices[e] for e in range(len(matrices))])
    return {n: np.ascontiguousarray(x, np.float32) for n, x in out.items()}


# -- the folder ------------------------------------------------------------------------------------

class Checkpoint:
    def __init__(self, config, arrays):
        self.config, self.arrays = config, arrays  # dict, {name: Array}
        self.generation_config = self.tokenizer = self.tokenizer_config = self.chat_template = None

    def copy(self):
        return copy.deepcopy(self)

    # -- spelling

    def stack_experts(self, suffix=""):
        """As transformers 5 saves them: mlp.experts.gate_up_proj [E, 2 I, D], down_proj [E, D, I]."""
        found = {}
        for name in list(self.arrays):
            m = re.fullmatch(r"(.*\.mlp\.experts\.)(\d+)\.(gate|up|down)_proj\.weight", name)
            if m:
                found.setdefault(m[1], {})[m[3], int(m[2])] = self.arrays.pop(name)
        for prefix, parts in found.items():
            n = 1 + max(e for _, e in parts)
            dtype = parts["down", 0].dtype

            def stack(of):
                return np.stack([of(e) for e in range(n)])
            self.arrays[prefix + "gate_up_proj" + suffix] = Array(
                dtype, stack(lambda e: np.concatenate([parts["gate", e].data, parts["up", e].data])))
            self.arrays[prefix + "down_proj" + suffix] = Array(dtype, stack(lambda e: parts["down", e].data))

    def older_config(self):
        """rope_theta and rope_scaling at the top, torch_dtype: transformers 4."""
        c = self.config
        rope = c.pop("rope_parameters")
        c["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            c["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        c["rope_scaling"] = None if kind == "default" else dict(type=kind, **rope)
        if "dtype" in c:
            c["torch_dtype"] = c.pop("dtype")
        if "mlp_layer_types" in c:
            c["first_k_dense_replace"] = c.pop("mlp_layer_types").count("dense")

    def prefix(self, before, after):
        self.arrays = {after + n[len(before):] if n.startswith(before) else n: a for n, a in self.arrays.items()}

    def dtype(self, dtype, only=lambda name: True):
        for name, a in self.arrays.items():
            if only(name):
                self.arrays[name] = stored(a.values(), dtype)

    # -- precision

    def is_linear(self, name):
        """Matrices that published quantised checkpoints quantise: those of attention and FFN."""
        return (re.search(r"layers\.\d+\.(self_attn|mlp)\..*_proj(_with_mqa)?\.weight$|indexer\.w(q_b|k)\.weight$", name) is not None
                and self.arrays[name].data.ndim == 2)

    def quantise(self, scheme, only=None, block=128, group=None, seed=1):
        """scheme: fp8 (DeepSeek), fp8-channel (compressed-tensors), nvfp4 (ModelOptimizer), nvfp4-pack
        (compressed-tensors), int4 (compressed-tensors, Kimi K2 Thinking). Returns the float32 values
        that the arrays then have, by the names of the plain arrays."""
        exact, rng = {}, np.random.default_rng(seed)
        for name in list(self.arrays):
            values = self.arrays[name].values()
            exact[name] = values
            if not self.is_linear(name) or (only and not only(name)):
                continue
            stem = name[:-len(".weight")]
            arrays, exact[name] = QUANTISERS[scheme](values, rng, block, group)
            del self.arrays[name]
            for suffix, array in arrays.items():
                self.arrays[stem + suffix] = array
        self.config["quantization_config"] = copy.deepcopy(CONFIGS[scheme])
        return exact

    # -- writing

    def write(self, path, shards=1, unaligned=False):
        os.makedirs(path, exist_ok=True)
        for name, value in (("config", self.config), ("generation_config", self.generation_config),
                            ("tokenizer", self.tokenizer), ("tokenizer_config", self.tokenizer_config)):
            if value is not None:
                with open(os.path.join(path, name + ".json"), "w", encoding="utf-8") as f:
                    json.dump(value, f, ensure_ascii=False, indent=2 if name != "tokenizer" else None)
        if self.chat_template is not None:
            with open(os.path.join(path, "chat_template.jinja"), "w", encoding="utf-8") as f:
                f.write(self.chat_template)
        names = sorted(self.arrays)
        if shards == 1:
            write_safetensors(os.path.join(path, "model.safetensors"), self.arrays, unaligned)
            return path
        index = {}
        for i in range(shards):
            file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
            part = names[len(names) * i // shards:len(names) * (i + 1) // shards]
            write_safetensors(os.path.join(path, file), {n: self.arrays[n] for n in part}, unaligned)
            index.update((n, file) for n in part)
        total = sum(a.data.nbytes for a in self.arrays.values())
        with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": index}, f)
        return path


def write_safetensors(path, arrays, unaligned=False):
    """unaligned: the data begins at an odd place."""
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(arrays):
        a = arrays[name]
        head[name] = {"dtype": a.dtype, "shape": list(a.data.shape), "data_offsets": [at, at + a.data.nbytes]}
        at += a.data.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 + (1 if unaligned else 0))
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(arrays):
            f.write(arrays[name].data.tobytes())


# -- quantisers: float32 [out, in] -> ({suffix: Array}, the values they mean) ----------------------

def _blocks(x, rows, columns):
    """The largest magnitude in each block; and a function that spreads one value per block over x."""
    n, m = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    padded = np.zeros((n * rows, m * columns), np.float32)
    padded[:x.shape[0], :x.shape[1]] = np.abs(x)
    top = padded.reshape(n, rows, m, columns).max(axis=(1, 3))

    def spread(s):
        return np.repeat(np.repeat(s, rows, 0), columns, 1)[:x.shape[0], :x.shape[1]]
    return top, spread


def fp8(x, _, block, __):
    top, spread = _blocks(x, block, block)
    scale = (np.maximum(top, 1e-12) / 448).astype(np.float32)
    bits = e4m3_bits(x / spread(scale))
    return {".weight": Array("F8_E4M3", bits), ".weight_scale_inv": Array("F32", scale)}, E4M3[bits] * spread(scale)


def fp8_channel(x, _, __, ___):
    scale = rounded_bf16(np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-12) / 448)
    bits = e4m3_bits(np.clip(x / scale, -448, 448))
    return {".weight": Array("F8_E4M3", bits), ".weight_scale": stored(scale, "BF16")}, E4M3[bits] * scale


def _nvfp4(x):
    """Scales of 16 values as E4M3, the second factor of the matrix, and the packed nibbles."""
    assert x.shape[1] % 16 == 0
    second = np.float32(np.abs(x).max() / (6 * 448))
    top, spread = _blocks(x, 1, 16)
    scale_bits = np.maximum(e4m3_bits(np.minimum(top / 6 / second, 448)), 1)
    scale = E4M3[scale_bits]
    y = x / (spread(scale) * second)
    nibbles = nearest(E2M1[:8], np.minimum(np.abs(y), 6)) | np.where(np.signbit(y), 8, 0).astype(np.uint8)
    return nibbles[:, 0::2] | nibbles[:, 1::2] << 4, scale_bits, second, E2M1[nibbles] * spread(scale)


def nvfp4(x, rng, _, __):
    packed, scale, second, product = _nvfp4(x)
    return {".weight": Array("U8", packed), ".weight_scale": Array("F8_E4M3", scale),
            ".weight_scale_2": Array("F32", second), ".input_scale": Array("F32", rng.random(dtype=np.float32))}, product * second


def nvfp4_pack(x, rng, _, __):
    packed, scale, second, product = _nvfp4(x)
    divisor = np.float32(1) / second
    return {".weight_packed": Array("U8", packed), ".weight_scale": Array("F8_E4M3", scale),
            ".weight_global_scale": Array("F32", divisor.reshape(1)),
            ".input_global_scale": Array("F32", rng.random(1, np.float32))}, product / divisor


def int4(x, _, __, group):
    group = group or 32
    top, spread = _blocks(x, 1, group)
    scale = rounded_bf16(np.maximum(top, 2.0 ** -12) / 7.5)
    q = np.clip(np.rint(x / spread(scale)), -8, 7).astype(np.int64)
    words = np.zeros((x.shape[0], -(-x.shape[1] // 8)), np.uint32)
    for i in range(8):
        column = (q[:, i::8] + 8).astype(np.uint32) << np.uint32(4 * i)
        words[:, :column.shape[1]] |= column
    return {".weight_packed": Array("I32", words.view(np.int32)), ".weight_scale": stored(scale, "BF16"),
            ".weight_shape": Array("I64", np.array(x.shape))}, q.astype(np.float32) * spread(scale)


QUANTISERS = {"fp8": fp8, "fp8-channel": fp8_channel, "nvfp4": nvfp4, "nvfp4-pack": nvfp4_pack, "int4": int4}


def _compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
            "ignore": ["lm_head", "re:.*mlp.gate$"],
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": dict(symmetric=True, **weights)}}}


CONFIGS = {
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "fp8-channel": _compressed("float-quantized", num_bits=8, type="float", strategy="channel", dynamic=False),
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "producer": {"name": "modelopt"}},
    "nvfp4-pack": _compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16),
    "int4": _compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32)}

# -- from the files of the tests -------------------------------------------------------------------


def _step(pattern):
    if pattern == "digits":
        return {"type": "Digits", "individual_digits": True}
    if pattern == "bytelevel":
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def tokenizer_of(g):
    """tokenizer.json of a byte-level vocabulary. Ids of padding (type 5) are in no tokenizer."""
    tokens, types = (g.value("tokenizer.ggml." + k) for k in ("tokens", "token_type"))
    pre = g.value("tokenizer.ggml.pre").decode()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": t.decode(), "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": kind == 3}
                         for i, (t, kind) in enumerate(zip(tokens, types)) if kind in (3, 4)],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [_step(p) for p in PATTERNS[pre]] + [byte_level]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": pre in IGNORE_MERGES,
                  "vocab": {t.decode(): i for i, (t, kind) in enumerate(zip(tokens, types)) if kind == 1},
                  "merges": [m.decode().split(" ") for m in g.value("tokenizer.ggml.merges")]}}


def _texts_from(ck, g):
    """Tokenizer, its configuration and the ends of an answer."""
    ck.tokenizer = tokenizer_of(g)
    tokens = g.value("tokenizer.ggml.tokens")
    ids = {k: g.get(f"tokenizer.ggml.{k}_token_id", (None, None))[1] for k in ("bos", "eos", "unknown", "padding", "eot", "eom")}
    ck.tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096}
    for ours, theirs in (("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"), ("padding", "pad_token")):
        if ids[ours] is not None:
            ck.tokenizer_config[theirs] = tokens[ids[ours]].decode()
    for key in ("add_bos_token", "add_eos_token"):
        if g.get("tokenizer.ggml." + key):
            ck.tokenizer_config[key] = bool(g.value("tokenizer.ggml." + key))
    ends = [ids[k] for k in ("eos", "eot", "eom") if ids[k] is not None]
    if ends:
        ck.config["eos_token_id"] = ends if len(ends) > 1 else ends[0]
        ck.generation_config = {"eos_token_id": ck.config["eos_token_id"]}
    if g.get("tokenizer.chat_template"):
        ck.chat_template = g.value("tokenizer.chat_template").decode()


def _checkpoint(g, config, dtype, name):
    config = dict(config, architectures=[CLASSES[config["model_type"]]], dtype={"BF16": "bfloat16", "F32": "float32"}[dtype],
                  hidden_act="silu", _name_or_path=name)
    values = arrays_of({t.name: tensor_values(t) for t in g.tensors}, config)
    ck = Checkpoint(config, {n: stored(x, "F32" if n.endswith("e_score_correction_bias") else dtype) for n, x in values.items()})
    _texts_from(ck, g)
    return ck


def from_golden(name):
    """All values fit into BF16."""
    golden = Golden(name)
    g = gguf_edit.read(golden.path)
    config = dict(copy.deepcopy(golden.info["hf_config"]), model_type=golden.info["hf_model_type"])
    if golden.info["nextn"] or golden.info["arch"] in ("glm-dsa", "glm4moe"):
        config["num_nextn_predict_layers"] = golden.info["nextn"]
    return _checkpoint(g, config, "BF16", g.value("general.name").decode())


MINI_CONFIG = {
    "model_type": "glm_moe_dsa", "vocab_size": 3584, "hidden_size": 256, "intermediate_size": 768, "moe_intermediate_size": 256,
    "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4, "n_shared_experts": 1, "n_routed_experts": 8,
    "num_experts_per_tok": 4, "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 256, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 192, "v_head_dim": 256, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "index_topk": 256, "index_head_dim": 128, "index_n_heads": 4, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "first_k_dense_replace": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "attention_bias": False, "num_nextn_predict_layers": 1, "tie_word_embeddings": False}


def from_mini():
    """The shipped model, its Q8_0 values as float32."""
    return _checkpoint(gguf_edit.read(MINI_MODEL), copy.deepcopy(MINI_CONFIG), "F32", "mini-glm-dsa")
