// Importance matrices of both forms, byte by byte from the formats' description; damaged ones.
#include "gguf_build.h"
#include "lp_test.h"

#include <math.h>

#include "base/alloc.h"
#include "files/imatrix.h"

static void put_i32(struct lp_bytes *b, int32_t v) {
    lp_bytes_append(b, &v, 4);
}
static void put_f32(struct lp_bytes *b, float v) {
    lp_bytes_append(b, &v, 4);
}

static struct lp_imatrix *right(const struct lp_bytes *b) {
    struct lp_imatrix *m;
    struct lp_err err = {0};
    lp_status status = lp_imatrix_parse(&m, (const uint8_t *)b->data, b->len, "a matrix", &err);
    if (status) print_message("%s\n", err.text);
    assert_int_equal(status, LP_OK);
    return m;
}

static void refused(const struct lp_bytes *b, const char *says) {
    struct lp_imatrix *m;
    struct lp_err err = {0};
    lp_status status = lp_imatrix_parse(&m, (const uint8_t *)b->data, b->len, "a matrix", &err);
    assert_int_equal(status, LP_STATUS_FORMAT);
    assert_null(m);
    if (!strstr(err.text, says)) fail_msg("'%s' is not in: %s", says, err.text);
}

static struct lp_imatrix_entry entry(const struct lp_imatrix *m, const char *name) {
    const struct lp_imatrix_entry *e = lp_imatrix_find(m, lp_str_from(name));
    assert_non_null(e);
    return *e;
}

// ---- GGUF

struct two { // a matrix of 2 columns, and a stack of 2 with 3 columns
    const char *type;
    float sums[2], counts[1], stack[6], stack_counts[2];
};
static const struct two plain = {"imatrix", {8, 2}, {4}, {1, 2, 3, 40, 50, 60}, {1, 10}};

static struct lp_bytes build(const struct two *t, uint64_t n_stack_counts, bool with_counts) {
    struct lp_bytes b = {0};
    gb_header(&b, 3, with_counts ? 4 : 3, 4);
    gb_kv_str(&b, "general.type", t->type);
    gb_kv_arr(&b, "imatrix.datasets", GB_STR, 2);
    gb_str(&b, "first.txt");
    gb_str(&b, "second.txt");
    gb_kv_u32(&b, "imatrix.chunk_count", 7);
    gb_kv_u32(&b, "imatrix.chunk_size", 512);
    uint64_t sums[2] = {2, 1}, stack[2] = {3, 2}, counts[2] = {1, n_stack_counts}, one[2] = {1, 1};
    gb_tensor(&b, "blk.0.attn_q.weight.in_sum2", 2, sums, GB_TYPE_F32, 0);
    gb_tensor(&b, "blk.0.ffn_up_exps.weight.in_sum2", 2, stack, GB_TYPE_F32, 32);
    gb_tensor(&b, "blk.0.ffn_up_exps.weight.counts", 2, counts, GB_TYPE_F32, 64);
    if (with_counts) gb_tensor(&b, "blk.0.attn_q.weight.counts", 2, one, GB_TYPE_F32, 96);
    gb_pad(&b, 32);
    lp_bytes_append(&b, t->sums, sizeof t->sums);
    gb_pad(&b, 32);
    lp_bytes_append(&b, t->stack, sizeof t->stack);
    gb_pad(&b, 32);
    lp_bytes_append(&b, t->stack_counts, 4 * n_stack_counts);
    gb_pad(&b, 32);
    if (with_counts) lp_bytes_append(&b, t->counts, sizeof t->counts);
    gb_pad(&b, 32);
    return b;
}

