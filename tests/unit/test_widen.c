// Blocks of Q4_0, Q5_0 and IQ4_NL as blocks of Q8_0: the same values, bit for bit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "quant/quant.h"
#include "quant/widen.h"

static void values_stay_the_same(void **state) {
    (void)state;
    static const lp_type types[] = {LP_TYPE_Q4_0, LP_TYPE_Q5_0, LP_TYPE_IQ4_NL, LP_TYPE_Q8_0};
    struct lp_rng rng;
    lp_rng_init(&rng, 3);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const struct lp_type_info *info = lp_type_info((uint32_t)types[t]);
        assert_true(lp_widens_to_q8_0(types[t]));
        for (int i = 0; i < 2000; i++) {
            unsigned char block[40], wide[34];
            float from[32], to[32];
            for (size_t k = 0; k < sizeof block; k++) block[k] = (unsigned char)lp_rng_u64(&rng);
            info->dequant(block, from, 32); // any scale, NaN and infinity too
            lp_widen_to_q8_0(types[t], block, wide);
            lp_type_info(LP_TYPE_Q8_0)->dequant(wide, to, 32);
            for (int k = 0; k < 32; k++)
                if (from[k] == from[k]) assert_memory_equal(&from[k], &to[k], sizeof from[k]);
        }
    }
    assert_false(lp_widens_to_q8_0(LP_TYPE_Q4_1));
    assert_false(lp_widens_to_q8_0(LP_TYPE_Q4_K));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_stay_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
