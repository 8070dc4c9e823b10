// The tables of absorbed attention for AMX over a model of the tile instructions (amx_model.h): against
// double precision; and that a result depends neither on the other heads nor on where the rows lie.
// Skipped without AVX-512 BF16, in which the rest of them is written, and where clang compiles it.
#include "mat_fixture.h"

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_latent.h"

#if defined(__x86_64__) && !defined(__clang__) // which has no push_options
#include "amx_model.h"

// Only the kernels may use these instructions, not what looks whether the machine has them.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#define LP_AMX_MODEL
#define lp_cpu_latent_amx_bf16 latent_model_bf16
#define lp_cpu_latent_amx_f16 latent_model_f16
#define lp_cpu_latent_amx_bf16_rounded latent_model_bf16_rounded
#define lp_cpu_latent_amx_f16_rounded latent_model_f16_rounded
#include "backend/cpu/cpu_latent_amx.c"
#pragma GCC pop_options

#define BOUND 5e-5   // of a row's largest: two numbers of 8 bits for one of 24
#define ROUNDED 1e-2 // one of 8 bits (docs/numerics.md); of the sum of the terms' sizes

extern const struct lp_cpu_latent lp_cpu_latent_bf16_f16_rounded; // native, not over the model

struct sizes {
    int n_heads, n_keys, latent, rope;
};

struct data {
    struct sizes z;
    int width;
    float *q, *p, *acc, *rows; // rows: as float32
    uint16_t *cache;           // rows behind each other
};

static struct data make_data(struct sizes z, lp_type type, struct lp_rng *rng) {
    struct data d = {.z = z, .width = z.latent + z.rope};
    d.q = random_floats(rng, (int64_t)z.n_heads * d.width);
    d.p = random_floats(rng, (int64_t)z.n_heads * KEYS);
    d.acc = random_floats(rng, (int64_t)z.n_heads * z.latent);
    d.rows = random_floats(rng, (int64_t)KEYS * d.width);
    d.cache = lp_alloc_aligned((size_t)(KEYS * d.width), sizeof *d.cache);
    assert_non_null(d.cache);
    const struct lp_type_info *info = lp_type_info((uint32_t)type);
    for (int64_t k = 0; k < KEYS; k++) {
        d.rows[k * d.width] *= 1e-6f; // below the normal numbers of float16
        for (int64_t i = k * d.width; i < (k + 1) * d.width; i++)
            d.cache[i] = type == LP_TYPE_F16 ? lp_f32_to_f16(d.rows[i]) : lp_f32_to_bf16(d.rows[i]);
        info->dequant(d.cache + k * d.width, d.rows + k * d.width, (size_t)d.width);
    }
    for (int64_t i = 0; i < (int64_t)z.n_heads * KEYS; i++) d.p[i] = fabsf(d.p[i]) / 4;
    return d;
}

static void free_data(struct data *d) {
    lp_free(d->q), lp_free(d->p), lp_free(d->acc), lp_free(d->rows), lp_free(d->cache);
}

// Scores and sums of heads first .. first + n - 1, with the rows as they lie or each somewhere else
static void run(const struct lp_cpu_latent *table, const struct data *d, int first, int n,
                bool scattered, float *s, float *acc) {
    const struct sizes *z = &d->z;
    const size_t row = (size_t)d->width;
    struct lp_cpu_latent_block block = {.n_keys = z->n_keys, .latent = z->latent, .rope = z->rope};
    uint16_t *copy = lp_alloc_aligned(KEYS * (row + 32), sizeof *copy);
    void *queries = lp_alloc_aligned(table->query_bytes(n, z->latent, z->rope), 1);
    block.packed = lp_alloc_aligned(table->pack_bytes(z->latent, z->rope), 1);
    assert_true(copy && queries && block.packed);
    memset(block.packed, 0xff, table->pack_bytes(z->latent, z->rope)); // NaN
    for (int k = 0; k < z->n_keys; k++) {
        uint16_t *to = copy + (size_t)(k * 7 % KEYS) * (row + 32);
        memcpy(to, d->cache + (size_t)k * row, row * sizeof *to);
        block.rows[k] = scattered ? to : d->cache + (size_t)k * row;
        block.ahead[k] = block.rows[k];
    }
    memcpy(acc, d->acc + first * z->latent, (size_t)(n * z->latent) * sizeof *acc);
    table->pack_queries(d->q + first * d->width, d->width, n, z->latent, z->rope, queries);
    if (table->pack_keys) table->pack_keys(&block);
    table->scores(queries, d->width, n, &block, s, KEYS);
    table->values(d->p + first * KEYS, KEYS, n, &block, acc, z->latent);
    lp_free(copy), lp_free(queries), lp_free(block.packed);
}