static void gguf_form(void **state) {
    (void)state;
    struct lp_bytes b = build(&plain, 2, true);
    struct lp_imatrix *m = right(&b);
    float means[3];
    assert_int_equal(lp_imatrix_n_entries(m), 2);
    assert_int_equal(lp_imatrix_n_chunks(m), 7);
    assert_true(lp_str_is(lp_imatrix_dataset(m), "second.txt"));
    struct lp_imatrix_entry q = entry(m, "blk.0.attn_q.weight");
    assert_true(lp_imatrix_fits(&q, 2, 1) && !lp_imatrix_fits(&q, 1, 1));
    assert_true(lp_imatrix_means(&q, 2, 1, 0, means));
    assert_true(means[0] == 2 && means[1] == 0.5f);
    struct lp_imatrix_entry up = entry(m, "blk.0.ffn_up_exps.weight");
    assert_true(lp_imatrix_fits(&up, 3, 2) && !lp_imatrix_fits(&up, 2, 3));
    assert_true(lp_imatrix_means(&up, 3, 2, 1, means));
    assert_true(means[0] == 4 && means[1] == 5 && means[2] == 6);
    assert_null(lp_imatrix_find(m, lp_str_from("blk.0.attn_k.weight")));
    lp_imatrix_close(m);
    lp_bytes_release(&b);
}

static void one_count_for_a_stack(void **state) {
    (void)state;
    struct two t = plain;
    t.stack_counts[0] = 10;
    struct lp_bytes b = build(&t, 1, true);
    struct lp_imatrix *m = right(&b);
    struct lp_imatrix_entry up = entry(m, "blk.0.ffn_up_exps.weight");
    float means[3];
    assert_true(lp_imatrix_fits(&up, 3, 2));
    assert_true(lp_imatrix_means(&up, 3, 2, 1, means) && means[0] == 4 && means[2] == 6);
    lp_imatrix_close(m);
    lp_bytes_release(&b);
}

static void what_is_not_known(void **state) {
    (void)state;
    struct two t = plain;
    t.stack_counts[0] = 0; // an expert that nothing met
    t.stack[4] = -1;
    t.sums[1] = (float)NAN;
    struct lp_bytes b = build(&t, 2, true);
    struct lp_imatrix *m = right(&b);
    struct lp_imatrix_entry up = entry(m, "blk.0.ffn_up_exps.weight"),
                            q = entry(m, "blk.0.attn_q.weight");
    float means[3];
    assert_false(lp_imatrix_means(&up, 3, 2, 0, means));
    assert_false(lp_imatrix_means(&up, 3, 2, 1, means));
    assert_false(lp_imatrix_means(&q, 2, 1, 0, means));
    lp_imatrix_close(m);
    lp_bytes_release(&b);
}

static void damaged_gguf(void **state) {
    (void)state;
    struct two t = plain;
    struct lp_bytes b = build(&t, 2, false);
    refused(&b, "blk.0.attn_q.weight.in_sum2 is there without its .counts");
    lp_bytes_release(&b);
    t.type = "model";
    b = build(&t, 2, true);
    refused(&b, "general.type is 'model', expected imatrix");
    lp_bytes_release(&b);
    b = build(&plain, 2, true);
    for (size_t n = 4; n < b.len - 32; n += 3) { // cut off anywhere: one sentence
        struct lp_bytes cut = b;
        cut.len = n;
        struct lp_imatrix *m;
        struct lp_err err = {0};
        assert_int_not_equal(
            lp_imatrix_parse(&m, (const uint8_t *)cut.data, cut.len, "a matrix", &err), LP_OK);
        assert_true(err.text[0]);
    }
    lp_bytes_release(&b);
}

// ---- the older form

static struct lp_bytes build_older(int32_t n_entries) {
    struct lp_bytes b = {0};
    put_i32(&b, n_entries);
    put_i32(&b, 1);
    lp_bytes_append(&b, "a", 1); // the values that follow lie at odd addresses
    put_i32(&b, 4);
    put_i32(&b, 2);
    put_f32(&b, 8);
    put_f32(&b, 2);
    put_i32(&b, 5);
    lp_bytes_append(&b, "stack", 5);
    put_i32(&b, 0); // calls not counted: the sums are the means
    put_i32(&b, 4);
    for (int i = 1; i <= 4; i++) put_f32(&b, (float)i);
    return b;
}

