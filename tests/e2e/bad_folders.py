#!/usr/bin/env python3
"""Hugging Face folders that are damaged, incomplete or of a kind that limpid does not run.

    bad_folders.py LIMPID [--sanitizer] [--only TEXT]

Each is refused by `convert` and by `dump` (which opens it in place): exit status 1, one line on standard
error, "limpid: error: ...", that has the words given with the case; within a second (10 with
--sanitizer), and no output left. What is only unusual is taken, and says so where the case expects it.
"""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time

import hf_folders as hf
from harness import Checks, arguments, np

PREFIX = "limpid: error: "
CASES = []


def case(*words, model="ds3", shards=2, unusual=False, in_place=True):
    """A function that damages a folder, given its path; `words` must be in the message."""
    def add(function):
        CASES.append((function.__name__.replace("_", " "), function, words, model, shards, unusual, in_place))
        return function
    return add


def checkpoint(*words, model="ds3", unusual=False):
    """A function that changes the checkpoint before it is written."""
    def add(function):
        def rewrite(path):
            ck = hf.from_golden(model)
            function(ck)
            shutil.rmtree(path)
            ck.write(path)
        CASES.append((function.__name__.replace("_", " "), rewrite, words, model, 1, unusual, True))
        return function
    return add


# -- helpers

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def edit(path, name, change):
    with open(f"{path}/{name}", encoding="utf-8") as f:
        value = json.load(f)
    value = change(value) or value
    with open(f"{path}/{name}", "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False)


def header(path, name, change):
    """Changes the JSON header of a shard, whose data stays."""
    with open(f"{path}/{name}", "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    text = change(head) or head
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    with open(f"{path}/{name}", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data[8 + n:])


def put(path, name, data):
    with open(f"{path}/{name}", "wb") as f:
        f.write(data)


def truncate(path, name, by):
    os.truncate(f"{path}/{name}", os.path.getsize(f"{path}/{name}") - by)


# -- files

@case("lacks", SECOND)
def missing_shard(path):
    os.remove(f"{path}/{SECOND}")


@case("lacks", FIRST, SECOND, in_place=False)  # then it is no model at all
def all_shards_missing(path):
    os.remove(f"{path}/{FIRST}")
    os.remove(f"{path}/{SECOND}")


@case("no-such-file.safetensors")
def index_names_an_absent_file(path):
    edit(path, INDEX, lambda v: v["weight_map"].update({"model.norm.weight": "no-such-file.safetensors"}))


@case("is no file of the folder")
def index_leaves_the_folder(path):
    edit(path, INDEX, lambda v: v["weight_map"].update({"model.norm.weight": "../" + FIRST}))


@case("is no file of the folder")
def index_with_absolute_path(path):
    edit(path, INDEX, lambda v: v["weight_map"].update({"model.norm.weight": "/etc/passwd"}))


@case("model.norm.weight", FIRST)
def index_names_the_wrong_shard(path):
    edit(path, INDEX, lambda v: v["weight_map"].update({"model.norm.weight": FIRST}))


@case("model.no_such.weight")
def index_names_an_array_that_is_not_there(path):
    edit(path, INDEX, lambda v: v["weight_map"].update({"model.no_such.weight": FIRST}))


@case(INDEX)
def index_is_no_json(path):
    put(path, INDEX, b'{"weight_map": {"a": ')


@case(INDEX, "weight_map")
def index_without_map(path):
    put(path, INDEX, b'{"metadata": {}}')


@case(SECOND)
def truncated_shard(path):
    truncate(path, SECOND, 1000)


@case(FIRST)
def empty_shard(path):
    put(path, FIRST, b"")


@case(FIRST)
def header_longer_than_the_file(path):
    put(path, FIRST, struct.pack("<Q", 1 << 40) + b"{}")


@case(FIRST)
def header_is_no_json(path):
    header(path, FIRST, lambda h: b'{"model.norm.weight": [')


@case(FIRST)
def header_is_deep(path):
    header(path, FIRST, lambda h: b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}")


@case("overlap")
def arrays_overlap(path):
    def change(h):
        a, b = [n for n in h if n != "__metadata__"][:2]
        size = h[b]["data_offsets"][1] - h[b]["data_offsets"][0]
        start = h[a]["data_offsets"][0]
        h[b]["data_offsets"] = [start, start + size]
    header(path, FIRST, change)


@case("lm_head.weight")
def array_past_the_end(path):
    header(path, FIRST, lambda h: h["lm_head.weight"].update(data_offsets=[x + (1 << 40) for x in h["lm_head.weight"]["data_offsets"]]))


@case("lm_head.weight")
def bytes_do_not_fit_the_shape(path):
    header(path, FIRST, lambda h: h["lm_head.weight"].update(shape=[320, 63]))


@case("lm_head.weight")
def negative_shape(path):
    header(path, FIRST, lambda h: h["lm_head.weight"].update(shape=[-320, -64]))


@case("lm_head.weight")
def shape_that_overflows(path):
    header(path, FIRST, lambda h: h["lm_head.weight"].update(shape=[1 << 32, 1 << 32]))


@case("lm_head.weight")
def array_of_an_unknown_dtype(path):
    header(path, FIRST, lambda h: h["lm_head.weight"].update(dtype="X9"))


@case("lm_head.weight", "I16")
def array_of_integers(path):
    header(path, FIRST, lambda h: h["lm_head.weight"].update(dtype="I16"))


@case("safetensors", shards=1, in_place=False)
def no_weights(path):
    os.remove(f"{path}/model.safetensors")


@case("config.json")
def config_is_no_json(path):
    put(path, "config.json", b'{"model_type": "deepseek_v3", ')


@case("config.json")
def config_is_a_list(path):
    put(path, "config.json", b"[]")


@case("tokenizer")
def no_tokenizer(path):
    os.remove(f"{path}/tokenizer.json")


@case("tokenizer.json")
def tokenizer_is_no_json(path):
    put(path, "tokenizer.json", b'{"model": {"vocab": {')


# -- the configuration

def config(**fields):
    def change(path):
        edit(path, "config.json", lambda c: {k: v for k, v in {**c, **fields}.items() if v is not ...})
    return change


def config_case(name, words, model="ds3", **fields):
    CASES.append((name, config(**fields), words, model, 1, False, True))


config_case("config without model type", ("model_type",), model_type=...)
config_case("unknown model type", ("gpt_neox",), model_type="gpt_neox")
config_case("hidden size of another model", ("embed_tokens", "[320, 128]", "config.json"), hidden_size=128)
config_case("a layer more than there are", ("missing", "model.layers.3."), num_hidden_layers=4)
config_case("a layer less than there are", ("unknown", "model.layers.2."), num_hidden_layers=2)
config_case("more experts than there are", ("mlp.gate.weight", "[20, 64]"), n_routed_experts=20)
config_case("fewer experts than there are", ("mlp.gate.weight", "[12, 64]"), n_routed_experts=12)
config_case("heads of another number", ("self_attn", "shape"), num_attention_heads=8)
config_case("layers beyond reason", ("num_hidden_layers",), num_hidden_layers=1 << 40)
config_case("negative size", ("hidden_size",), hidden_size=-64)
config_case("size as text", ("hidden_size",), hidden_size="64")
config_case("vocabulary of another size", ("embed_tokens", "shape"), vocab_size=352)
config_case("vocabulary smaller than the tokenizer", ("vocab_size",), vocab_size=200)
config_case("unknown activation", ("hidden_act",), hidden_act="relu")
config_case("unknown rope", ("rope",), rope_parameters={"rope_type": "longrope", "rope_theta": 1e4})


# -- arrays

@checkpoint("missing", "model.layers.1.self_attn.o_proj.weight")
def array_is_missing(ck):
    del ck.arrays["model.layers.1.self_attn.o_proj.weight"]


@checkpoint("missing", "model.layers.1.mlp.experts.7.up_proj.weight")
def expert_is_missing(ck):
    del ck.arrays["model.layers.1.mlp.experts.7.up_proj.weight"]


@checkpoint("12 arrays", "missing", "experts.3.down_proj", "experts.3.gate_proj")
def many_are_missing(ck):
    for name in [n for n in ck.arrays if ".experts.3." in n or ".experts.4." in n]:
        del ck.arrays[name]


@checkpoint("at least", "missing", "mlp.gate.weight")
def config_of_a_far_larger_model(ck):
    ck.config.update(num_hidden_layers=500, n_routed_experts=60000)
    ck.arrays = {n: a for n, a in ck.arrays.items() if ".mlp.gate." not in n}


@checkpoint("missing", "lm_head.weight")
def output_is_missing(ck):
    del ck.arrays["lm_head.weight"]


@checkpoint("missing", "e_score_correction_bias")
def router_bias_is_missing(ck):
    del ck.arrays["model.layers.1.mlp.gate.e_score_correction_bias"]


@checkpoint("embed_tokens")
def no_language_model(ck):
    ck.arrays = {"encoder." + n: a for n, a in ck.arrays.items()}


@checkpoint("unknown", "model.layers.1.self_attn.sinks")
def array_too_many(ck):
    ck.arrays["model.layers.1.self_attn.sinks"] = hf.stored(np.ones(4), "BF16")


@checkpoint("unknown", "model.layers.0.self_attn.q_proj.bias", model="qwen3")
def bias_where_there_is_none(ck):
    ck.arrays["model.layers.0.self_attn.q_proj.bias"] = hf.stored(np.ones(128), "BF16")


@checkpoint("model.layers.1.mlp.experts.3.up_proj.weight", "shape")
def expert_of_another_shape(ck):
    ck.arrays["model.layers.1.mlp.experts.3.up_proj.weight"] = hf.stored(np.ones((16, 64)), "BF16")


@checkpoint("model.layers.0.self_attn.q_a_proj.weight", "shape")
def transposed_matrix(ck):
    ck.arrays["model.layers.0.self_attn.q_a_proj.weight"] = hf.stored(np.ones((32, 128)), "BF16")


@checkpoint("kv_b_proj", "shape")
def kv_b_of_another_shape(ck):
    ck.arrays["model.layers.0.self_attn.kv_b_proj.weight"] = hf.stored(np.ones((255, 64)), "BF16")


@checkpoint("input_layernorm")
def norm_with_two_axes(ck):
    ck.arrays["model.layers.0.input_layernorm.weight"] = hf.stored(np.ones((2, 64)), "BF16")


@checkpoint("embed_tokens")
def scalar_embedding(ck):
    ck.arrays["model.embed_tokens.weight"] = hf.stored(np.float32(1), "BF16")


@checkpoint("gate_up_proj", "shape")
def stack_of_another_shape(ck):
    ck.stack_experts()
    name = "model.layers.1.mlp.experts.gate_up_proj"
    ck.arrays[name] = hf.Array("BF16", ck.arrays[name].data[:8])


@checkpoint("unknown", "mlp.experts.0.gate_proj.weight")
def experts_apart_and_stacked(ck):
    whole = ck.copy()
    ck.stack_experts()
    ck.arrays["model.layers.1.mlp.experts.0.gate_proj.weight"] = whole.arrays["model.layers.1.mlp.experts.0.gate_proj.weight"]


def scales(name, scheme, words, change):
    def damage(ck):
        ck.quantise(scheme)
        change(ck.arrays, "model.layers.0.mlp.up_proj")
    damage.__name__ = name
    checkpoint(*words)(damage)


def drop(suffix):
    return lambda arrays, stem: arrays.pop(stem + suffix)


def cut(suffix):
    def change(arrays, stem):
        a = arrays[stem + suffix]
        arrays[stem + suffix] = hf.Array(a.dtype, a.data.reshape(-1)[:max(1, a.data.size // 2)])
    return change


def retype(suffix, dtype):
    return lambda arrays, stem: arrays.update({stem + suffix: hf.Array(dtype, np.ones(arrays[stem + suffix].data.shape))})


UP = "model.layers.0.mlp.up_proj"
scales("FP8_without_scales", "fp8", (UP,), drop(".weight_scale_inv"))
scales("FP8_scales_of_another_shape", "fp8-channel", (UP,), cut(".weight_scale"))
scales("FP8_scales_of_integers", "fp8", (UP,), retype(".weight_scale_inv", "I32"))
scales("NVFP4_without_scales", "nvfp4", (UP,), drop(".weight_scale"))
scales("NVFP4_without_second_scale", "nvfp4", (UP,), drop(".weight_scale_2"))
scales("NVFP4_scales_of_another_shape", "nvfp4", (UP,), cut(".weight_scale"))
scales("packed_NVFP4_without_global_scale", "nvfp4-pack", (UP,), drop(".weight_global_scale"))
scales("INT4_without_scales", "int4", (UP,), drop(".weight_scale"))
scales("INT4_of_another_shape", "int4", (UP,), cut(".weight_packed"))
scales("scales_without_values", "fp8", (UP,), drop(".weight"))


# -- the tokenizer

@case("pre_tokenizer", "[a-z]+")
def unknown_pre_tokenizer(path):
    edit(path, "tokenizer.json", lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="[a-z]+|\\s+"))


@case("WordPiece")
def wordpiece(path):
    edit(path, "tokenizer.json", lambda t: t["model"].update(type="WordPiece"))


@case("tokenizer", "zz")
def merges_of_no_tokens(path):
    edit(path, "tokenizer.json", lambda t: t["model"]["merges"].append(["zz", "qq"]))


@case("tokenizer.json")
def ids_beyond_reason(path):
    edit(path, "tokenizer.json", lambda t: t["model"]["vocab"].update({"zz": 1 << 40}))


# -- only unusual

@checkpoint("rotary frequencies", unusual=True)
def stored_frequencies(ck):
    ck.arrays["model.layers.0.self_attn.rotary_emb.inv_freq"] = hf.stored(np.ones(8), "F32")


@checkpoint("tie_word_embeddings", model="qwen3", unusual=True)
def output_beside_a_tied_embedding(ck):
    ck.arrays["lm_head.weight"] = ck.arrays["model.embed_tokens.weight"]


@checkpoint("MTP", model="dsa_sparse", unusual=True)
def MTP_layer_that_the_config_does_not_name(ck):
    ck.config["num_nextn_predict_layers"] = 0


@checkpoint(model="dsa_sparse", unusual=True)
def MTP_layer_that_is_not_there(ck):
    ck.arrays = {n: a for n, a in ck.arrays.items() if ".layers.5." not in n}


# -- running

def timed(command):
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
    return done, time.monotonic() - start


def refused(done, seconds, words, limit):
    lines = done.stderr.strip().split("\n")
    if "Sanitizer" in done.stderr or "runtime error" in done.stderr:
        yield f"sanitizer report: {done.stderr[:1500]}"
    elif done.returncode != 1 or len(lines) != 1 or not lines[0].startswith(PREFIX):
        yield f"exit status {done.returncode}, said {done.stderr[:600]!r}"
    elif len(lines[0]) > 1100 or any(word not in lines[0] for word in words):
        yield f"the message lacks one of {words}: {lines[0]}"
    if seconds > limit:
        yield f"took {seconds:.1f} s"


def accepted(done, words):
    if done.returncode != 0 or any(word not in done.stderr for word in words):
        yield f"exit status {done.returncode}, expected 0 and {words}; said {done.stderr[:600]!r}"


def check(limpid, folder, name, damage, words, model, shards, unusual, in_place, limit):
    path = f"{folder}/{name.replace(' ', '-')}"
    out = path + "-out"
    hf.from_golden(model).write(path, shards=shards)
    damage(path)
    os.mkdir(out)
    done, seconds = timed([limpid, "convert", path, f"{out}/a.gguf", "--threads", "1"])
    if unusual:
        yield from accepted(done, words)
        return
    yield from refused(done, seconds, words, limit)
    if os.listdir(out):
        yield f"left behind: {os.listdir(out)}"
    if in_place:
        done, seconds = timed([limpid, "dump", path, "--tokens", "1,2", "--logits", f"{out}/a.npy", "--threads", "1"])
        yield from (f"in place: {fault}" for fault in refused(done, seconds, words, limit))
    shutil.rmtree(path)


def main():
    args = arguments(__doc__)
    checks = Checks(args)
    with tempfile.TemporaryDirectory(prefix="limpid-bad-folders-") as folder:
        for name, damage, words, model, shards, unusual, in_place in CASES:
            checks.add(name, check, args.limpid, folder, name, damage, words, model, shards, unusual, in_place,
                       10 if args.sanitizer else 1)
        checks.finish()


if __name__ == "__main__":
    main()
