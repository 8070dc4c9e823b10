#include "lp_test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "grammar/trie.h"

struct vocab {
    char (*texts)[40];
    int32_t n;
};

static bool token_bytes(void *user, int32_t id, struct lp_bytes *out) {
    struct vocab *v = user;
    return v->texts[id][0] != '!' && lp_bytes_puts(out, v->texts[id]);
}

static struct lp_token_trie *trie_of(struct vocab *v, const bool *is_control) {
    struct lp_token_trie *trie;
    struct lp_err err;
    if (lp_token_trie_new(&trie, v->n, token_bytes, v, is_control, &err)) fail_msg("%s", err.text);
    return trie;
}

// Every node's bytes are those on the way to it, its tokens have just these bytes, and all that
// lies below a node lies before its skip.
static int check_part(const struct lp_token_trie *trie, int part, const struct vocab *v,
                      int *seen) {
    const struct lp_trie_part *p = &trie->parts[part];
    char path[64];
    uint32_t ends[64];
    int n = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct lp_trie_node *node = &p->nodes[i];
        assert_in_range(node->depth, 1, p->max_depth);
        assert_true(node->skip > i && node->skip <= p->n_nodes);
        if (node->depth > 1)
            assert_true(i < ends[node->depth - 1] && node->skip <= ends[node->depth - 1]);
        ends[node->depth] = node->skip;
        path[node->depth - 1] = (char)node->byte;
        path[node->depth] = 0;
        for (uint32_t t = node->first_id; t < node[1].first_id; t++, n++) {
            int32_t id = p->ids[t];
            assert_string_equal(v->texts[id], path);
            assert_true((strlen(path) > LP_SHORT_TOKEN_BYTES) == (part == 1));
            seen[id]++;
        }
        // No two children of a node have the same byte.
        if (i > 0 && p->nodes[i].depth <= p->nodes[i - 1].depth)
            for (uint32_t j = i; j-- > 0 && p->nodes[j].depth >= node->depth;)
                if (p->nodes[j].depth == node->depth) {
                    assert_true(p->nodes[j].byte < node->byte);
                    break;
                }
    }
    return n;
}

static void holds_every_token_once(void **state) {
    (void)state;
    enum { N = 3000 };
    static char texts[N][40];
    static bool is_control[N];
    static int seen[N];
    struct vocab v = {texts, N};
    struct lp_rng rng;
    lp_rng_init(&rng, 5);
    int n_text = 0;
    for (int i = 0; i < N; i++) {
        size_t len = lp_rng_u64(&rng) % (i % 20 ? 7 : 30); // none at all, too
        for (size_t j = 0; j < len; j++)
            texts[i][j] = (char)(lp_rng_u64(&rng) % 4 ? 'a' + lp_rng_u64(&rng) % 3
                                                      : 128 + lp_rng_u64(&rng) % 120);
        if (i % 50 == 1) strcpy(texts[i], "!unused");
        is_control[i] = i % 30 == 2;
        n_text += texts[i][0] && texts[i][0] != '!' && !is_control[i];
    }
    struct lp_token_trie *trie = trie_of(&v, is_control);
    assert_int_equal(check_part(trie, 0, &v, seen) + check_part(trie, 1, &v, seen), n_text);
    for (int i = 0; i < N; i++) {
        bool is_text = texts[i][0] && texts[i][0] != '!' && !is_control[i];
        assert_int_equal(seen[i], is_text);
        struct lp_str bytes = lp_token_trie_bytes(trie, i);
        assert_true(is_text ? lp_str_is(bytes, texts[i]) : bytes.len == 0);
    }
    lp_token_trie_free(trie);
}

static void a_vocabulary_may_be_empty(void **state) {
    (void)state;
    static char texts[3][40] = {"", "!x", "long"};
    bool is_control[3] = {false, false, true};
    struct vocab v = {texts, 3};
    struct lp_token_trie *trie = trie_of(&v, is_control);
    assert_int_equal(trie->parts[0].n_nodes, 0);
    assert_int_equal(trie->parts[1].n_nodes, 0);
    assert_false(trie->writable.bytes['l']);
    lp_token_trie_free(trie);
    lp_token_trie_free(NULL);
}

static void survives_any_allocation_failure(void **state) {
    (void)state;
    static char texts[3][40] = {"one", "two", "a text of more than sixteen bytes"};
    struct vocab v = {texts, 3};
    lp_status status = LP_STATUS_MEMORY;
    for (size_t n = 1; status; n++) {
        struct lp_token_trie *trie;
        lp_alloc_fail_after(n);
        status = lp_token_trie_new(&trie, v.n, token_bytes, &v, NULL, NULL);
        lp_alloc_fail_after(0);
        assert_true(status == LP_OK || (status == LP_STATUS_MEMORY && !trie));
        lp_token_trie_free(trie);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_every_token_once),
        cmocka_unit_test(a_vocabulary_may_be_empty),
        cmocka_unit_test(survives_any_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
