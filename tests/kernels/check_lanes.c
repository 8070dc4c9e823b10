// The inner functions of each instruction set this machine has: sums against double, the same bits
// however a product is cut (L1), no access behind the sizes (L2: arrays end where the sanitizer
// sees it), exact limits of exp and NaN (L3), Q8_0 blocks as quant/ makes and reads them.
#include "attn_fixture.h"

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_lanes.h"
#include "quant/blocks.h"

static const struct lp_cpu_lanes *tables[3];
static int n_tables;

static void find_tables(void) {
    tables[n_tables++] = &lp_cpu_lanes_plain;
#if defined(__x86_64__)
    uint32_t have = lp_cpu_features_detect();
    if ((have & LP_CPU_LEVEL_AVX2) == LP_CPU_LEVEL_AVX2) tables[n_tables++] = &lp_cpu_lanes_avx2;
    if ((have & LP_CPU_LEVEL_AVX512) == LP_CPU_LEVEL_AVX512)
        tables[n_tables++] = &lp_cpu_lanes_avx512;
#elif defined(__aarch64__)
    tables[n_tables++] = &lp_cpu_lanes_neon;
#endif
    for (int i = 0; i < n_tables; i++) print_message("lanes: %s\n", tables[i]->name);
}

// a [m, k], b [n, k], c [m, n] at tight strides
static void check_product(const struct lp_cpu_lanes *lanes, struct lp_rng *rng, int m, int n,
                          int k) {
    float *a = random_floats(rng, m * k, 1.0f), *b = random_floats(rng, n * k, 1.0f),
          *b_t = new_array(n * k, 4);
    float *nt = new_output(m, n), *nt_t = new_array(m * n, 4), *nn = new_output(m, n),
          *one = new_array(1, 4);
    lanes->transpose(n, k, b, k, b_t, n);
    lanes->mul_nt(m, n, k, a, k, b, k, nt, n, 1);
    lanes->mul_nt(m, n, k, a, k, b, k, nt_t, 1, m);
    lanes->mul_nn(m, n, k, a, k, b_t, n, nn, n, false);
    assert_guards(nt, m, n, n);
    assert_guards(nn, m, n, n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (int t = 0; t < k; t++) {
                sum += (double)a[i * k + t] * b[j * k + t];
                size += fabs((double)a[i * k + t] * b[j * k + t]);
            }
            assert_true(fabs(nt[i * n + j] - sum) <= 1e-6 * size &&
                        fabs(nn[i * n + j] - sum) <= 3e-6 * size);
            lanes->mul_nt(1, 1, k, a + i * k, k, b + j * k, k, one, 1, 1);
            assert_same_bits(one, &nt[i * n + j], 1, "mul_nt, one value alone");
            assert_same_bits(&nt_t[j * m + i], one, 1, "mul_nt, transposed output");
            lanes->mul_nn(1, 1, k, a + i * k, k, b_t + j, n, one, 1, false);
            assert_same_bits(one, &nn[i * n + j], 1, "mul_nn, one value alone");
        }
    int32_t rows[80];
    for (int t = 0; t < k; t++) rows[t] = t;
    float *row = new_array(n, 4);
    lanes->mul_rows(n, k, a, rows, b_t, n, row);
    assert_same_bits(row, nn, n, "mul_rows");
    memset(row, 0, (size_t)n * 4); // in two parts
    lanes->mul_nn(1, n, k / 2, a, k, b_t, n, row, n, true);
    lanes->mul_nn(1, n, k - k / 2, a + k / 2, k, b_t + k / 2 * n, n, row, n, true);
    assert_same_bits(row, nn, n, "mul_nn in two parts");
    void *blocks[] = {a, b, b_t, nt, nt_t, nn, one, row};
    for (int i = 0; i < 8; i++) lp_free(blocks[i]);
}

static void test_products(void **state) {
    (void)state;
    struct lp_rng rng;
    lp_rng_init(&rng, 77);
    for (int i = 0; i < n_tables; i++)
        for (int round = 0; round < 60; round++)
            check_product(tables[i], &rng, 1 + (int)(lp_rng_u64(&rng) % 10),
                          1 + (int)(lp_rng_u64(&rng) % 150), 1 + (int)(lp_rng_u64(&rng) % 80));
}

