// The tokenizer under arbitrary text and arbitrary vocabularies.
//
// First byte even: the rest is text, encoded with every pre-tokenizer over a byte-level vocabulary
// and with an SPM one. What is checked: no error, ids in range, decoding gives the text back (where
// it is UTF-8), the streamed text equals the text decoded at once, and equals U+FFFD-mended input
// otherwise. First byte odd: the rest is a vocabulary, one token or merge a line; it is built or
// refused, and then encodes its own source.
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "text/tokenizer_parts.h"
#include "base/utf8_step.h"

enum { N_BYTES = 256, MAX_TOKENS = 600 };

static const char *const EXTRA[] = {"aa",        "aaaa",        "th",  "the",
                                    "\xC4\xA0t", "\xC4\xA0the", "11",  "111",
                                    "<|user|>",  "<think>",     "<th", "\xC4\xA0\xC4\xA0"};
static const char *const MERGES[] = {"a a",  "aa aa",      "t h",
                                     "th e", "\xC4\xA0 t", "\xC4\xA0 the",
                                     "1 1",  "11 1",       "\xC4\xA0 \xC4\xA0"};

struct vocab {
    char texts[MAX_TOKENS][24];
    struct lp_str tokens[MAX_TOKENS], merges[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    struct lp_vocab_params params;
};

static void add(struct vocab *v, const char *text, int32_t type, float score) {
    uint32_t i = v->params.n_tokens++;
    snprintf(v->texts[i], sizeof v->texts[i], "%s", text);
    v->tokens[i] = lp_str_from(v->texts[i]);
    v->types[i] = type;
    v->scores[i] = score;
}

static void begin(struct vocab *v, const char *model, const char *pre) {
    memset(v, 0, sizeof *v);
    v->params = (struct lp_vocab_params){.model = lp_str_from(model),
                                         .pre = lp_str_from(pre),
                                         .tokens = v->tokens,
                                         .types = v->types,
                                         .scores = v->scores,
                                         .merges = v->merges,
                                         .bos = -1,
                                         .eos = -1,
                                         .eot = -1,
                                         .eom = -1,
                                         .unk = -1,
                                         .pad = -1,
                                         .add_bos = -1,
                                         .add_eos = -1,
                                         .add_space_prefix = -1};
}

static void add_bytes(struct vocab *v, bool spm) {
    for (unsigned b = 0; b < N_BYTES; b++) {
        char text[8];
        uint32_t c = lp_bpe_byte_char(b);
        if (spm)
            snprintf(text, sizeof text, "<0x%02X>", b);
        else if (c < 0x80)
            snprintf(text, sizeof text, "%c", (int)c);
        else
            snprintf(text, sizeof text, "%c%c", (int)(0xC0 | c >> 6), (int)(0x80 | (c & 0x3F)));
        add(v, text, spm ? LP_TOKEN_BYTE : LP_TOKEN_NORMAL, 0);
    }
}

static struct lp_tokenizer *build_or_stop(const struct vocab *v) {
    struct lp_tokenizer *tok;
    if (lp_tokenizer_new(&tok, &v->params, NULL)) abort();
    return tok;
}

static struct lp_tokenizer *make_bpe(struct vocab *v, const char *pre) {
    begin(v, "gpt2", pre);
    add_bytes(v, false);
    for (size_t i = 0; i < sizeof EXTRA / sizeof *EXTRA; i++)
        add(v, EXTRA[i],
            EXTRA[i][0] != '<' ? LP_TOKEN_NORMAL
            : i == 9           ? LP_TOKEN_USER_DEFINED
                               : LP_TOKEN_CONTROL,
            0);
    for (size_t i = 0; i < sizeof MERGES / sizeof *MERGES; i++)
        v->merges[i] = lp_str_from(MERGES[i]);
    v->params.n_merges = sizeof MERGES / sizeof *MERGES;
    return build_or_stop(v);
}

static struct lp_tokenizer *make_spm(struct vocab *v) {
    static const char *const pieces[] = {"a",
                                         "aa",
                                         "b",
                                         "ab",
                                         "\xE2\x96\x81",
                                         ("\xE2\x96\x81"
                                          "a"),
                                         "the",
                                         "\xE2\x96\x81the",
                                         "th",
                                         "t",
                                         "h",
                                         "e",
                                         "\xC3\xA9"};
    begin(v, "llama", "");
    add_bytes(v, true);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        add(v, pieces[i], LP_TOKEN_NORMAL, -(float)(i * 7 % 5));
    add(v, "<think>", LP_TOKEN_USER_DEFINED, 0);
    add(v, "<|user|>", LP_TOKEN_CONTROL, 0);
    return build_or_stop(v);
}

static struct lp_bytes mend(struct lp_str text) {
    struct lp_bytes out = {0};
    for (size_t at = 0, n; at < text.len; at += n) {
        const unsigned char *p = (const unsigned char *)text.data + at;
        if (lp_utf8_step(p, text.len - at, &n) == LP_UTF8_WHOLE)
            lp_bytes_append(&out, p, n);
        else
            lp_bytes_puts(&out, LP_UTF8_REPLACEMENT);
    }
    return out;
}

static void check_text(const struct lp_tokenizer *tok, struct lp_str text, unsigned flags) {
    struct lp_ids ids = {0};
    struct lp_bytes whole = {0}, streamed = {0};
    struct lp_detok detok;
    if (lp_tokenizer_encode(tok, text, flags, &ids.data, &ids.n, &ids.capacity, NULL)) abort();
    lp_detok_init(&detok, tok, false);
    for (size_t i = 0; i < ids.n; i++) {
        if (!lp_tokenizer_piece(tok, ids.data[i], false, &whole)) abort();
        if (!lp_detok_push(&detok, ids.data[i], &streamed)) abort();
    }
    if (!lp_detok_finish(&detok, &streamed)) abort();
    if (!tok->is_spm) { // SPM adds spaces after special tokens and merges U+2581 with the space
        struct lp_bytes want = mend(text);
        if (!lp_str_equal(lp_bytes_view(&whole), lp_bytes_view(&want))) abort();
        if (!lp_str_equal(lp_bytes_view(&streamed), lp_bytes_view(&want))) abort();
        lp_bytes_release(&want);
    }
    lp_bytes_release(&whole);
    lp_bytes_release(&streamed);
    lp_free(ids.data);
}

static void check_vocabulary(struct lp_str text) {
    static struct vocab v;
    bool spm = text.len && text.data[0] & 1;
    begin(&v, spm ? "llama" : "gpt2", text.len > 1 && text.data[1] & 1 ? "kimi-k2" : "llama-bpe");
    add_bytes(&v, spm);
    for (size_t at = 2;
         at < text.len && v.params.n_tokens < MAX_TOKENS && v.params.n_merges < MAX_TOKENS;) {
        const char *line = text.data + at, *end = memchr(line, '\n', text.len - at);
        size_t len = end ? (size_t)(end - line) : text.len - at;
        at += len + 1;
        if (len && line[0] == 'm') {
            v.merges[v.params.n_merges++] = (struct lp_str){line + 1, len - 1};
        } else if (len) {
            uint32_t i = v.params.n_tokens++;
            v.tokens[i] = (struct lp_str){line + 1, len - 1};
            v.types[i] = line[0] % 8;
            v.scores[i] = (float)(signed char)line[len - 1];
        }
    }
    v.params.bos = text.len > 3 ? text.data[3] * 3 : -1;
    struct lp_tokenizer *tok;
    if (lp_tokenizer_new(&tok, &v.params, NULL)) return;
    check_text(tok, text, LP_ENCODE_SPECIAL);
    lp_tokenizer_free(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct vocab scratch;
    static struct lp_tokenizer *toks[32];
    static size_t n_toks;
    if (!n_toks) {
        lp_log_set_level(LP_LOG_ERROR);
        size_t n_rows;
        const struct lp_pretok_row *rows = lp_pretok_rows(&n_rows);
        for (size_t i = 0; i < n_rows && i < 30; i++) {
            char name[32] = "";
            strncat(name, rows[i].names, strcspn(rows[i].names, " "));
            toks[n_toks++] = make_bpe(&scratch, name);
        }
        toks[n_toks++] = make_spm(&scratch);
    }
    if (!size) return 0;
    struct lp_str text = {(const char *)data + 1, size - 1};
    if (data[0] & 1) {
        check_vocabulary(text);
        return 0;
    }
    for (size_t i = 0; i < n_toks; i++)
        check_text(toks[i], text, data[0] & 2 ? LP_ENCODE_SPECIAL : 0);
    return 0;
}
