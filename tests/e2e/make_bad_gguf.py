#!/usr/bin/env python3
"""Damaged copies of a good glm-dsa model, one defect each.

    make_bad_gguf.py GOOD.gguf DIR        writes every case and DIR/manifest.json
    make_bad_gguf.py GOOD.gguf --list     names them

A case is a folder of one or more files, of which `open` is the one to give to the program.
`refused_by` says who must refuse it: "any" command (damage of the container or of a split set),
"dump" (whatever loads the model: hyperparameters, binding, tokenizer, weights), or "none": a control
that is right and must load. The error must hold one of `needles` (case does not matter). check_bad_gguf.py
runs the program over the cases. Standard library only.
"""
import json
import os
import struct
import sys

from gguf_edit import (ARR, BLOCKS, BOOL, F32, F64, Gguf, I32, Raw, STR, T_BF16, T_F16, T_F32, T_I32, T_I8, T_Q8_0, Tensor,
                       U16, U32, U64, read, scalar, string)

NAN, INF = float("nan"), float("inf")
HUGE = (("minus_1", 2**64 - 1), ("2_31", 2**31), ("2_63", 2**63))


class Case:
    def __init__(self, name, what, needles, files, refused_by="any", open_=None):
        self.name, self.what, self.files, self.refused_by = name, what, files, refused_by
        self.needles = [needles] if isinstance(needles, str) else list(needles)
        self.open = open_ or next(iter(files))

    def entry(self):
        return {"name": self.name, "what": self.what, "open": f"{self.name}/{self.open}", "refused_by": self.refused_by,
                "needles": self.needles}


def one(name, what, needles, data, refused_by="any"):
    return Case(name, what, needles, {"model.gguf": data.bytes() if isinstance(data, Gguf) else bytes(data)}, refused_by)


# ---- the container ----

