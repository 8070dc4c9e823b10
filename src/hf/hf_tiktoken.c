// tiktoken.model, as Kimi K2 has it: a line per token, its bytes in base64 and its rank, which is
// its id. tiktoken merges the two neighbours whose joint bytes have the lowest rank. The merge that
// makes a token is therefore the one that is left when its own bytes are merged by lower ranks
// only; a list of these in order of rank does the same as the ranks.
//
// Which expression splits texts, the file does not say; it is known for Kimi's.
#include "hf/hf_vocab.h"

#include <inttypes.h>

#include "base/log.h"
#include "text/tokenizer_parts.h"

enum {
    MAX_TOKEN_BYTES = 512,
    N_RESERVED = 256, // ids behind the ranks that Kimi's tokenizer keeps for special tokens
};

struct ranks {
    struct lp_str *bytes; // [n] by rank; data NULL: none
    uint32_t n, n_used;
    size_t longest;
    struct lp_map by_bytes;
    uint32_t single[256]; // rank of each byte
    struct lp_arena arena;
};

// ---- the file

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Into out, which has room for 3 bytes per 4 characters. The number of bytes; 0: no base64.
static size_t base64(struct lp_str text, char *out) {
    size_t n = 0;
    uint32_t bits = 0;
    while (text.len && text.data[text.len - 1] == '=') text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int digit = base64_digit(text.data[i]);
        if (digit < 0) return 0;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4) out[n++] = (char)(bits >> (6 - 2 * (i % 4)) & 0xFF);
    }
    return text.len % 4 == 1 ? 0 : n;
}

static lp_status read_line(struct ranks *r, struct lp_str line, size_t number, struct lp_err *err) {
    char bytes[MAX_TOKEN_BYTES + 3];
    const char *space = memchr(line.data, ' ', line.len);
    size_t code_len = space ? (size_t)(space - line.data) : 0, digits = 0;
    uint32_t rank = 0;
    for (size_t i = code_len + 1; space && i < line.len; i++, digits++) {
        if (line.data[i] < '0' || line.data[i] > '9' || digits == 8) goto damaged;
        rank = rank * 10 + (uint32_t)(line.data[i] - '0');
    }
    if (code_len > MAX_TOKEN_BYTES / 3 * 4)
        return lp_err_set(err, LP_STATUS_LIMIT,
                          "tiktoken.model: line %zu has a token of more than %d bytes", number,
                          MAX_TOKEN_BYTES);
    size_t len = base64((struct lp_str){line.data, code_len}, bytes);
    if (!len || !digits) goto damaged;
    if (rank >= r->n)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tiktoken.model: line %zu has the rank %" PRIu32
                          ", but the embedding has %" PRIu32 " rows (vocab_size)",
                          number, rank, r->n);
    uint32_t old;
    char *copy = lp_arena_strndup(&r->arena, bytes, len);
    struct lp_str token = {copy, len};
    if (!copy || !lp_map_add(&r->by_bytes, token, rank, &old))
        return lp_err_memory(err, len, "tiktoken.model");
    if (old != LP_MAP_NONE || r->bytes[rank].data)
        return lp_err_set(err, LP_STATUS_FORMAT,
                          "tiktoken.model: line %zu repeats a token or the rank %" PRIu32, number,
                          rank);
    r->bytes[rank] = token;
    r->n_used++;
    if (len > r->longest) r->longest = len;
    if (len == 1) r->single[(unsigned char)bytes[0]] = rank;
    return LP_OK;
damaged:
    return lp_err_set(
        err, LP_STATUS_FORMAT,
        "tiktoken.model: line %zu is \"%.*s\", expected a token in base64, a space and "
        "its rank",
        number, LP_STR_ARGS(line));
}

static lp_status read_file(struct ranks *r, struct lp_str text, struct lp_err *err) {
    lp_status status = LP_OK;
    size_t number = 1;
    for (size_t at = 0; at < text.len && !status; number++) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        size_t len = (end ? (size_t)(end - text.data) : text.len) - at;
        struct lp_str line = {text.data + at, len};
        at += len + 1;
        if (line.len && line.data[line.len - 1] == '\r') line.len--;
        if (line.len) status = read_line(r, line, number, err);
    }
    for (uint32_t i = 0; i < r->n_used && !status; i++)
        if (!r->bytes[i].data)
            status = lp_err_set(err, LP_STATUS_FORMAT,
                                "tiktoken.model has %" PRIu32 " tokens, but none of rank %" PRIu32,
                                r->n_used, i);
    for (unsigned i = 0; i < 256 && !status; i++)
        if (r->single[i] == LP_MAP_NONE)
            status = lp_err_set(err, LP_STATUS_FORMAT,
                                "tiktoken.model has no token for the byte 0x%02X", i);
    return status;
}

// ---- merges

struct below {
    const struct ranks *ranks;
    struct lp_str token;
    uint32_t limit; // ranks that may be used are lower
};

static void rank_pair(const void *ctx, struct lp_pair_symbol *left,
                      const struct lp_pair_symbol *right) {
    const struct below *b = ctx;
    struct lp_str joint = {b->token.data + left->start, (size_t)left->len + right->len};
    uint32_t rank = lp_map_get(&b->ranks->by_bytes, joint);
    if (rank == LP_MAP_NONE || rank >= b->limit) return;
    left->rank = left->result = rank;
}

