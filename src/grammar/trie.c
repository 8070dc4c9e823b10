// Tokens sorted by their bytes lie in the order of the tree: each shares its beginning with the one
// before it.
#include "grammar/trie.h"

#include <stdlib.h>

#include "base/grow.h"

#define MAX_TOKEN_BYTES 2048 // a longer token is never allowed

struct sort_key {
    uint64_t prefix; // its first 8 bytes, so that most comparisons are one
    struct lp_str text;
    int32_t id;
};

static uint64_t prefix_of(struct lp_str text) {
    uint64_t prefix = 0;
    for (size_t i = 0; i < 8; i++)
        prefix = prefix << 8 | (i < text.len ? (unsigned char)text.data[i] : 0);
    return prefix;
}

static int by_bytes(const void *a, const void *b) {
    const struct sort_key *x = a, *y = b;
    if (x->prefix != y->prefix) return x->prefix < y->prefix ? -1 : 1;
    size_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
    int order = memcmp(x->text.data, y->text.data, n);
    if (order) return order;
    if (x->text.len != y->text.len) return x->text.len < y->text.len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

// ---- one tree ----

static size_t common_length(struct lp_str a, struct lp_str b) {
    size_t n = 0;
    while (n < a.len && n < b.len && a.data[n] == b.data[n]) n++;
    return n;
}

struct path { // the nodes of the token before, by depth
    uint32_t nodes[MAX_TOKEN_BYTES + 1];
    size_t depth;
};

static void leave(struct lp_trie_part *part, struct path *path, size_t depth) {
    while (path->depth > depth) part->nodes[path->nodes[path->depth--]].skip = part->n_nodes;
}

static bool add_nodes(struct lp_trie_part *part, size_t *capacity, struct path *path,
                      struct lp_str text, uint32_t n_ids) {
    while (path->depth < text.len) {
        if (!LP_GROW(part->nodes, *capacity, part->n_nodes + 2)) return false;
        uint8_t byte = (uint8_t)text.data[path->depth];
        part->nodes[part->n_nodes] = (struct lp_trie_node){
            .first_id = n_ids, .depth = (uint16_t)++path->depth, .byte = byte};
        path->nodes[path->depth] = part->n_nodes++;
    }
    return true;
}

static bool make_part(struct lp_trie_part *part, const struct sort_key *keys, size_t n,
                      struct path *path) {
    size_t capacity = 0;
    struct lp_str before = {"", 0};
    part->ids = lp_alloc(n, sizeof *part->ids);
    if (!part->ids || !LP_GROW(part->nodes, capacity, 1)) return false;
    path->depth = 0;
    for (size_t i = 0; i < n; i++) {
        leave(part, path, common_length(before, keys[i].text));
        if (!add_nodes(part, &capacity, path, keys[i].text, (uint32_t)i)) return false;
        part->ids[i] = keys[i].id;
        before = keys[i].text;
        if (before.len > part->max_depth) part->max_depth = (uint32_t)before.len;
    }
    leave(part, path, 0);
    part->nodes[part->n_nodes] =
        (struct lp_trie_node){.skip = part->n_nodes, .first_id = (uint32_t)n};
    return true;
}

// ---- the vocabulary ----

static bool read_tokens(struct lp_token_trie *t, lp_token_bytes_fn bytes, void *user,
                        const bool *is_control) {
    struct lp_bytes text = {.max_bytes = UINT32_MAX};
    for (int32_t id = 0; id < t->n_vocab; id++) {
        size_t from = text.len;
        t->offsets[id] = (uint32_t)from;
        t->is_control[id] = is_control && is_control[id];
        if (t->is_control[id]) continue;
        bool is_text = bytes(user, id, &text) && text.len - from <= MAX_TOKEN_BYTES;
        if (text.failed) break;
        if (!is_text) text.len = from;
    }
    t->offsets[t->n_vocab] = (uint32_t)text.len;
    if (!text.data) lp_bytes_puts(&text, "");
    t->text = text.data;
    return !text.failed;
}

static bool make_parts(struct lp_token_trie *t, struct sort_key *keys) {
    struct path *path = lp_alloc(1, sizeof *path);
    bool ok = path != NULL;
    for (int i = 0; i < LP_SET_LENGTHS && ok; i++) {
        size_t n = 0;
        for (int32_t id = 0; id < t->n_vocab; id++) {
            struct lp_str text = lp_token_trie_bytes(t, id);
            if (text.len && (text.len > LP_SHORT_TOKEN_BYTES) == (i == 1))
                keys[n++] = (struct sort_key){prefix_of(text), text, id};
        }
        qsort(keys, n, sizeof *keys, by_bytes);
        ok = make_part(&t->parts[i], keys, n, path);
    }
    lp_free(path);
    return ok;
}

static bool fill(struct lp_token_trie *t, lp_token_bytes_fn bytes, void *user,
                 const bool *is_control) {
    size_t n = (size_t)t->n_vocab;
    t->offsets = lp_alloc(n + 1, sizeof *t->offsets);
    t->is_control = lp_alloc(n, sizeof *t->is_control);
    if (!t->offsets || !t->is_control || !read_tokens(t, bytes, user, is_control)) return false;
    for (size_t i = 0; i < t->offsets[n]; i++) t->writable.bytes[(unsigned char)t->text[i]] = true;
    t->writable.is_control = t->is_control;
    t->writable.n_vocab = t->n_vocab;
    struct sort_key *keys = lp_alloc(n, sizeof *keys);
    bool ok = keys && make_parts(t, keys);
    lp_free(keys);
    return ok;
}

lp_status lp_token_trie_new(struct lp_token_trie **out, int32_t n_vocab, lp_token_bytes_fn bytes,
                            void *user, const bool *is_control, struct lp_err *err) {
    struct lp_token_trie *t = lp_alloc(1, sizeof *t);
    *out = NULL;
    if (t) t->n_vocab = n_vocab;
    if (!t || !fill(t, bytes, user, is_control)) {
        lp_token_trie_free(t);
        return lp_err_memory(err, 0, "the tree of the vocabulary");
    }
    *out = t;
    return LP_OK;
}

void lp_token_trie_free(struct lp_token_trie *t) {
    if (!t) return;
    for (int i = 0; i < LP_SET_LENGTHS; i++) {
        lp_free(t->parts[i].nodes);
        lp_free(t->parts[i].ids);
    }
    lp_free(t->text);
    lp_free(t->offsets);
    lp_free(t->is_control);
    lp_free(t);
}
