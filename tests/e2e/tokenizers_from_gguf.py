#!/usr/bin/env python3
"""Builds a tokenizers.Tokenizer from the vocabulary inside a GGUF file: an independent reading of the
same arrays, to compare `limpid tokenize` with. Needs the Python package tokenizers, nothing else.

    tokenizers_from_gguf.py MODEL.gguf < texts.jsonl     one JSON string a line -> one JSON list of ids
"""
import json
import struct
import sys

# The patterns as the models' own tokenizer files have them (Oniguruma / Rust syntax), by
# tokenizer.ggml.pre; applied in sequence, matches isolated. "digits" and "bytelevel" name
# pre-tokenizers that are built into the library.
G = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
     r"|\s*[\r\n]+|\s+(?!\S)|\s+")
Q = G.replace(r"\p{N}{1,3}", r"\p{N}")
P = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
CASED = """41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386
388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF
1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D
1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4
1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F
2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B A722-A76F
A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3
104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"""
CASED = "".join("-".join(chr(int(end, 16)) for end in item.split("-")) for item in CASED.split())
D3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
      r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
UPPER, LOWER = (r"[%s\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]" % cased for cased in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
K = "|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + ENDING,
              r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + ENDING, r"\p{N}{1,3}",
              r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

PATTERNS = {
    "glm4": [G], "chatglm-bpe": [G], "llama-bpe": [G], "qwen2": [Q],
    "smollm": ["digits", "bytelevel"], "starcoder": ["digits", "bytelevel"], "gpt-2": ["bytelevel"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", "bytelevel", r"\p{N}+", "[0-9][0-9][0-9]"],
    "deepseek-llm": [r"[\r\n]", r"\s?[" + CASED + "]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$",
                     CJK, "digits"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, "digits"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", D3],
    "kimi-k2": [K],
}
IGNORE_MERGES = {"llama-bpe"}
BUILT_IN = {"digits": r"\p{N}", "bytelevel": P}  # as patterns, for other engines


def read_metadata(path, prefix="tokenizer.ggml."):
    """The metadata keys of a GGUF file that begin with prefix; the rest is skipped over."""
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as f:
        def scalar(kind):
            return struct.unpack("<" + formats[kind], f.read(struct.calcsize(formats[kind])))[0]

        def string():
            return f.read(scalar(10)).decode("utf-8", "surrogateescape")

        def value(kind):
            if kind == 8:
                return string()
            if kind != 9:
                return scalar(kind)
            item, n = scalar(4), scalar(10)
            if item in formats:
                size = struct.calcsize(formats[item])
                return list(struct.unpack(f"<{n}{formats[item]}", f.read(n * size)))
            return [value(item) for _ in range(n)]

        if f.read(4) != b"GGUF":
            raise SystemExit(f"{path} is not a GGUF file")
        scalar(4)
        _, n_keys = scalar(10), scalar(10)
        found = {}
        for _ in range(n_keys):
            key, kind = string(), scalar(4)
            item = value(kind)
            if key.startswith(prefix):
                found[key[len(prefix):]] = item
        return found


def pre_tokenizer(pre):
    from tokenizers import Regex, pre_tokenizers as p
    steps = []
    for pattern in PATTERNS[pre]:
        if pattern == "digits":
            steps.append(p.Digits(individual_digits=True))
        elif pattern == "bytelevel":
            steps.append(p.Split(Regex(P), "isolated"))
        else:
            steps.append(p.Split(Regex(pattern), "isolated"))
    return p.Sequence(steps + [p.ByteLevel(add_prefix_space=False, use_regex=False)])


def build(metadata):
    """A tokenizers.Tokenizer of the arrays tokens, token_type, merges and the name pre."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    if metadata["model"] != "gpt2":
        raise SystemExit(f"tokenizer model {metadata['model']!r} is not byte-level BPE")
    pre = metadata.get("pre", "default")
    tokens = metadata["tokens"]
    types = metadata.get("token_type") or [1] * len(tokens)
    vocab = {text: i for i, text in enumerate(tokens)}
    merges = [tuple(m.split(" ")) for m in metadata["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in IGNORE_MERGES))
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(text, special=kind != 4, normalized=False)
             for text, kind in zip(tokens, types) if kind in (2, 3, 4)]
    for token in added:  # in order: each text is in the vocabulary and keeps its id
        tokenizer.add_tokens([token])
    return tokenizer


def main():
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        print("skipped: the Python package tokenizers is not installed", file=sys.stderr)
        return 77
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    tokenizer = build(read_metadata(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(tokenizer.encode(json.loads(line), add_special_tokens=False).ids))
    return 0


if __name__ == "__main__":
    sys.exit(main())