static void test_softmax_step(void **state) {
    (void)state;
    for (int i = 0; i < n_tables; i++)
        for (int n = 1; n <= 67; n++) {
            float s[67], max = -INFINITY, sum = 0;
            double expected = 0;
            for (int j = 0; j < n; j++)
                s[j] = j % 5 == 3 ? -INFINITY : j % 5 == 4 ? -2000.0f : (float)(j % 7) - 3;
            for (int j = 0; j < n; j++) expected += exp(0.5 * (s[j] - 3.0));
            tables[i]->softmax_step(s, n, 0.5f, &max, &sum);
            assert_true(fabs(sum * exp(max - 1.5) - expected) <= 1e-6 * expected);
            for (int j = 0; j < n; j++) assert_true(j % 5 < 3 ? s[j] > 0 : s[j] == 0); // exactly 0
            float old = max, more[3] = {-INFINITY, 80.0f, -INFINITY};
            float rescale = tables[i]->softmax_step(more, 3, 0.5f, &max, &sum);
            assert_true(max == 40.0f && more[1] == 1.0f &&
                        fabs(rescale - exp(old - 40.0)) <= 1e-6 * rescale);
            more[0] = NAN;
            assert_true(tables[i]->softmax_step(more, 3, 0.5f, &max, &sum) == 1.0f);
            assert_true(isnan(more[0]) && isnan(sum) && max == 40.0f);
        }
}

// Nothing finite so far: weights 0, no NaN from inf - inf.
static void test_softmax_all_infinite(void **state) {
    (void)state;
    for (int i = 0; i < n_tables; i++) {
        float s[20], max = -INFINITY, sum = 0;
        for (int j = 0; j < 20; j++) s[j] = -INFINITY;
        assert_true(tables[i]->softmax_step(s, 20, 1.0f, &max, &sum) == 1.0f);
        for (int j = 0; j < 20; j++) assert_true(s[j] == 0);
        assert_true(sum == 0 && max == -INFINITY);
        s[4] = 7;
        tables[i]->softmax_step(s + 4, 1, 1.0f, &max, &sum);
        assert_true(sum == 1 && max == 7);
    }
}

static void test_relu_sum(void **state) {
    (void)state;
    for (int i = 0; i < n_tables; i++)
        for (int n = 1; n < 70; n += 3) {
            float s[3 * 70], w[3] = {2, -1, 0.5f}, acc[70];
            for (int j = 0; j < 3 * 70; j++) s[j] = (float)(j * 37 % 11) - 5;
            for (int j = 0; j < 70; j++) acc[j] = 1;
            s[70 + n - 1] = NAN;
            tables[i]->relu_sum(3, n, s, 70, w, acc);
            for (int j = 0; j < 70; j++) {
                double expected = 1;
                for (int h = 0; h < 3 && j < n; h++)
                    expected += w[h] * (s[h * 70 + j] < 0 ? 0 : s[h * 70 + j]);
                assert_true(j == n - 1 ? isnan(acc[j])
                                       : acc[j] == expected); // small integers: exact
            }
        }
}

// One of many kinds of 32 values, by number: of every size, ties, values beside ties, not finite.
static void q8_0_values(struct lp_rng *rng, int kind, float *x) {
    float size = ldexpf(1.0f, (int)(lp_rng_u64(rng) % 276) - 149);
    for (int j = 0; j < 32; j++) {
        uint32_t bits = (uint32_t)lp_rng_u64(rng);
        int tie = (int)(bits % 255) - 127; // of 127 steps, in halves
        switch (kind % 8) {
        case 0: // zeros of both signs
            x[j] = bits & 1 ? -0.0f : 0.0f;
            break;
        case 1: // any float
            memcpy(&x[j], &bits, 4);
            break;
        case 2: // any float that is finite
            bits &= 0xff7fffffu;
            memcpy(&x[j], &bits, 4);
            break;
        case 3:
            x[j] = j == 5 ? -127.0f : (float)tie * 0.5f;
            break;
        case 4:
            x[j] = j == 31 ? 127.0f : nextafterf((float)tie * 0.5f, bits & 256 ? 999 : -999);
            break;
        default:
            x[j] = size * lp_rng_normal(rng);
        }
    }
    if (kind % 64 == 7) x[lp_rng_u64(rng) % 32] = kind % 128 == 7 ? NAN : -INFINITY;
}

// The bytes of quant/quantize.c, at any address, and nothing behind them.
static void test_q8_0_store(void **state) {
    (void)state;
    enum { BLOCKS = 5, BYTES = BLOCKS * 34 };
    const struct lp_type_info *q8_0 = lp_type_info(LP_TYPE_Q8_0);
    for (int i = 0; i < n_tables; i++) {
        struct lp_rng rng;
        lp_rng_init(&rng, 5);
        for (int round = 0; round < 20000; round++) {
            float x[BLOCKS * 32];
            unsigned char expected[BYTES], row[BYTES + 8];
            int n_blocks = 1 + round % BLOCKS, from = round % 7;
            for (int b = 0; b < n_blocks; b++) q8_0_values(&rng, round * BLOCKS + b, x + b * 32);
            memset(row, 0x77, sizeof row);
            q8_0->quantize(x, expected, (size_t)n_blocks * 32);
            tables[i]->store(LP_TYPE_Q8_0, x, row + from, (size_t)n_blocks * 32);
            assert_memory_equal(row + from, expected, (size_t)n_blocks * 34);
            for (int at = 0; at < BYTES + 8; at++)
                if (at < from || at >= from + n_blocks * 34) assert_int_equal(row[at], 0x77);
        }
    }
}

