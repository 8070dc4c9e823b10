// The cost of a step, against sums done by hand from the shapes of two golden models, whose
// matrices are BF16 (2 bytes a value); what placement copies is float32.
#include "model/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define GOLDEN(name) "tests/golden/" name ".gguf"

struct opened {
    struct lp_gguf *gguf;
    struct lp_device *dev;
    struct lp_hparams h;
    struct lp_binding binding;
};

static void open_file(struct opened *o, const char *path) {
    struct lp_err err;
    assert_int_equal(lp_gguf_open(&o->gguf, path, &err), LP_OK);
    assert_int_equal(lp_backend_ref.open(&o->dev, NULL, &err), LP_OK);
    assert_int_equal(lp_hparams_read(&o->h, o->gguf, &err), LP_OK);
    assert_int_equal(
        lp_binding_make(&o->binding, &o->h, o->gguf, lp_backend_ref.supports, o->dev, &err), LP_OK);
}

static void close_file(struct opened *o) {
    lp_binding_release(&o->binding);
    lp_backend_ref.close(o->dev);
    lp_gguf_close(o->gguf);
}

static struct lp_cost cost(const struct opened *o, int64_t n_past, int64_t n_rows,
                           int64_t n_logit_rows) {
    struct lp_cost c = {0};
    struct lp_cost_work work = {.n_past = n_past, .n_rows = n_rows, .n_logit_rows = n_logit_rows};
    lp_cost_step(&o->h, &o->binding, &work, LP_TYPE_F16, &c);
    return c;
}

// dsa_shared: embedding 64, 4 heads, query latent 32, latent 32, rope 16, nope 32, v 32; 12 indexer
// heads of 64, top_k 16, full on 4 of 8 layers; FFN 128 on 3 layers, 2 of 6 experts of 32 and a
// shared one on 5; vocabulary 320. Values:
enum {
    LAYER = 64 * 32 + 32 * 192 + 64 * 48 + 2 * 4 * 32 * 32 +
            128 * 64, // q_a, q_b, kv_a, k_b and v_b, output
    LAYER_VECTORS = 64 + 32 + 32 + 64,
    INDEX_KEY = 64 * 64,
    INDEX_NORM = 2 * 64,
    INDEX_QUERY = 32 * 768,
    INDEX_PROJ = 64 * 12,
    DENSE = 3 * 64 * 128,
    EXPERT = 3 * 64 * 32,
    SHARED = 3 * 64 * 32,
    ROUTER = 64 * 6,
    ROUTER_BIAS = 6,
    HEAD = 64 * 320,
    MAPPED_STEP = 8 * LAYER + 4 * INDEX_KEY + 3 * DENSE + 5 * (2 * EXPERT + SHARED) +
                  64 /* of the embedding */ + HEAD,
    COPIED_STEP =
        8 * LAYER_VECTORS + 4 * INDEX_NORM + 5 * (ROUTER + ROUTER_BIAS) + 64 /* output norm */,
};

static void decode_reads_each_weight_once(void **state) {
    (void)state;
    struct opened o = {0};
    open_file(&o, GOLDEN("dsa_shared"));
    struct lp_cost below = cost(&o, 7, 1, 1); // 8 keys: nothing is selected
    assert_true(below.weight_bytes == 2.0 * MAPPED_STEP + 4.0 * COPIED_STEP);
    assert_true(below.cache_bytes == 8.0 * 8 * 48 * 2);
    assert_true(below.int_madds == 0);
    struct lp_cost above = cost(&o, 31, 1, 1); // 32 keys, 16 are selected
    assert_true(above.weight_bytes ==
                2.0 * (MAPPED_STEP + 4 * INDEX_QUERY) + 4.0 * (COPIED_STEP + 4 * INDEX_PROJ));
    assert_true(above.cache_bytes == 8.0 * 16 * 48 * 2 + 4.0 * 32 * 64 * 2);
    double matrices = 8 * LAYER + 4 * (INDEX_KEY + INDEX_QUERY + INDEX_PROJ) + 3 * DENSE +
                      5 * (ROUTER + 2 * EXPERT + SHARED) + HEAD;
    double attention = 8.0 * 16 * 4 * (2 * 32 + 16) + 4.0 * 32 * 12 * 64;
    assert_true(above.float_madds == matrices + attention);
    close_file(&o);
}

static void rows_of_a_step_share_weights(void **state) {
    (void)state;
    struct opened o = {0};
    open_file(&o, GOLDEN("dsa_shared"));
    struct lp_cost one = cost(&o, 0, 1, 0), two = cost(&o, 0, 2, 0);
    // Two rows touch 6 * (1 - (4/6)^2) = 10/3 experts instead of 2, and one more row of the
    // embedding.
    double more = 2 * (5 * EXPERT * (10.0 / 3 - 2) + 64);
    assert_float_equal((float)(two.weight_bytes - one.weight_bytes), (float)more, 1);
    struct lp_cost logits = cost(&o, 0, 2, 1);
    assert_float_equal((float)(logits.weight_bytes - two.weight_bytes), 2.0f * HEAD, 1);
    close_file(&o);
}

