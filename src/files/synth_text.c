#include "files/synth_text.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/map.h"
#include "base/rng.h"
#include "text/tokenizer_parts.h"

// Those of GLM; the ones from <think> on are user-defined in the original too.
static const char *const specials[] = {
    "<|endoftext|>", "[MASK]",          "[gMASK]",         "[sMASK]",
    "<sop>",         "<eop>",           "<|system|>",      "<|user|>",
    "<|assistant|>", "<|observation|>", "<think>",         "</think>",
    "<tool_call>",   "</tool_call>",    "<tool_response>", "</tool_response>",
    "<arg_key>",     "</arg_key>",      "<arg_value>",     "</arg_value>",
};
#define N_SPECIALS (sizeof specials / sizeof specials[0])
enum { END_OF_TEXT = 0, GMASK = 2, USER = 7, OBSERVATION = 9, THINK = 10 }; // places in the list
#define MAX_WORD_BYTES 24

static const char chat_template[] =
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";

struct vocabulary {
    struct lp_arena arena;
    struct lp_str *tokens, *merges; // room for n_wanted, as the three below
    struct lp_str *bytes;           // of a token, where `tokens` has their spelling
    int32_t *types;
    uint32_t *words; // tokens that longer ones may be made of
    size_t n_tokens, n_merges, n_words, n_wanted;
    struct lp_map known, pairs; // spelling -> token; two ids -> the token that they become
    struct lp_rng rng;
    bool failed;
};

static bool add_token(struct vocabulary *v, const char *text, size_t n, int32_t type) {
    char *copy = lp_arena_strndup(&v->arena, text, n);
    struct lp_str token = {copy, n};
    if (!copy || !lp_map_add(&v->known, token, (uint32_t)v->n_tokens, NULL)) {
        v->failed = true;
        return false;
    }
    v->tokens[v->n_tokens] = token;
    v->types[v->n_tokens++] = type;
    return true;
}

struct pair {
    uint32_t a, b;
};

static struct lp_str view_of(const struct pair *pair) {
    return (struct lp_str){(const char *)pair, sizeof *pair};
}

// Whether the text of a + b is cut into a and b by the merges so far: only then is it cut into the
// new token once that has a merge, now and when later merges have come. Merges are ranked by the
// ids that they give.
static bool meet(const struct vocabulary *v, uint32_t a, uint32_t b) {
    uint32_t pieces[2 * MAX_WORD_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < v->bytes[a].len; i++) pieces[n++] = (uint8_t)v->bytes[a].data[i];
    for (size_t i = 0; i < v->bytes[b].len; i++) pieces[n++] = (uint8_t)v->bytes[b].data[i];
    for (;;) {
        uint32_t best = LP_MAP_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            struct pair pair = {pieces[i], pieces[i + 1]};
            uint32_t to = lp_map_get(&v->pairs, view_of(&pair));
            if (to >= best) continue;
            best = to;
            at = i;
        }
        if (best == LP_MAP_NONE) return n == 2 && pieces[0] == a && pieces[1] == b;
        pieces[at] = best;
        n--;
        memmove(pieces + at + 1, pieces + at + 2, (n - at - 1) * sizeof *pieces);
    }
}

static bool concatenate(struct vocabulary *v, struct lp_str a, struct lp_str b, const char *between,
                        struct lp_str *out) {
    char text[4 * MAX_WORD_BYTES + 2];
    int n =
        snprintf(text, sizeof text, "%.*s%s%.*s", (int)a.len, a.data, between, (int)b.len, b.data);
    *out = (struct lp_str){lp_arena_strndup(&v->arena, text, (size_t)n), (size_t)n};
    v->failed = v->failed || !out->data;
    return !v->failed;
}

// The token a + b and its merge, where there is room and it is new.
static void add_merge(struct vocabulary *v, uint32_t a, uint32_t b, bool is_word) {
    struct lp_str left = v->tokens[a], right = v->tokens[b], text;
    uint32_t id = (uint32_t)v->n_tokens;
    if (v->failed || v->n_tokens + N_SPECIALS >= v->n_wanted) return;
    if (v->bytes[a].len + v->bytes[b].len > MAX_WORD_BYTES || !meet(v, a, b)) return;
    if (!concatenate(v, left, right, "", &text)) return;
    if (lp_map_get(&v->known, text) != LP_MAP_NONE) return;
    struct pair *pair = lp_arena_alloc(&v->arena, 1, sizeof *pair);
    if (!pair || !add_token(v, text.data, text.len, LP_TOKEN_NORMAL)) {
        v->failed = true;
        return;
    }
    *pair = (struct pair){a, b};
    if (!lp_map_add(&v->pairs, view_of(pair), id, NULL)) v->failed = true;
    concatenate(v, v->bytes[a], v->bytes[b], "", &v->bytes[id]);
    concatenate(v, left, right, " ", &v->merges[v->n_merges++]);
    if (is_word) v->words[v->n_words++] = id;
}

static uint32_t below(struct vocabulary *v, size_t n) {
    return (uint32_t)(lp_rng_unit(&v->rng) * (double)n);
}