// Every scale with random integers.
static void test_q8_0_load(void **state) {
    (void)state;
    const struct lp_type_info *q8_0 = lp_type_info(LP_TYPE_Q8_0);
    for (int i = 0; i < n_tables; i++) {
        struct lp_rng rng;
        lp_rng_init(&rng, 6);
        for (uint32_t scale = 0; scale < 65536; scale++) {
            unsigned char row[1 + 34];
            float expected[32], out[34] = {[32] = 1.5f, [33] = 2.5f};
            for (int j = 0; j < 32; j++) row[3 + j] = (unsigned char)lp_rng_u64(&rng);
            memcpy(row + 1, &(uint16_t){(uint16_t)scale}, 2);
            q8_0->dequant(row + 1, expected, 32);
            tables[i]->load(LP_TYPE_Q8_0, row + 1, out, 32);
            for (int j = 0; j < 32; j++)
                if (!isnan(expected[j]))
                    assert_same_bits(&out[j], &expected[j], 1, "load");
                else
                    assert_true(isnan(out[j]));
            assert_true(out[32] == 1.5f && out[33] == 2.5f);
        }
    }
}

// Every code under scales of every exponent that a cache can have, and a NaN; nothing behind them.
static void test_f8_load(void **state) {
    (void)state;
    const struct lp_type_info *f8 = lp_type_info(LP_TYPE_F8_E4M3);
    for (int i = 0; i < n_tables; i++) {
        struct lp_rng rng;
        lp_rng_init(&rng, 7);
        for (int round = 0; round < 1000; round++) {
            struct {
                unsigned char skip; // rows may lie at any address
                struct lp_block_f8_e4m3 b[2];
            } LP_BLOCK_PACKED row;
            float expected[256], out[258] = {[256] = 1.5f, [257] = 2.5f};
            uint32_t bits = (uint32_t)(round % 247) << 23 | ((uint32_t)lp_rng_u64(&rng) & 0x7fffff);
            for (int b = 0; b < 2; b++, bits = round % 9 ? bits ^ 0x5555 : 0x7fc00000u) {
                memcpy(&row.b[b].d, &bits, sizeof bits);
                for (int j = 0; j < 128; j++)
                    row.b[b].q[j] =
                        (uint8_t)(round % 2 ? (unsigned)(128 * b + j) : (unsigned)lp_rng_u64(&rng));
            }
            f8->dequant(row.b, expected, 256);
            tables[i]->load(LP_TYPE_F8_E4M3, row.b, out, 256);
            for (int j = 0; j < 256; j++)
                if (!isnan(expected[j]))
                    assert_same_bits(&out[j], &expected[j], 1, "load");
                else
                    assert_true(isnan(out[j]));
            assert_true(out[256] == 1.5f && out[257] == 2.5f);
        }
    }
}

// The bytes of quant/quantize.c, of values of every size.
static void test_f8_store(void **state) {
    (void)state;
    const struct lp_type_info *f8 = lp_type_info(LP_TYPE_F8_E4M3);
    for (int i = 0; i < n_tables; i++) {
        struct lp_rng rng;
        lp_rng_init(&rng, 8);
        for (int round = 0; round < 3000; round++) {
            float x[256];
            unsigned char expected[264], row[280];
            const int from = round % 7;
            for (int b = 0; b < 8; b++) q8_0_values(&rng, round * 8 + b, x + b * 32);
            memset(row, 0x77, sizeof row);
            f8->quantize(x, expected, 256);
            tables[i]->store(LP_TYPE_F8_E4M3, x, row + from, 256);
            assert_memory_equal(row + from, expected, 264);
            for (int at = 0; at < 280; at++)
                if (at < from || at >= from + 264) assert_int_equal(row[at], 0x77);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_softmax_step),
        cmocka_unit_test(test_softmax_all_infinite),
        cmocka_unit_test(test_relu_sum),
        cmocka_unit_test(test_q8_0_store),
        cmocka_unit_test(test_q8_0_load),
        cmocka_unit_test(test_f8_load),
        cmocka_unit_test(test_f8_store),
    };
    find_tables();
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