static void copies_are_those_of_placement(void **state) {
    (void)state;
    struct opened o = {0};
    open_file(&o, GOLDEN("dsa_shared"));
    uint64_t copies = 8 * LAYER_VECTORS + 4 * (INDEX_NORM + INDEX_PROJ) +
                      5 * (ROUTER + ROUTER_BIAS) + 64 + 16 / 2;
    copies += LAYER_VECTORS + INDEX_NORM + INDEX_PROJ + ROUTER + ROUTER_BIAS + 3 * 64; // MTP
    assert_int_equal(lp_cost_float32_bytes(&o.h, &o.binding), 4 * copies);
    uint64_t mapped = 8 * LAYER + 4 * (INDEX_KEY + INDEX_QUERY) + 3 * DENSE +
                      5 * (6 * EXPERT + SHARED) + 2 * HEAD;
    assert_int_equal(lp_cost_mapped_bytes(&o.h, &o.binding, false), 2 * mapped);
    mapped += LAYER + INDEX_KEY + INDEX_QUERY + 6 * EXPERT + SHARED + 64 * 128; // MTP
    assert_int_equal(lp_cost_mapped_bytes(&o.h, &o.binding, true), 2 * mapped);
    close_file(&o);
}

// qwen3: the output matrix is the embedding; grouped-query attention, 4 heads over 2 of 32, every
// key read.
static void tied_head_and_grouped_queries(void **state) {
    (void)state;
    struct opened o = {0};
    open_file(&o, GOLDEN("qwen3"));
    assert_null(o.binding.model.tensor[LP_SLOT_OUTPUT]);
    struct lp_cost without = cost(&o, 9, 1, 0), with = cost(&o, 9, 1, 1);
    assert_true(with.weight_bytes - without.weight_bytes ==
                (double)o.binding.model.tensor[LP_SLOT_TOKEN_EMBD]->n_bytes);
    assert_true(with.cache_bytes == 10.0 * o.h.n_layers * 2 * (32 + 32) * 2);
    close_file(&o);
}

// Products with cached rows are of 16-bit integers or of floats; weights stay what they are.
static void products_with_the_cache_have_their_own_peak(void **state) {
    (void)state;
    struct opened o = {0};
    struct lp_cost floats = {0}, ints = {0};
    struct lp_cost_work work = {.n_past = 31, .n_rows = 1};
    open_file(&o, GOLDEN("dsa_shared"));
    lp_cost_step(&o.h, &o.binding, &work, LP_TYPE_F16, &floats);
    work.int16_attention = true;
    lp_cost_step(&o.h, &o.binding, &work, LP_TYPE_F16, &ints);
    double attention = 8.0 * 16 * 4 * (2 * 32 + 16) + 4.0 * 32 * 12 * 64;
    assert_true(floats.int16_madds == 0);
    assert_true(ints.int16_madds == attention);
    assert_true(floats.float_madds - ints.float_madds == attention);
    assert_true(floats.int_madds == ints.int_madds);
    close_file(&o);
}

// mini-glm-dsa: latents of 512 + 64 and indexer keys of 128 on each of 5 layers, top_k 256.
// Bytes of rows: docs/numerics.md.
static void cached_rows_count_what_they_take(void **state) {
    (void)state;
    static const struct {
        lp_type type;
        int bytes;
    } rows[] = {{LP_TYPE_F32, 4 * 576},
                {LP_TYPE_BF16, 2 * 576},
                {LP_TYPE_Q8_0, 612},
                {LP_TYPE_F8_E4M3, 656}};
    struct opened o = {0};
    struct lp_cost_work work = {.n_past = 99, .n_rows = 1};
    open_file(&o, "models/mini-glm-dsa.gguf");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lp_cost c = {0};
        lp_cost_step(&o.h, &o.binding, &work, rows[i].type, &c);
        assert_true(c.cache_bytes == 100.0 * 5 * rows[i].bytes);
    }
    struct lp_cost c = {0};
    work.n_past = 999; // 256 latents are read, and every key
    lp_cost_step(&o.h, &o.binding, &work, LP_TYPE_F8_E4M3, &c);
    assert_true(c.cache_bytes == 5.0 * (256 * 656 + 1000 * 132));
    close_file(&o);
}

// mini-glm-dsa: 5 layers, 4 heads, nope 192, v 256, latent 512, Q8_0. The expanded form makes keys
// and values of all keys from the latents by itself; the absorbed one has them as products before
// and behind it.
static void keys_made_inside_attention_are_told_apart(void **state) {
    (void)state;
    struct opened o = {0};
    struct lp_cost expanded = {0}, absorbed = {0};
    struct lp_cost_work work = {.n_past = 36, .n_rows = 64, .force = LP_ROUTE_EXPANDED};
    open_file(&o, "models/mini-glm-dsa.gguf");
    lp_cost_step(&o.h, &o.binding, &work, LP_TYPE_F16, &expanded);
    work.force = LP_ROUTE_ABSORBED;
    lp_cost_step(&o.h, &o.binding, &work, LP_TYPE_F16, &absorbed);
    double a_key = 5.0 * 4 * (192 + 256) * 512;
    assert_true(expanded.up_int_madds == 100 * a_key);
    assert_true(absorbed.up_int_madds == 0);
    assert_true(expanded.int_madds - absorbed.int_madds == (100 - 64) * a_key);
    close_file(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_reads_each_weight_once),
        cmocka_unit_test(rows_of_a_step_share_weights),
        cmocka_unit_test(copies_are_those_of_placement),
        cmocka_unit_test(tied_head_and_grouped_queries),
        cmocka_unit_test(products_with_the_cache_have_their_own_peak),
        cmocka_unit_test(cached_rows_count_what_they_take),
        cmocka_unit_test(keys_made_inside_attention_are_told_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
