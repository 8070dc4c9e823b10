#!/usr/bin/env python3
"""Makes tests/data/tokenizer/*.json: texts with what other implementations make of them.

  glm4_vocab.json    vocabulary of a small GGUF file (for tests/golden/tokenizer_glm4.json)
  mini_tokenizer.json  the mini model's tokenizer.json as it is
  mini_cases.json    ids from the library tokenizers for mini_tokenizer.json
  pretok_cases.json  pieces from the package regex, checked against the library tokenizers
  spm.json           a BPE model trained with sentencepiece, and its ids

    make_tokenizer_cases.py GLM4.gguf MINI_TOKENIZER.json OUT_DIR

Needs tokenizers, regex and sentencepiece. The output depends only on the arguments.
"""
import io
import json
import os
import random
import shutil
import sys
import unicodedata

import regex
import sentencepiece
import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "e2e"))
import tokenizers_from_gguf as reference  # noqa: E402

HAND = ["", " ", "  ", "   x", "x   ", "hello world", "Hello, World!", "  x", "\n\n x", "a\t\tb", "\n", "\r\n",
        "a\r\nb\r\n\r\n", "I'LL", "I'll we've THEY'RE it's 'tis can't", "he'S she'd I'M you'Re", "1234567",
        "3.14159", "1,000,000", "2024-01-31", "x=1+2*3", "foo_bar(baz)", "a.b.c", "...", "!!!\n\n", "?!\r\n x",
        "\u00e9 e\u0301 \u0301", "caf\u00e9 cafe\u0301", "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u3053\u3093\u306b\u3061\u306f\u30fc\u30ab\u30ca", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5",
        "\U0001f600", "\U0001f44d\U0001f3fd ok", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\u2764\ufe0f",
        "a\u0085b", "\u3000\u3000x", "x\u3000", "a\u00a0b", "\u2028\u2029", "\u180ea", "\u200bword", "\ufeffBOM", "trailing  ",
        "tab\t", "\t\tif x:\n\t\t\treturn", "    four", "  \n  \n", " \r\n \r\n", "\u0661\u0662\u0663\u0664\u0665", "\u00bd\u00b2\u2167\u2460",
        "camelCase XMLHttpRequest iPhone", "\u01c5\u01c6 \u02b0 \u00aa\u00ba", "\u0915\u094d\u0937 \u0928\u092e\u0938\u094d\u0924\u0947", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd",
        "#include <stdio.h>\nint main(void) { return 0; }\n", "{\"a\": [1, 2.5e-3, null]}", "<a href='x'>",
        "C:\\dir\\file", "user@example.com https://x.org/?q=1&r=2", "$100 \u20ac5 50%", "\u201cquoted\u201d \u2018q\u2019 \u2014 \u2013",
        "\u2603\u2604 \u00d7\u00f7\u2211", "\x00\x01\x1f\x7f", "a" * 300, "ab" * 200, " " * 100, "\n" * 50, "1" * 40, "!" * 60,
        "\u4e2d1\u4e2d a\u4e2d b", "\u3007\u2e80\u2f00\u3005", "\u4e00\u9fa5\u9fa6\u0800", "\uff21\uff22\uff01\uff5e", "''s 's 'S", "\u2019s"]
POOL = list(" \t\n\r\r\n  aAbZzsStTrReEvVmMlLdD'''0123456789.,!?-_=+<>|/\\()[]{}$%^~`\"#&*@:;") + list(
    "\x01\x0b\x0c\x1c\x85\xa0\u1680\u180e\u2009\u200b\u200d\u2028\u202f\u205f\u3000\u00df\u00e9\u00c9\u01c5\u02b0\u00aa"
    "\u00c0\u0301\u0308\u0902\u093e\u0915\u094d\u0627\u0661\u4e2d\u56fd\u6f22\u3007\u3005\u2e80\u3072\u30ab\u30fc\ud55c\u1100\u2460\u00b2\u00bd\u2167\U0001f600"
    "\U0001f3fd\ufe0f\ufb01\uff21\uff11\uff01\u3002\u3001\u300c\u2014\u2026\u2019\u201c\u00d7\u20ac\U0001d400\U00010400\U00010428\U00020000")