// The length of the first of the two parts that make a token; 0: more than two are left.
static size_t first_part(const struct ranks *r, struct lp_pair_work *work, uint32_t rank) {
    struct below ctx = {r, r->bytes[rank], rank};
    for (size_t i = 0; i < ctx.token.len; i++)
        work->symbols[i] = (struct lp_pair_symbol){
            .start = (uint32_t)i, .len = 1, .id = r->single[(unsigned char)ctx.token.data[i]]};
    lp_pair_merge(work, ctx.token.len, rank_pair, &ctx);
    size_t first = work->symbols[0].len;
    uint32_t second = work->symbols[0].next;
    return second != LP_PAIR_NONE && first + work->symbols[second].len == ctx.token.len ? first : 0;
}

static void spell(struct lp_bytes *out, struct lp_str bytes) {
    for (size_t i = 0; i < bytes.len; i++) {
        char buffer[2];
        struct lp_str spelling = lp_bpe_spell_byte((unsigned char)bytes.data[i], buffer);
        lp_bytes_append(out, spelling.data, spelling.len);
    }
}

// A copy of what is in the buffer; data NULL: out of memory.
static struct lp_str keep(struct lp_hf_vocab *v, struct lp_bytes *text) {
    return (struct lp_str){text->failed ? NULL : lp_arena_strndup(&v->arena, text->data, text->len),
                           text->len};
}

// The token of a rank, and the merge that makes it.
static lp_status put_rank(struct lp_hf_vocab *v, const struct ranks *r, struct lp_pair_work *work,
                          uint32_t rank, struct lp_bytes *text, size_t *n_lost,
                          struct lp_err *err) {
    struct lp_str bytes = r->bytes[rank];
    lp_bytes_clear(text);
    spell(text, bytes);
    struct lp_str token = keep(v, text);
    if (!token.data) return lp_err_memory(err, bytes.len, "tiktoken.model");
    lp_status status = lp_hf_vocab_put(v, rank, token, LP_TOKEN_NORMAL, err);
    if (status || bytes.len == 1) return status;
    size_t first = first_part(r, work, rank);
    if (!first) {
        ++*n_lost;
        return LP_OK;
    }
    lp_bytes_clear(text);
    spell(text, (struct lp_str){bytes.data, first});
    lp_bytes_puts(text, " ");
    spell(text, (struct lp_str){bytes.data + first, bytes.len - first});
    struct lp_str merge = keep(v, text);
    if (!merge.data || !lp_hf_vocab_put_merge(v, merge))
        return lp_err_memory(err, bytes.len, "the merges");
    return LP_OK;
}

static lp_status put_all(struct lp_hf_vocab *v, const struct ranks *r, struct lp_err *err) {
    struct lp_pair_work work = {0};
    struct lp_bytes text = {0};
    size_t n_lost = 0;
    lp_status status = LP_OK;
    if (!lp_pair_reserve(&work, r->longest))
        status = lp_err_memory(err, r->longest * sizeof *work.symbols, "tiktoken.model");
    for (uint32_t rank = 0; rank < r->n_used && !status; rank++)
        status = put_rank(v, r, &work, rank, &text, &n_lost, err);
    if (!status && n_lost)
        lp_log(LP_LOG_WARN,
               "tiktoken.model has %zu tokens that no two others make; no text becomes "
               "one of them",
               n_lost);
    lp_pair_release(&work);
    lp_bytes_release(&text);
    return status;
}

// ---- special tokens

static bool is_kimi(const json_t *config) {
    const json_t *list = json_object_get(json_object_get(config, "auto_map"), "AutoTokenizer");
    const char *class = json_string_value(json_array_get(list, 0));
    return lp_hf_text_is(json_object_get(config, "tokenizer_class"), "TikTokenTokenizer") ||
           (class && strstr(class, "tokenization_kimi."));
}

// Ids behind the ranks that tokenizer_config.json does not name.
static lp_status put_reserved(struct lp_hf_vocab *v, uint32_t first, struct lp_err *err) {
    lp_status status = LP_OK;
    for (uint32_t id = first; id < v->n && id - first < N_RESERVED && !status; id++) {
        if (v->texts[id].data) continue;
        char name[40];
        int len = snprintf(name, sizeof name, "<|reserved_token_%" PRIu32 "|>", id);
        char *text = lp_arena_strndup(&v->arena, name, (size_t)len);
        if (!text) return lp_err_memory(err, sizeof name, "reserved tokens");
        status = lp_hf_vocab_put(v, id, (struct lp_str){text, (size_t)len}, LP_TOKEN_CONTROL, err);
    }
    return status;
}

lp_status lp_hf_tiktoken(struct lp_hf_vocab *v, const struct lp_hf_folder *folder,
                         struct lp_err *err) {
    if (!is_kimi(folder->tokenizer_config))
        return lp_err_set(
            err, LP_STATUS_UNSUPPORTED,
            "the folder's tokenizer is tiktoken.model, but tokenizer_config.json does "
            "not name Kimi's class TikTokenTokenizer; how it splits texts is not known, "
            "add a tokenizer.json");
    struct ranks r = {.n = v->n, .bytes = lp_alloc(v->n, sizeof *r.bytes)};
    memset(r.single, 0xFF, sizeof r.single);
    lp_status status = LP_OK;
    if (!r.bytes) status = lp_err_memory(err, v->n * sizeof *r.bytes, "tiktoken.model");
    if (!status)
        status = read_file(&r, (struct lp_str){folder->tiktoken, folder->tiktoken_len}, err);
    if (!status) status = put_all(v, &r, err);
    if (!status) status = lp_hf_vocab_added(v, NULL, folder->tokenizer_config, false, err);
    if (!status) status = put_reserved(v, r.n_used, err);
    v->model = "gpt2";
    v->pre = "kimi-k2";
    lp_free(r.bytes);
    lp_map_release(&r.by_bytes);
    lp_arena_release(&r.arena);
    return status;
}