static void older_form(void **state) {
    (void)state;
    struct lp_bytes b = build_older(2);
    float means[2];
    for (int tail = 0; tail < 3; tail++) {
        if (tail == 1) put_i32(&b, 123);
        if (tail == 2) {
            put_i32(&b, 8);
            lp_bytes_append(&b, "wiki.txt", 8);
        }
        struct lp_imatrix *m = right(&b);
        assert_int_equal(lp_imatrix_n_entries(m), 2);
        assert_int_equal(lp_imatrix_n_chunks(m), tail ? 123 : 0);
        assert_true(lp_str_is(lp_imatrix_dataset(m), tail == 2 ? "wiki.txt" : ""));
        struct lp_imatrix_entry a = entry(m, "a"), s = entry(m, "stack");
        assert_true(lp_imatrix_means(&a, 2, 1, 0, means) && means[0] == 2 && means[1] == 0.5f);
        assert_true(lp_imatrix_fits(&a, 2, 8)); // one row for all matrices
        assert_true(lp_imatrix_means(&a, 2, 8, 7, means) && means[0] == 2);
        assert_true(lp_imatrix_fits(&s, 2, 2) && lp_imatrix_fits(&s, 4, 1));
        assert_true(lp_imatrix_means(&s, 2, 2, 1, means) && means[0] == 3 && means[1] == 4);
        assert_false(lp_imatrix_fits(&s, 3, 2));
        lp_imatrix_close(m);
    }
    lp_bytes_release(&b);
}

static void damaged_older_form(void **state) {
    (void)state;
    struct lp_bytes b = {0};
    refused(&b, "ends inside entry 1");
    b = build_older(3); // more than there are
    refused(&b, "ends inside entry 3");
    lp_bytes_release(&b);
    b = build_older(2);
    for (size_t n = 0; n < b.len; n++) {
        struct lp_bytes cut = b;
        cut.len = n;
        refused(&cut, "ends inside entry");
    }
    int32_t huge = INT32_MAX;
    memcpy(b.data + 13, &huge, 4); // values of the first entry
    refused(&b, "ends inside entry 1");
    lp_bytes_release(&b);
    b = build_older(-1);
    refused(&b, "it has -1 entries");
    lp_bytes_release(&b);
    lp_bytes_puts(&b, "{\"this\": \"is something else\"}");
    refused(&b, "is no importance matrix: it does not begin with GGUF");
    lp_bytes_release(&b);
    for (int i = 0; i < 2; i++) { // the same name twice
        if (i == 0) put_i32(&b, 2);
        put_i32(&b, 1);
        lp_bytes_append(&b, "a", 1);
        put_i32(&b, 1);
        put_i32(&b, 1);
        put_f32(&b, 1);
    }
    refused(&b, "there are two entries for a");
    lp_bytes_release(&b);
}

static void without_memory(void **state) {
    (void)state;
    struct lp_bytes older = build_older(2), gguf = build(&plain, 2, true);
    for (size_t nth = 1; nth < 40; nth++)
        for (int form = 0; form < 2; form++) {
            const struct lp_bytes *b = form ? &older : &gguf;
            struct lp_imatrix *m;
            struct lp_err err = {0};
            lp_alloc_fail_after(nth);
            lp_status status =
                lp_imatrix_parse(&m, (const uint8_t *)b->data, b->len, "a matrix", &err);
            lp_alloc_fail_after(0);
            assert_true(status == LP_OK || (err.text[0] && !m));
            lp_imatrix_close(m);
        }
    lp_bytes_release(&older);
    lp_bytes_release(&gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_form),         cmocka_unit_test(one_count_for_a_stack),
        cmocka_unit_test(what_is_not_known), cmocka_unit_test(damaged_gguf),
        cmocka_unit_test(older_form),        cmocka_unit_test(damaged_older_form),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
