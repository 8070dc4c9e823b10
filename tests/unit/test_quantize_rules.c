// Rule files: what a line matches, which rule counts, and what is said of mistakes.
#include "lp_test.h"

#include <unistd.h>

#include "base/alloc.h"
#include "files/quantize_rules.h"

static char path[64];

static lp_status read_text(struct lp_quant_rules *rules, const char *text, struct lp_err *err) {
    snprintf(path, sizeof path, "/tmp/limpid-rules-%d.txt", (int)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    lp_status status = lp_quant_rules_read(rules, path, err);
    unlink(path);
    return status;
}

static struct lp_quant_rules right(const char *text) {
    struct lp_quant_rules rules;
    struct lp_err err = {0};
    lp_status status = read_text(&rules, text, &err);
    if (status) print_message("%s\n", err.text);
    assert_int_equal(status, LP_OK);
    return rules;
}

// The type's name, "-" where no rule matches, or the sentence of an error.
static const char *type_of(struct lp_quant_rules *rules, const char *name, uint32_t n_dims) {
    static struct lp_err err;
    struct lp_str s = lp_str_from(name);
    bool found;
    lp_type type;
    if (lp_quant_rules_apply(rules, s, lp_quant_role_of(s, n_dims), &found, &type, &err))
        return err.text;
    return found ? lp_type_info((uint32_t)type)->name : "-";
}

static void globs(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } rows[] = {
        {"*", "", true},
        {"*", "abc", true},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"a*c", "ac", true},
        {"a*c", "abbc", true},
        {"a*c", "abcb", false},
        {"*ab*", "xxaabxx", true},
        {"a*b*c", "aXbYc", true},
        {"a*b*c", "aXcYb", false},
        {"", "", true},
        {"", "a", false},
        {"**", "a", true},
        {"*.weight", "a.weight", true},
        {"*.weight", "a.bias", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(lp_quant_glob(lp_str_from(rows[i].pattern), lp_str_from(rows[i].name)),
                         rows[i].matches);
    char stars[400], name[4000]; // would take years if misses were tried in every way
    for (int i = 0; i < 398; i += 2) memcpy(stars + i, "*a", 2);
    memcpy(stars + 398, "b", 2);
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_false(lp_quant_glob(lp_str_from(stars), lp_str_from(name)));
}

static void the_first_match_counts(void **state) {
    (void)state;
    struct lp_quant_rules r = right("# experts\n"
                                    "*.ffn_down_exps.weight layers 0-3,9,70- = q6_k # higher\r\n"
                                    "\n"
                                    "*_exps* = Q4_K\n"
                                    "attn_?.weight=Q8_0\n"
                                    "output.weight = F16");
    assert_string_equal(type_of(&r, "blk.0.ffn_down_exps.weight", 3), "Q6_K");
    assert_string_equal(type_of(&r, "blk.3.ffn_down_exps.weight", 3), "Q6_K");
    assert_string_equal(type_of(&r, "blk.4.ffn_down_exps.weight", 3), "Q4_K");
    assert_string_equal(type_of(&r, "blk.9.ffn_down_exps.weight", 3), "Q6_K");
    assert_string_equal(type_of(&r, "blk.69.ffn_down_exps.weight", 3), "Q4_K");
    assert_string_equal(type_of(&r, "blk.77.ffn_down_exps.weight", 3), "Q6_K");
    assert_string_equal(type_of(&r, "blk.3.ffn_up_exps.weight", 3), "Q4_K");
    assert_string_equal(type_of(&r, "blk.12.attn_q.weight", 2), "Q8_0"); // behind "blk.12."
    assert_string_equal(type_of(&r, "blk.12.attn_q_a.weight", 2), "-");
    assert_string_equal(type_of(&r, "output.weight", 2), "F16");
    struct lp_err err;
    assert_int_equal(lp_quant_rules_check(&r, &err), LP_OK);
    lp_quant_rules_release(&r);
}

static void kept_tensors_are_named_whole(void **state) {
    (void)state;
    struct lp_quant_rules r = right("* = Q4_K\nblk.1.ffn_gate_inp.weight = BF16\n"
                                    "output_norm.weight = Q8_0");
    assert_string_equal(type_of(&r, "blk.1.attn_norm.weight", 1), "-");
    assert_string_equal(type_of(&r, "blk.1.ffn_gate_inp.weight", 2), "BF16");
    assert_string_equal(type_of(&r, "blk.2.ffn_gate_inp.weight", 2), "-");
    assert_string_equal(type_of(&r, "blk.1.ffn_up_exps.scale", 1), "-");
    assert_string_equal(type_of(&r, "blk.1.ffn_up.weight", 2), "Q4_K");
    const char *text = type_of(&r, "output_norm.weight", 1);
    assert_non_null(strstr(text, ":3: output_norm.weight is small and decides much"));
    lp_quant_rules_release(&r);
}

static void a_rule_without_a_match_is_told_of(void **state) {
    (void)state;
    struct lp_err err;
    struct lp_quant_rules r = right("? nothing = Q8_0\nalso_nothing layers 3 = Q8_0\n");
    assert_string_equal(type_of(&r, "blk.2.also_nothing", 2), "-");
    assert_int_equal(lp_quant_rules_check(&r, &err), LP_STATUS_FORMAT);
    assert_non_null(strstr(err.text, ":2: 'also_nothing' matches no matrix"));
    lp_quant_rules_release(&r);
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"attn_q", ":1: expected PATTERN [layers A-B] = TYPE, not 'attn_q'"},
        {"\n = Q8_0", ":2: there is no pattern in"},
        {"a = Q3_K", ":1: unknown type 'Q3_K'; types: F32, F16,"},
        {"a = ", ":1: unknown type ''"},
        {"a b = Q8_0", "expected '=' or 'layers' behind the pattern, not 'b'"},
        {"a layers = Q8_0", "expected '=' or 'layers'"},
        {"a layers x = Q8_0", "layers are numbers as in 0-7,12,70-, not 'x'"},
        {"a layers 5-3 = Q8_0", "layers are numbers"},
        {"a layers 1,,2 = Q8_0", "layers are numbers"},
        {"a layers 99999999 = Q8_0", "layers are numbers"},
        {"a layers 1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8 = Q8_0", "layers are numbers"},
        {"a = Keep", ":1: unknown type 'Keep'; types: F32,"},
        {"a = keep", NULL},
        {"? = Q8_0\n?  = Q8_0", NULL}, // the pattern is "?"
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lp_quant_rules r;
        struct lp_err err = {0};
        lp_status status = read_text(&r, rows[i].text, &err);
        assert_int_equal(status, rows[i].says ? LP_STATUS_FORMAT : LP_OK);
        if (rows[i].says && !strstr(err.text, rows[i].says)) fail_msg("%s", err.text);
        lp_quant_rules_release(&r);
    }
}

static void without_memory(void **state) {
    (void)state;
    for (size_t nth = 1; nth < 8; nth++) {
        struct lp_quant_rules r;
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        lp_status status = read_text(&r, "a = Q8_0\n", &err);
        lp_alloc_fail_after(0);
        assert_true(status == LP_OK || err.text[0]);
        lp_quant_rules_release(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs),
        cmocka_unit_test(the_first_match_counts),
        cmocka_unit_test(kept_tensors_are_named_whole),
        cmocka_unit_test(a_rule_without_a_match_is_told_of),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