static void check_against_double(const struct data *d, const float *s, const float *acc,
                                 double bound) {
    const struct sizes *z = &d->z;
    for (int h = 0; h < z->n_heads; h++) {
        double off_s = 0, most_s = 0, off_v = 0, most_v = 0;
        for (int t = 0; t < z->n_keys; t++) {
            double sum = 0, size = 0;
            for (int i = 0; i < d->width; i++) {
                const double term = (double)d->q[h * d->width + i] * d->rows[t * d->width + i];
                sum += term;
                size += fabs(term);
            }
            off_s = fmax(off_s, fabs(s[h * KEYS + t] - sum));
            most_s = fmax(most_s, bound == ROUNDED ? size : fabs(sum));
        }
        for (int j = 0; j < z->latent; j++) {
            double sum = d->acc[h * z->latent + j];
            for (int t = 0; t < z->n_keys; t++)
                sum += (double)d->p[h * KEYS + t] * d->rows[t * d->width + j];
            off_v = fmax(off_v, fabs(acc[h * z->latent + j] - sum));
            most_v = fmax(most_v, fabs(sum));
        }
        if (!(off_s <= bound * most_s && off_v <= bound * most_v))
            fail_msg("head %d of %d, %d keys of %d + %d: scores %g, values %g off", h, z->n_heads,
                     z->n_keys, z->latent, z->rope, off_s / most_s, off_v / most_v);
    }
}

static void check_sizes(const struct lp_cpu_latent *table, lp_type type, double bound,
                        struct sizes z, struct lp_rng *rng) {
    struct data d = make_data(z, type, rng);
    const int64_t n_s = (int64_t)z.n_heads * KEYS, n_acc = (int64_t)z.n_heads * z.latent;
    float *s = random_floats(rng, n_s), *acc = random_floats(rng, n_acc),
          *s2 = random_floats(rng, n_s), *acc2 = random_floats(rng, n_acc);
    run(table, &d, 0, z.n_heads, false, s, acc);
    check_against_double(&d, s, acc, bound);
    for (int first = 0; first < z.n_heads; first += 3) {
        const int n = z.n_heads - first < 3 ? z.n_heads - first : 3;
        run(table, &d, first, n, true, s2, acc2);
        for (int h = 0; h < n; h++)
            assert_memory_equal(s2 + h * KEYS, s + (first + h) * KEYS,
                                (size_t)z.n_keys * sizeof *s);
        assert_memory_equal(acc2, acc + first * z.latent, (size_t)(n * z.latent) * sizeof *acc);
    }
    lp_free(s), lp_free(acc), lp_free(s2), lp_free(acc2);
    free_data(&d);
}

static void agrees_with_double(void **state) {
    (void)state;
    if ((lp_cpu_features_detect() & LP_CPU_LEVEL_BF16) != LP_CPU_LEVEL_BF16) skip();
    static const struct sizes sizes[] = {
        {16, 64, 64, 32}, {17, 64, 96, 8}, {3, 1, 32, 6}, {32, 33, 64, 64}, {16, 63, 512, 64},
    };
    struct lp_rng rng;
    lp_rng_init(&rng, 6);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_sizes(&latent_model_bf16, LP_TYPE_BF16, BOUND, sizes[i], &rng);
        check_sizes(&latent_model_f16, LP_TYPE_F16, BOUND, sizes[i], &rng);
        check_sizes(&latent_model_bf16_rounded, LP_TYPE_BF16, ROUNDED, sizes[i], &rng);
        check_sizes(&latent_model_f16_rounded, LP_TYPE_F16, ROUNDED, sizes[i], &rng);
        check_sizes(&lp_cpu_latent_bf16_f16_rounded, LP_TYPE_F16, ROUNDED, sizes[i], &rng);
    }
}

// A key that is not finite: its own scores and the sums say so, the scores of others stay as they were.
static void check_not_finite(const struct lp_cpu_latent *table, uint16_t wrong, int key, int column,
                             struct data *d, struct lp_rng *rng) {
    const struct sizes *z = &d->z;
    const int64_t n_s = (int64_t)z->n_heads * KEYS, n_acc = (int64_t)z->n_heads * z->latent;
    float *s = random_floats(rng, n_s), *s2 = random_floats(rng, n_s),
          *acc = random_floats(rng, n_acc);
    uint16_t *value = d->cache + key * d->width + column;
    const uint16_t was = *value;
    run(table, d, 0, z->n_heads, false, s, acc);
    *value = wrong;
    run(table, d, 0, z->n_heads, column % 2, s2, acc);
    *value = was;
    for (int h = 0; h < z->n_heads; h++) {
        for (int t = 0; t < z->n_keys; t++)
            if (t != key) assert_memory_equal(s2 + h * KEYS + t, s + h * KEYS + t, sizeof *s);
        assert_false(isfinite(s2[h * KEYS + key]));
        for (int j = 0; j < z->latent; j++)
            assert_int_equal(isfinite(acc[h * z->latent + j]) != 0, j != column);
    }
    lp_free(s), lp_free(s2), lp_free(acc);
}

static void keeps_what_is_not_finite(void **state) {
    (void)state;
    if ((lp_cpu_features_detect() & LP_CPU_LEVEL_BF16) != LP_CPU_LEVEL_BF16) skip();
    static const uint16_t wrong[] = {0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7fff, 0xffff, 0x7c01};
    struct lp_rng rng;
    lp_rng_init(&rng, 7);
    struct data d = make_data((struct sizes){18, 37, 64, 32}, LP_TYPE_F16, &rng);
    for (int i = 0; i < 21; i++) {
        check_not_finite(&latent_model_f16, wrong[i % 7], i / 7 * 18, i * 3, &d, &rng);
        check_not_finite(&latent_model_f16_rounded, wrong[i % 7], i / 7 * 18, i * 3, &d, &rng);
    }
    free_data(&d);
}

#else

static void agrees_with_double(void **state) {
    (void)state;
    skip();
}

static void keeps_what_is_not_finite(void **state) {
    (void)state;
    skip();
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_double),
                                       cmocka_unit_test(keeps_what_is_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