# Assigned long ago and never re-classified, so that the engines' Unicode versions do not matter.
STABLE = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) ==
          unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Co", "Cs")]


def random_text(rng):
    usual = rng.choice([1.0, 0.9, 0.4])
    return "".join(rng.choice(POOL if rng.random() < usual else STABLE) for _ in range(rng.randint(1, 20)))


def split(pre, text):
    """Pieces by the package regex."""
    pieces = [text] if text else []
    for pattern in reference.PATTERNS[pre]:
        pattern = reference.BUILT_IN.get(pattern, pattern)
        expression = regex.compile(pattern, regex.V1 if "&&" in pattern else regex.V0)
        done = []
        for piece in pieces:
            at = 0
            for match in expression.finditer(piece):
                done += [piece[at:match.start()]] * (match.start() > at) + [match.group()]
                at = match.end()
            done += [piece[at:]] * (at < len(piece))
        pieces = done
    return pieces


def pretok_cases():
    rng = random.Random(11)
    texts = HAND + ["'\u017f I'\u017fo"] + [random_text(rng) for _ in range(90)]
    rows = {}
    for pre in reference.PATTERNS:
        library = reference.pre_tokenizer(pre)
        rows[pre] = []
        for text in texts:
            pieces = split(pre, text)
            other = [text[begin:end] for _, (begin, end) in library.pre_tokenize_str(text)]
            assert pieces == other, (pre, text, pieces, other)
            rows[pre].append([len(piece.encode()) for piece in pieces])
    return {"texts": texts, "pieces_bytes": rows}


def mini_cases(path):
    library = tokenizers.Tokenizer.from_file(path)
    added = [token["content"] for token in json.load(open(path))["added_tokens"]]
    rng = random.Random(12)
    texts = HAND + [f"x{token}y" for token in added] + added + ["".join(added), " ".join(added)]
    texts += ["<|user|", "<|user|><|user", "<<think>>", "<|user |>", "<think></think>", "/nothink/nothin"]
    texts += [random_text(rng) for _ in range(120)]
    for _ in range(60):
        text = random_text(rng)
        texts.append(text[:4] + rng.choice(added) + text[4:] + rng.choice(["", " "]) + rng.choice(added))
    return [{"text": t, "ids": library.encode(t, add_special_tokens=False).ids} for t in texts]


def spm_cases():
    corpus = (__doc__ + open(os.path.join(HERE, "..", "tests", "e2e", "tokenizers_from_gguf.py")).read()
              + "the cat and the hat, the other and another; na\u00efve caf\u00e9 \u4e2d\u56fd \u4e2d\n" * 9)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.splitlines()), model_writer=model, model_type="bpe", vocab_size=600,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, control_symbols=["<|user|>"], minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    n = sp.get_piece_size()
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(n)]
    rng = random.Random(13)
    texts = [t for t in HAND if "\x00" not in t] + [random_text(rng) for _ in range(60)]
    texts += ["".join(rng.choice("aabb  enttheo ") for _ in range(40)) for _ in range(40)]
    return {"tokens": [sp.id_to_piece(i) for i in range(n)], "types": types,
            "scores": [sp.get_score(i) for i in range(n)],
            "cases": [{"text": t, "ids": sp.encode(t)} for t in texts]}


def main():
    gguf, mini, out = sys.argv[1:]
    metadata = reference.read_metadata(gguf)

    def write(name, value):
        rows = value if isinstance(value, list) else None
        with open(os.path.join(out, name), "w") as f:
            if rows:
                f.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
            else:
                f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n}\n")

    write("glm4_vocab.json", {k: v for k, v in metadata.items() if k != "chat_template"})
    if os.path.abspath(mini) != os.path.abspath(os.path.join(out, "mini_tokenizer.json")):
        shutil.copyfile(mini, os.path.join(out, "mini_tokenizer.json"))
    write("mini_cases.json", mini_cases(mini))
    write("pretok_cases.json", pretok_cases())
    write("spm.json", spm_cases())


if __name__ == "__main__":
    main()