def truncations(good):
    head, places = good.head()
    whole = good.bytes()
    place = {k: (a, b) for k, a, b in places}
    tokens, types, merges = (place["tokenizer.ggml." + k] for k in ("tokens", "token_type", "merges"))
    for n, at, needle in (("empty", 0, "GGUF"), ("magic", 2, "GGUF"), ("version", 6, "version"), ("tensor_count", 12, "count"),
                          ("key_count", 20, "count"), ("before_the_pairs", 24, "n_tensors"), ("first_key", places[0][1] + 12, "n_tensors"),
                          ("tokens", (tokens[0] + tokens[1]) // 2, "cut off"), ("merges", (merges[0] + merges[1]) // 2, "cut off")):
        yield one(f"cut_{n}", f"file cut inside: {n}", needle, whole[:at])
    # without tensors, so that no count gives the cut away before its place is met
    bare = good.copy()
    bare.tensors = []
    bare = bare.bytes()
    name = len("tokenizer.ggml.tokens")
    last_key = good.keys[-1][0]
    start, end = place[last_key]
    for n, at, needle in (("tokens_element_type", tokens[0] + 8 + name + 4 + 2, ["tokenizer.ggml.tokens", "n_kv"]),
                          ("tokens_length", tokens[0] + 8 + name + 8 + 4, ["tokenizer.ggml.tokens", "n_kv"]),
                          ("tokens_string", (tokens[0] + tokens[1]) // 2, ["tokenizer.ggml.tokens", "n_kv"]),
                          ("token_types", (types[0] + types[1]) // 2, "tokenizer.ggml.token_type"),
                          ("last_merge", merges[1] - 1, ["tokenizer.ggml.merges", "key"]),
                          ("key_length", start + 4, "key"), ("key_text", start + 12, "key"),
                          ("key_type", start + 8 + len(last_key) + 2, last_key), ("key_value", end - 2, last_key)):
        yield one(f"cut_bare_{n}", f"file without tensors cut inside: {n}", needle, bare[:at])
    last = good.tensors[-1]
    at, n = place[last.name][0], len(last.name)
    for part, cut in (("name_length", at + 4), ("name", at + 8 + n // 2), ("dims", at + 8 + n + 2), ("ne", at + 8 + n + 8),
                      ("type", len(head) - 10), ("offset", len(head) - 3)):
        yield one(f"cut_descriptor_{part}", f"file cut inside the last descriptor: {part}", "tensor", whole[:cut])
    first = good.tensors[0].name
    yield one("cut_padding", "file cut where the data should begin", first, whole[:len(head)])
    yield one("cut_first_data", "file cut inside the first tensor", first, whole[:len(head) + 64])
    yield one("cut_half", "half of the file", "tensor", whole[:len(whole) // 2])
    pad = -len(last.data) % good.align
    yield one("cut_last_byte", "the last byte of the last tensor is missing", last.name, whole[:len(whole) - pad - 1])


def counts(good):
    whole = good.bytes()
    for field, at, right in (("n_tensors", 8, len(good.tensors)), ("n_kv", 16, len(good.keys))):
        for n, v in (("0", 0), ("one_less", right - 1), ("one_more", right + 1)) + HUGE:
            needles = [field] if v > 2**30 else ["tensor", "key", "trailing"]
            yield one(f"{field}_{n}", f"{field} is {v}", needles, whole[:at] + struct.pack("<Q", v) + whole[at + 8:])
    for field, at in (("n_tensors", 8), ("n_kv", 16)):
        head = bytearray(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        struct.pack_into("<Q", head, at, 2**63)
        yield one(f"tiny_{field}", f"43 bytes that promise 2^63 {field}", field, bytes(head) + bytes(19))


def versions(good):
    whole = good.bytes()
    for n, v in (("0", 0), ("1", 1), ("4", 4), ("99", 99)):
        yield one(f"version_{n}", f"version {v}", "version", whole[:4] + struct.pack("<I", v) + whole[8:])
    yield one("version_swapped", "a big-endian file", ["big-endian", "byte order"], whole[:4] + struct.pack(">I", 3) + whole[8:])
    yield one("magic_swapped", "the magic backwards", "GGUF", b"FUGG" + whole[4:])
    yield one("not_gguf", "a text file", "GGUF", b"This is a letter to the editor, and not a model at all.\n" * 40)


def with_pair(good, key, value):
    g = good.copy()
    g.keys.append([key, value])
    return g


def keys(good):
    def pair(name, what, needle, key, value):
        return one(name, what, needle, with_pair(good, key, value))
    yield pair("key_empty", "an empty key", "empty", "", (U32, 1))
    yield pair("key_nul", "a key with a NUL byte", "NUL", Raw(string(b"a\0b")), (U32, 1))
    yield pair("key_70000", "a key of 70,000 bytes", "70000", "k" * 70000, (U32, 1))
    yield pair("key_doubled", "a key that occurs twice", "glm-dsa.block_count", "glm-dsa.block_count", good.get("glm-dsa.block_count"))
    yield pair("key_doubled_other", "a key that occurs twice with two values", "glm-dsa.rope.freq_base", "glm-dsa.rope.freq_base", (F32, 1e4))
    for t in (13, 255, 2**32 - 1):
        yield pair(f"value_type_{t}", f"value type {t}", "some.key", "some.key", Raw(struct.pack("<IQ", t, 0)))
    yield pair("array_type_13", "array of type 13", "some.key", "some.key", Raw(struct.pack("<IIQQ", ARR, 13, 1, 0)))
    yield pair("array_of_arrays", "an array of arrays", "some.key", "some.key", Raw(struct.pack("<IIQIQI", ARR, ARR, 1, U32, 1, 0)))
    for n, v in HUGE:
        for element, e in (("strings", STR), ("u8", 0), ("f64", F64)):
            yield pair(f"array_{element}_{n}", f"array of {v} {element}", "some.key", "some.key", Raw(struct.pack("<IIQ", ARR, e, v)))
        yield pair(f"string_{n}", f"string of {v} bytes", ["some.key", "string"], "some.key", Raw(struct.pack("<IQ", STR, v)))
        yield pair(f"key_length_{n}", f"key of {v} bytes", "key", Raw(struct.pack("<Q", v) + b"some.key"), (U32, 1))
    yield pair("bool_7", "a bool of 7", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_bos_token", (BOOL, 7))
    yield pair("bool_array_2", "a bool of 2 in an array", "attention.indexer.types", "glm-dsa.attention.indexer.types", (ARR, BOOL, [1, 1, 2, 1, 1]))
    for v in (0, 1, 3, 48, 2**31):
        yield pair(f"alignment_{v}", f"general.alignment {v}", "general.alignment", "general.alignment", (U32, v))
    yield pair("alignment_string", "general.alignment is a string", "general.alignment", "general.alignment", (STR, "32"))
    g = good.copy()
    g.set("general.alignment", U32, 256)  # the data still lie at multiples of the old one
    yield one("alignment_256", "general.alignment is not the one the file was written with", ["tensor", "256"], g)


def descriptors(good):
    def edit(name, what, change, needles=None, i=3):
        g = good.copy()
        t = g.tensors[i]
        label = t.name
        change(t, g)
        return one(name, what, label if needles is None else needles, g)

    def put(**fields):
        def change(t, g):
            for k, v in fields.items():
                setattr(t, k, v)
        return change
    second = good.tensors[3]
    yield edit("name_empty", "an empty tensor name", put(name=""), "empty")
    yield edit("name_64", "a tensor name of 64 bytes", put(name="n" * 64), "64")
    yield edit("name_nul", "a tensor name with a NUL byte", put(name=Raw(string(b"blk.0\0attn"))), "NUL")
    yield edit("name_2_63", "a tensor name of 2^63 bytes", put(name=Raw(struct.pack("<Q", 2**63) + b"blk")), "tensor")
    yield edit("name_doubled", "two tensors of one name", put(name=good.tensors[4].name), good.tensors[4].name)
    for n, v in (("0", 0), ("5", 5), ("2_32", 2**32 - 1)):
        yield edit(f"n_dims_{n}", f"n_dims {v}", put(claims_dims=v))
    for n, v in (("0", 0),) + HUGE:
        yield edit(f"ne_{n}", f"ne[0] is {v}", put(ne=[v]))
        yield edit(f"ne1_{n}", f"ne[1] is {v}", put(ne=[4, v]))
    yield edit("ne_wraps", "dimensions whose product wraps to a small number", put(ne=[2**33, 2**33]))
    yield edit("ne_wraps_bytes", "dimensions whose size in bytes wraps", put(ne=[2**31, 2**31]))
    for v in (4, 5, 31, 36, 38, 99, 137, 156, 250, 2**32 - 1):
        yield edit(f"type_{v}", f"tensor type {v}", put(type=v))
    yield edit("type_other_size", "a type of another size (f64)", put(type=28), ["tensor"])
    yield edit("type_row", "rows that are no multiple of the block", put(type=T_Q8_0, ne=[33], data=bytes(68)))
    yield edit("offset_overlap", "a tensor on top of the one before", put(offset=0), second.name)
    yield edit("offset_gap", "a gap before a tensor", put(shift=good.align), second.name)
    yield edit("offset_misaligned", "a misaligned offset", put(shift=1), second.name)
    yield edit("offset_wrapped", "an offset near 2^64", put(offset=2**64 - good.align), second.name)
    yield edit("offset_past_end", "an offset past the end", put(offset=2**40), second.name)
    yield edit("offset_minus", "an offset one alignment too small", put(shift=-good.align), second.name)
    g = good.copy()
    g.order = list(range(len(g.tensors)))
    g.order[0], g.order[1] = 1, 0
    yield one("offset_reordered", "data in another order than the descriptors", good.tensors[0].name, g)
    whole = good.bytes()
    yield one("trailing_byte", "one byte after the end", "trailing", whole + b"\0")
    yield one("trailing_copy", "the file twice, joined by cat", ["cat", "part 1"], whole + whole)


# ---- split sets ----

def parts(good, n=3, tensor_free_first=False, names=True):
    """The right split set of a model, as a list of Gguf."""
    out, total, at = [], len(good.tensors), 0
    for i in range(n):
        g = Gguf()
        g.align = good.align
        if i == 0:
            g.keys = [[k, v] for k, v in good.keys]
        g.keys += [["split.no", (U16, i)], ["split.count", (U16, n)], ["split.tensors.count", (I32, total)]]
        end = 0 if i == 0 and tensor_free_first else total if i == n - 1 else total * (i + 1) // n
        g.tensors = [t.copy() for t in good.tensors[at:end]]
        at = end
        out.append(g)
    return out


def part_names(n=3, prefix="m"):
    return [f"{prefix}-{i + 1:05}-of-{n:05}.gguf" for i in range(n)]


def split_sets(good):
    names = part_names()

    def case(name, what, needles, change=None, refused_by="any", files=None, open_=names[0], **how):
        p = parts(good, **how)
        if change:
            change(p)
        data = dict(zip(names, (x.bytes() for x in p)))
        if files:
            data = files(data)
        return Case(name, what, needles, data, refused_by, open_)

    def without(*gone):
        return lambda d: {k: v for k, v in d.items() if k not in gone}

    def keyed(i, key, *value):
        return lambda p: p[i].set(key, *value)
    yield case("split_good", "control: a right set", "", refused_by="none")
    yield case("split_good_last", "control: a right set opened by its last part", "", refused_by="none", open_=names[2])
    yield case("split_good_empty_first", "control: the first part holds no tensors", "", refused_by="none", tensor_free_first=True)
    yield case("split_missing_one", "a missing part", names[1], files=without(names[1]))
    yield case("split_missing_two", "two missing parts", names[2], files=without(*names[1:]))
    yield case("split_missing_first", "the first part is missing", names[0], files=without(names[0]), open_=names[1])
    yield case("split_swapped", "parts 2 and 3 exchanged", "split.no", files=lambda d: dict(zip(names, (d[names[i]] for i in (0, 2, 1)))))
    yield case("split_swapped_first", "parts 1 and 2 exchanged", "split.no", files=lambda d: dict(zip(names, (d[names[i]] for i in (1, 0, 2)))))
    yield case("split_doubled", "part 2 in the place of part 3 too", "split.no", files=lambda d: {**d, names[2]: d[names[1]]})
    yield case("split_renamed", "the name lacks the ending", "00001-of-00003", files=lambda d: {"model.gguf": d[names[0]], **without(names[0])(d)}, open_="model.gguf")
    yield case("split_name_count", "the name says 4 parts", "split.count", files=lambda d: {"m-00001-of-00004.gguf": d[names[0]], **without(names[0])(d)},
               open_="m-00001-of-00004.gguf")
    yield case("split_count_part", "part 2 says split.count 4", "split.count", keyed(1, "split.count", U16, 4))
    yield case("split_count_2_16", "split.count 65535", "split.count", keyed(0, "split.count", U16, 65535))
    yield case("split_count_string", "split.count is a string", "split.count", keyed(0, "split.count", STR, "3"))
    yield case("split_count_negative", "split.count is -1", "split.count", keyed(0, "split.count", I32, -1))
    yield case("split_no_part", "part 3 says split.no 1", "split.no", keyed(2, "split.no", U16, 1))
    yield case("split_no_range", "split.no past split.count", "split.no", keyed(0, "split.no", U16, 3))
    yield case("split_no_missing", "split.no is missing", "split.no", lambda p: p[1].drop("split.no"))
    yield case("split_total_part", "part 2 says another split.tensors.count", "split.tensors.count", keyed(1, "split.tensors.count", I32, 7))
    total = len(good.tensors)
    yield case("split_total_all", "all parts say one tensor too many", "split.tensors.count",
               lambda p: [x.set("split.tensors.count", I32, total + 1) for x in p])
    yield case("split_total_missing", "split.tensors.count is missing", "split.tensors.count", lambda p: p[0].drop("split.tensors.count"))
    yield case("split_other_name", "part 2 of another model (general.name)", ["general.name", "another model"], keyed(1, "general.name", STR, "some other model"))
    yield case("split_other_arch", "part 3 of another architecture", ["general.architecture", "another model"], keyed(2, "general.architecture", STR, "llama"))
    yield case("split_other_tensors", "part 2 of a model with fewer layers", "split.tensors.count", lambda p: p[1].tensors.pop())
    yield case("split_tensor_twice", "a tensor in two parts", good.tensors[0].name, lambda p: p[2].tensors.append(good.tensors[0].copy()))
    yield case("split_cut", "part 3 is cut off", names[2], files=lambda d: {**d, names[2]: d[names[2]][:-5000]})
    yield case("split_damaged", "part 2 is not GGUF", names[1], files=lambda d: {**d, names[1]: b"<html>404</html>"})
    yield case("split_cat", "parts 1 and 2 joined by cat", ["cat", "part 1"], files=lambda d: {names[0]: d[names[0]] + d[names[1]], names[2]: d[names[2]]})
    yield case("split_cat_empty_first", "a part without tensors and part 2 joined by cat", ["cat", "part 1"],
               files=lambda d: {"all.gguf": d[names[0]] + d[names[1]]}, open_="all.gguf", tensor_free_first=True)


# ---- hyperparameters ----

def hyperparameters(good):
    arch = good.value("general.architecture").decode()
    heads = good.value(f"{arch}.attention.head_count")

    def hyper(key, type_, value, what=None, *more):
        g = good.copy()
        g.set(f"{arch}.{key}", type_, value)
        label = f"{value}".replace(".", "_").replace("-", "minus_").replace("+", "")
        return one(f"{key.replace('.', '_')}_{what or label}", f"{key} is {value if what is None else what}", [key, *more], g, "dump")
    u32 = 2**32 - 1
    blocks = good.value(f"{arch}.block_count")
    for v in (0, 513, 2**31, blocks + 1, blocks - 1):
        yield hyper("block_count", U32, v, None, "blk.", "nextn")
    for key, values, more in (
            ("context_length", (0,), ()),
            ("embedding_length", (0, 63, 2**31), ("token_embd",)),
            ("feed_forward_length", (0, 2**31), ("ffn_",)),
            ("vocab_size", (0, 2**31, 999), ("token",)),
            ("attention.head_count", (0, 3, 2**31), ("attn_",)),
            ("attention.head_count_kv", (0, u32), ()),
            ("attention.key_length_mla", (0, 8, 16), ("attn_",)),
            ("attention.value_length_mla", (0, 2**31), ("attn_",)),
            ("attention.q_lora_rank", (0, 2**31), ("attn_q",)),
            ("attention.kv_lora_rank", (0, 2**31), ("attn_kv",)),
            ("attention.indexer.head_count", (0, 5, u32), ("indexer.",)),
            ("attention.indexer.key_length", (0, 8, u32), ("indexer.",)),
            ("attention.indexer.top_k", (0, u32), ()),
            ("rope.dimension_count", (0, 15, 2**31), ("attn_",)),
            ("expert_count", (0, 7, 2**31), ("exps", "ffn_gate", "exp_probs_b")),
            ("expert_used_count", (0, 9, u32), ()),
            ("expert_feed_forward_length", (0, 33), ("exps", "shexp")),
            ("expert_shared_count", (2, u32), ("shexp",)),
            ("expert_group_count", (3, u32), ()),
            ("expert_group_used_count", (2, u32), ("group",)),
            ("expert_gating_func", (5, 99), ()),
            ("leading_dense_block_count", (blocks + 1, u32), ()),
            ("nextn_predict_layers", (blocks, u32), ())):
        for v in values:
            yield hyper(key, U32, v, None, *more)
    for key, values in (("attention.layer_norm_rms_epsilon", (NAN, INF, 0.0, -1e-5)), ("rope.freq_base", (NAN, INF, 0.0, -1.0)),
                        ("expert_weights_scale", (NAN, INF))):
        for v in values:
            yield hyper(key, F32, v)
    for scaling in ("linear", "yarn"):
        for v, label in ((NAN, "nan"), (INF, "inf"), (-1.0, "negative")):
            g = good.copy()
            g.set(f"{arch}.rope.scaling.type", STR, scaling)
            g.set(f"{arch}.rope.scaling.factor", F32, v)
            g.set(f"{arch}.rope.scaling.original_context_length", U32, 4096)
            yield one(f"rope_{scaling}_factor_{label}", f"rope.scaling.factor is {v} with {scaling} scaling", "rope.scaling.factor", g, "dump")
    yield hyper("rope.scaling.type", STR, "spiral")
    for key, type_, value in (("block_count", STR, str(blocks)), ("embedding_length", F32, 64.0), ("attention.layer_norm_rms_epsilon", STR, "1e-5"),
                              ("expert_weights_norm", STR, "true"), ("attention.head_count", BOOL, 1), ("rope.freq_base", U64, 10000)):
        names = {STR: "string", F32: "float", BOOL: "bool", U64: "integer"}
        yield hyper(key, type_, value, f"as_{names[type_]}")
    g = good.copy()
    g.set(f"{arch}.attention.head_count", ARR, U32, [heads, heads])
    yield one("head_count_short_array", "attention.head_count is an array for two layers", "attention.head_count", g, "dump")
    for name, value in (("short", [1, 1]), ("first_shared", [0] + [1] * (blocks - 2)), ("unknown", None)):
        g = good.copy()
        key = f"{arch}.attention.indexer.types"
        g.set(key, *(ARR, BOOL, value) if value else (ARR, STR, ["diagonal"] * (blocks - 1)))
        yield one(f"indexer_types_{name}", f"attention.indexer.types: {name}", "indexer", g, "dump")
    for key in ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.key_length_mla",
                "attention.value_length_mla", "attention.kv_lora_rank", "attention.layer_norm_rms_epsilon", "attention.indexer.head_count",
                "attention.indexer.key_length", "attention.indexer.top_k", "expert_used_count", "expert_feed_forward_length"):
        g = good.copy()
        g.drop(f"{arch}.{key}")
        yield one(f"missing_{key.replace('.', '_')}", f"{key} is missing", key, g, "dump")


def general(good):
    def case(name, what, needles, *value):
        g = good.copy()
        g.set("general.architecture", *value)
        return one(name, what, needles, g, "dump")
    g = good.copy()
    g.drop("general.architecture")
    yield one("missing_architecture", "general.architecture is missing", "general.architecture", g, "dump")
    for a in ("glm5next", "glm5-next", "deepseek4", "glm-dsa2", ""):
        yield case(f"architecture_{a or 'empty'}", f"architecture '{a}'", [a] if a else "architecture", STR, a)
    yield case("architecture_no_utf8", "general.architecture is no UTF-8", "general.architecture", STR, b"glm\xff")
    yield case("architecture_number", "general.architecture is a number", "general.architecture", U32, 5)
    for t in ("adapter", "mmproj", "imatrix", "vocab"):
        g = good.copy()
        g.set("general.type", STR, t)
        yield one(f"general_type_{t}", f"general.type is {t}", ["general.type", t], g, "dump")


# ---- tensors the architecture does not expect ----

def reshaped(t, ne):
    values, size = BLOCKS[t.type]
    n = size
    for i, d in enumerate(ne):
        n *= d // values if i == 0 else d
    t.ne, t.data = list(ne), (t.data + bytes(max(0, n - len(t.data))))[:n]


def retyped(t, type_, fill=0):
    t.type = type_
    values, size = BLOCKS[type_]
    n = 1
    for d in t.ne:
        n *= d
    t.data = bytes([fill]) * (n // values * size)


def binding(good):
    def drop(name, what, gone, needle):
        g = good.copy()
        g.tensors = [t for t in g.tensors if not gone(t.name)]
        assert len(g.tensors) < len(good.tensors), name
        return one(name, what, needle, g, "dump")

    def edit(name, what, tensor, change, *more):
        g = good.copy()
        change(g.tensor(tensor))
        return one(name, what, [tensor, *more], g, "dump")
    for n in ("token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.1.attn_q_a.weight", "blk.1.attn_kv_a_norm.weight",
              "blk.2.attn_k_b.weight", "blk.0.ffn_down.weight", "blk.1.ffn_gate_inp.weight", "blk.2.ffn_gate_exps.weight",
              "blk.3.ffn_up_shexp.weight", "blk.0.indexer.k_norm.bias", "blk.2.indexer.attn_q_b.weight"):
        yield drop(f"missing_{n}", f"tensor {n} is missing", lambda t, n=n: t == n, n)
    yield drop("missing_indexer_layer", "layer 1 lacks its indexer", lambda t: t.startswith("blk.1.indexer."), "blk.1.indexer.")
    yield drop("missing_indexers", "no layer has an indexer", lambda t: ".indexer." in t, "indexer.")
    yield drop("missing_layer", "layer 3 is missing", lambda t: t.startswith("blk.3."), "blk.3.")
    g = good.copy()
    g.tensors.append(Tensor("blk.1.mystery.weight", [8], T_F32, bytes(32)))
    yield one("unknown_tensor", "a tensor that no layer knows", "blk.1.mystery.weight", g, "dump")
    for n, change in (("output_norm.weight", lambda t: reshaped(t, [63])), ("blk.0.attn_norm.weight", lambda t: reshaped(t, [65])),
                      ("token_embd.weight", lambda t: reshaped(t, t.ne[::-1])), ("output.weight", lambda t: reshaped(t, [t.ne[0], t.ne[1] - 1])),
                      ("blk.1.ffn_down_exps.weight", lambda t: reshaped(t, t.ne[:2] + [t.ne[2] - 1])),
                      ("blk.1.ffn_gate_inp.weight", lambda t: reshaped(t, [t.ne[0], t.ne[1] + 1])),
                      ("blk.1.exp_probs_b.bias", lambda t: reshaped(t, [t.ne[0] - 1])), ("blk.2.attn_q_b.weight", lambda t: reshaped(t, t.ne[::-1])),
                      ("blk.2.attn_k_b.weight", lambda t: reshaped(t, t.ne[:2] + [1])), ("blk.0.indexer.proj.weight", lambda t: reshaped(t, t.ne[::-1])),
                      ("blk.0.indexer.k_norm.bias", lambda t: reshaped(t, [1]))):
        yield edit(f"shape_{n}", f"wrong shape of {n}", n, change)
    yield edit("norm_i32", "a norm stored as i32", "blk.1.attn_norm.weight", lambda t: retyped(t, T_I32, 0x3c))
    for n in ("blk.0.ffn_gate.weight", "blk.1.ffn_gate_inp.weight", "token_embd.weight", "blk.1.ffn_up_exps.weight"):
        yield edit(f"i8_{n}", f"{n} stored as i8", n, lambda t: retyped(t, T_I8, 1))


# ---- weights that are not numbers ----

def weights(good):
    def poke(name, what, tensor, value, type_=None, at=5):
        g = good.copy()
        t = g.tensor(tensor)
        if type_ is not None:
            retyped(t, type_)
        width = BLOCKS[t.type][1]
        bits = {T_F32: struct.pack("<f", value), T_F16: struct.pack("<e", value), T_BF16: struct.pack("<f", value)[2:],
                T_Q8_0: struct.pack("<e", value)}[t.type]
        data = bytearray(t.data)
        data[at * width:at * width + len(bits)] = bits
        t.data = bytes(data)
        return one(name, what, tensor, g, "dump")
    yield poke("nan_norm", "NaN in a norm", "blk.0.attn_norm.weight", NAN)
    yield poke("inf_norm", "infinity in a norm", "output_norm.weight", INF)
    yield poke("nan_latent_norm", "NaN in a latent norm", "blk.2.attn_kv_a_norm.weight", NAN)
    yield poke("nan_router", "NaN in a row of the router", "blk.1.ffn_gate_inp.weight", NAN)
    yield poke("inf_router", "infinity in a row of the router", "blk.2.ffn_gate_inp.weight", -INF)
    yield poke("nan_bias", "NaN in the routing bias", "blk.1.exp_probs_b.bias", NAN)
    yield poke("inf_bias", "infinity in the routing bias", "blk.2.exp_probs_b.bias", INF)
    yield poke("nan_index_norm", "NaN in the bias of the indexer's norm", "blk.0.indexer.k_norm.bias", NAN)
    yield poke("nan_embedding", "NaN in the embedding", "token_embd.weight", NAN)
    yield poke("nan_matrix", "NaN in a matrix", "blk.1.attn_q_a.weight", NAN)
    yield poke("nan_f16", "NaN in an F16 matrix", "blk.0.ffn_up.weight", NAN, T_F16)
    yield poke("inf_f16", "infinity in an F16 matrix", "blk.0.ffn_down.weight", INF, T_F16, 100)
    yield poke("nan_bf16", "NaN in a BF16 matrix", "blk.0.attn_output.weight", NAN, T_BF16)
    yield poke("nan_q8_0", "a NaN block scale in Q8_0", "blk.0.ffn_gate.weight", NAN, T_Q8_0)
    yield poke("inf_q8_0", "an infinite block scale in Q8_0", "blk.0.attn_output.weight", INF, T_Q8_0)
    yield poke("nan_q8_0_expert", "a NaN block scale in the last block of the experts", "blk.2.ffn_up_exps.weight", NAN, T_Q8_0, -1 % 512)


# ---- tokenizer ----

def tokenizer(good):
    tokens = good.value("tokenizer.ggml.tokens")
    merges = good.value("tokenizer.ggml.merges")
    n = len(tokens)

    def case(name, what, needles, *changes):
        g = good.copy()
        for key, *value in changes:
            if value:
                g.set("tokenizer.ggml." + key, *value)
            else:
                g.drop("tokenizer.ggml." + key)
        return one(name, what, needles, g, "dump")
    for key in ("model", "tokens", "merges"):
        yield case(f"missing_tokenizer_{key}", f"tokenizer.ggml.{key} is missing", f"tokenizer.ggml.{key}", (key,))
    types = good.value("tokenizer.ggml.token_type")
    yield case("tokens_short", "one token fewer than the embedding has rows", "token", ("tokens", ARR, STR, tokens[:-1]), ("token_type", ARR, I32, types[:-1]))
    yield case("tokens_long", "one token more than the embedding has rows", "token", ("tokens", ARR, STR, tokens + [b"extra"]), ("token_type", ARR, I32, types + [1]))
    yield case("tokens_none", "no tokens", "token", ("tokens", ARR, STR, []))
    yield case("tokens_numbers", "tokens are numbers", "tokenizer.ggml.tokens", ("tokens", ARR, U32, list(range(n))))
    yield case("tokens_string", "tokens is a string", "tokenizer.ggml.tokens", ("tokens", STR, "abc"))
    yield case("tokens_equal", "two equal token strings", "token", ("tokens", ARR, STR, tokens[:-9] + [tokens[3]] + tokens[-8:]))
    yield case("token_type_short", "token_type has another length", "token_type", ("token_type", ARR, I32, types[:-1]))
    yield case("token_type_strings", "token_type holds strings", "token_type", ("token_type", ARR, STR, ["1"] * n))
    yield case("merges_no_space", "a merge without a space", "merge", ("merges", ARR, STR, merges[:5] + [b"ab"] + merges[5:]))
    yield case("merges_unknown", "a merge of pieces that are no tokens", "merge", ("merges", ARR, STR, merges + [b"qqqq zzzz"]))
    yield case("merges_empty_side", "a merge with an empty side, which would merge for ever", "merge", ("merges", ARR, STR, merges[:5] + [b" t"] + merges[5:]))
    yield case("merges_numbers", "merges are numbers", "merge", ("merges", ARR, I32, [1, 2]))
    for key, v in (("eos_token_id", n), ("eot_token_id", 100000), ("bos_token_id", 2**31), ("eom_token_id", n)):
        yield case(f"{key}_range", f"{key} is {v}", key, (key, U32, v))
    yield case("eos_token_id_string", "eos_token_id is a string", "eos_token_id", ("eos_token_id", STR, "308"))
    yield case("tokenizer_model_unknown", "an unknown tokenizer", ["tokenizer.ggml.model", "unigram"], ("model", STR, "unigram"))
    yield case("tokenizer_pre_unknown", "an unknown pre-tokenizer", ["tokenizer.ggml.pre", "sixth-sense"], ("pre", STR, "sixth-sense"))


def controls(good):
    for type_, label in ((T_F16, "f16"), (T_BF16, "bf16")):
        g = good.copy()
        retyped(g.tensor("blk.1.attn_norm.weight"), type_, 0x3c)
        yield one(f"good_norm_{label}", f"control: a norm stored as {label}, which float32 holds exactly", "", g, "none")
    g = good.copy()
    g.drop("tokenizer.ggml.pre")
    yield one("good_without_tokenizer_pre", "control: tokenizer.ggml.pre is missing, which means the default one", "", g, "none")
    g = good.copy()
    g.set("tokenizer.ggml.bos_token_id", U32, 2**32 - 1)
    yield one("good_bos_none", "control: bos_token_id is -1, as some files say that there is none", "", g, "none")
    yield Case("good", "control: the file itself", "", {"model.gguf": good.bytes()}, "none")
    yield Case("good_split_name", "control: a whole file whose name looks like a part", "", {"model-00001-of-00013.gguf": good.bytes()}, "none")
    pad = -len(good.tensors[-1].data) % good.align
    yield Case("good_no_padding", "control: the last padding is missing", "", {"model.gguf": good.bytes()[:len(good.bytes()) - pad]}, "none")
    g = good.copy()
    g.version = 2
    yield Case("good_version_2", "control: version 2", "", {"model.gguf": g.bytes()}, "none")
    g = good.copy()
    g.align = 64
    g.set("general.alignment", U32, 64)
    yield Case("good_alignment_64", "control: alignment 64", "", {"model.gguf": g.bytes()}, "none")


def cases(path):
    """Every case made from the good file at path; names are unique."""
    good, seen = read(path), set()
    for family in (controls, truncations, counts, versions, keys, descriptors, split_sets, general, hyperparameters, binding, weights, tokenizer):
        for case in family(good):
            assert case.name not in seen, case.name
            seen.add(case.name)
            yield case


def write(case, folder):
    os.makedirs(os.path.join(folder, case.name), exist_ok=True)
    for name, data in case.files.items():
        with open(os.path.join(folder, case.name, name), "wb") as f:
            f.write(data)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    manifest = []
    for case in cases(sys.argv[1]):
        manifest.append(case.entry())
        if sys.argv[2] == "--list":
            print(f"{case.refused_by:5} {case.name}: {case.what}")
        else:
            write(case, sys.argv[2])
    if sys.argv[2] != "--list":
        with open(os.path.join(sys.argv[2], "manifest.json"), "w") as f:
            json.dump(manifest, f, indent=1)
    print(f"{sum(e['refused_by'] != 'none' for e in manifest)} damaged, {sum(e['refused_by'] == 'none' for e in manifest)} controls")


if __name__ == "__main__":
    main()
