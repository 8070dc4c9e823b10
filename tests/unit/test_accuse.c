// What a sentence is about, and numbers as people read them.
#include "lp_test.h"

#include <math.h>

#include "doctor/accuse.h"

static void sentences_name_keys_and_tensors(void **state) {
    (void)state;
    static const struct {
        const char *sentence, *what;
    } rows[] = {
        {"metadata key glm-dsa.block_count is 0, expected 1 to 512", "glm-dsa.block_count"},
        {"m.gguf: tensor blk.3.attn_k_b.weight has offset 5, expected 0", "blk.3.attn_k_b.weight"},
        {"m.gguf: key general.alignment is 3, expected a power", "general.alignment"},
        {"tokenizer.ggml.token_type[7] is 9, known are 1 to 6", "tokenizer.ggml.token_type"},
        {"the file has no tokenizer.ggml.bos_token_id.", "tokenizer.ggml.bos_token_id"},
    };
    char what[LP_WHAT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(lp_accuse_what(rows[i].sentence, what));
        assert_string_equal(what, rows[i].what);
    }
    assert_false(lp_accuse_what("the file ends at byte 7", what));
    assert_false(lp_accuse_what("tensor ", what));
    assert_false(lp_accuse_what("a monkey is no key", what));
}

static void numbers_have_commas(void **state) {
    (void)state;
    assert_string_equal(lp_accuse_number(0).text, "0");
    assert_string_equal(lp_accuse_number(999).text, "999");
    assert_string_equal(lp_accuse_number(1809).text, "1,809");
    assert_string_equal(lp_accuse_number(UINT64_MAX).text, "18,446,744,073,709,551,615");
}

static void a_count_is_a_check(void **state) {
    (void)state;
    struct lp_report *report = lp_report_new("m.gguf", false);
    lp_accuse_counted(report, LP_STAGE_FILE, "tensors bound", 1809, 0, "all %s", "bound");
    lp_accuse_counted(report, LP_STAGE_FILE, "sizes", 3, 1, "sizes");
    assert_int_equal(report->n_checks, 2);
    assert_string_equal(report->checks[0].figure, "1,809 of 1,809");
    assert_int_equal(report->checks[0].outcome, LP_CHECK_OK);
    assert_string_equal(report->checks[1].figure, "3 of 4");
    assert_int_equal(report->checks[1].outcome, LP_CHECK_FAULT);
    lp_report_free(report);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_name_keys_and_tensors),
        cmocka_unit_test(numbers_have_commas),
        cmocka_unit_test(a_count_is_a_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