// A letter; low ones of this order are the frequent ones of English.
static uint32_t letter(struct vocabulary *v) {
    static const char order[] = "etaoinshrdlucmwfgypbvkjxqz";
    double u = lp_rng_unit(&v->rng);
    return (uint32_t)order[(size_t)(u * u * 26)];
}

static void make_words(struct vocabulary *v) {
    for (uint32_t c = 'a'; c <= 'z'; c++) add_merge(v, ' ', c, true);
    for (uint32_t a = 'a'; a <= 'z'; a++) // "th", "qu", ...
        for (uint32_t b = 'a'; b <= 'z'; b++)
            if (strchr("aeiouhrtn", (int)a) || strchr("aeiou", (int)b)) add_merge(v, a, b, true);
    add_merge(v, ' ', ' ', false);
    add_merge(v, '\n', '\n', false);
    while (!v->failed && v->n_words && v->n_tokens + N_SPECIALS < v->n_wanted) {
        uint32_t a = v->words[below(v, v->n_words)], b = letter(v);
        if (lp_rng_unit(&v->rng) < 0.5) b = v->words[below(v, v->n_words)];
        char first = v->tokens[b].data[0];
        if (first >= 'a' && first <= 'z') add_merge(v, a, b, true);
    }
}

static void set_keys(struct lp_gguf_writer *w, const struct vocabulary *v) {
    uint32_t first = (uint32_t)(v->n_tokens - N_SPECIALS);
    lp_gguf_writer_str(w, "tokenizer.ggml.model", lp_str_from("gpt2"));
    lp_gguf_writer_str(w, "tokenizer.ggml.pre", lp_str_from("glm4"));
    lp_gguf_writer_strings(w, "tokenizer.ggml.tokens", v->tokens, v->n_tokens);
    lp_gguf_writer_array(w, "tokenizer.ggml.token_type", LP_GGUF_I32, v->types, v->n_tokens);
    lp_gguf_writer_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    lp_gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", first + GMASK);
    lp_gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", first + END_OF_TEXT);
    lp_gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", first + END_OF_TEXT);
    lp_gguf_writer_u32(w, "tokenizer.ggml.eot_token_id", first + USER);
    lp_gguf_writer_u32(w, "tokenizer.ggml.eom_token_id", first + OBSERVATION);
    lp_gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
    lp_gguf_writer_str(w, "tokenizer.chat_template", lp_str_from(chat_template));
}

// Bytes are tokens 0 ... 255, so that a byte is its own id.
static void make(struct vocabulary *v) {
    for (unsigned byte = 0; byte < 256 && !v->failed; byte++) {
        char buffer[2];
        struct lp_str spelling = lp_bpe_spell_byte(byte, buffer);
        char *copy = lp_arena_alloc(&v->arena, 1, 1);
        if (copy) *copy = (char)byte;
        v->failed = v->failed || !copy;
        v->bytes[byte] = (struct lp_str){copy, 1};
        if (!v->failed) add_token(v, spelling.data, spelling.len, LP_TOKEN_NORMAL);
    }
    if (!v->failed) make_words(v);
    for (size_t i = 0; i < N_SPECIALS && !v->failed; i++)
        add_token(v, specials[i], strlen(specials[i]),
                  i >= THINK ? LP_TOKEN_USER_DEFINED : LP_TOKEN_CONTROL);
}

lp_status lp_synth_text(struct lp_gguf_writer *w, int64_t n_vocab, uint64_t seed,
                        struct lp_err *err) {
    if (n_vocab < LP_SYNTH_MIN_VOCAB || n_vocab > LP_SYNTH_MAX_VOCAB)
        return lp_err_set(err, LP_STATUS_INVALID,
                          "a vocabulary of %lld tokens cannot be made, expected %d to %d",
                          (long long)n_vocab, LP_SYNTH_MIN_VOCAB, LP_SYNTH_MAX_VOCAB);
    size_t n = (size_t)n_vocab;
    struct vocabulary v = {.n_wanted = n};
    v.tokens = lp_alloc(n, sizeof *v.tokens);
    v.merges = lp_alloc(n, sizeof *v.merges);
    v.bytes = lp_alloc(n, sizeof *v.bytes);
    v.types = lp_alloc(n, sizeof *v.types);
    v.words = lp_alloc(n, sizeof *v.words);
    lp_rng_init(&v.rng, seed);
    v.failed =
        !v.tokens || !v.merges || !v.bytes || !v.types || !v.words || !lp_map_reserve(&v.known, n);
    if (!v.failed) make(&v);
    if (!v.failed) set_keys(w, &v);
    lp_status status = v.failed ? lp_err_memory(err, n * 64, "the vocabulary") : LP_OK;
    lp_arena_release(&v.arena);
    lp_map_release(&v.known);
    lp_map_release(&v.pairs);
    lp_free(v.bytes);
    lp_free(v.tokens);
    lp_free(v.merges);
    lp_free(v.types);
    lp_free(v.words);
    return status;
}
