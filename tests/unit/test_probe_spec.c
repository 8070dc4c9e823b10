// "layer=3,op=attn.scores,first=2": what it selects, and what is said of mistakes.
#include "lp_test.h"

#include "engine/probe_spec.h"

#define N_LAYERS 8
#define N_TOKENS 40

static struct lp_probe_spec right(const char *text) {
    struct lp_probe_spec spec;
    struct lp_err err;
    lp_status status = lp_probe_spec_parse(&spec, text, N_LAYERS, N_TOKENS, &err);
    if (status) print_message("%s\n", err.text);
    assert_int_equal(status, LP_OK);
    return spec;
}

static int count_points(const struct lp_probe_spec *spec) {
    int n = 0;
    for (int i = 0; i < LP_N_PROBE_POINTS; i++) n += spec->points[i];
    return n;
}

static void selects_layers_and_points(void **state) {
    (void)state;
    struct lp_probe_spec s = right("layer=3,op=attn.scores");
    assert_false(s.every_layer);
    assert_true(s.first_layer == 3 && s.last_layer == 3 && s.by_name);
    assert_int_equal(count_points(&s), 1);
    assert_true(s.points[LP_PROBE_ATTN_SCORES]);
    s = right("op=index.*,layer=2-5");
    assert_true(s.first_layer == 2 && s.last_layer == 5 && !s.by_name);
    assert_true(s.points[LP_PROBE_INDEX_K] && s.points[LP_PROBE_INDEX_TOPK]);
    assert_int_equal(count_points(&s), 7);
    assert_true(right("op=attn.q").every_layer);
    assert_true(right("layer=all,op=attn.q").every_layer);
    s = right("op=*");
    assert_int_equal(count_points(&s), LP_N_PROBE_POINTS);
}

static void selects_rows(void **state) {
    (void)state;
    struct lp_probe_spec s = right("op=attn.q");
    assert_true(s.n_ranges == 1 && s.ranges[0].first == 0 && s.ranges[0].last == N_TOKENS - 1);
    s = right("op=attn.q,first=2,last=3,at=7,at=9-12");
    const struct lp_probe_range want[] = {{0, 1}, {37, 39}, {7, 7}, {9, 12}};
    assert_int_equal(s.n_ranges, 4);
    for (int i = 0; i < 4; i++)
        assert_true(s.ranges[i].first == want[i].first && s.ranges[i].last == want[i].last);
    s = right("op=attn.q,first=1000,last=1000"); // more than there are
    assert_true(s.ranges[0].last == N_TOKENS - 1 && s.ranges[1].first == 0);
}

static void mistakes_are_named(void **state) {
    (void)state;
    const struct {
        const char *text, *words;
    } wrong[] = {
        {"layer=8,op=attn.q", "layers 0 to 7"},
        {"layer=2-9,op=attn.q", "layers 0 to 7"},
        {"layer=5-2,op=attn.q", "a range such as"},
        {"layer=-1,op=attn.q", "a range such as"},
        {"layer=3x,op=attn.q", "a range such as"},
        {"layer=,op=attn.q", "a range such as"},
        {"layer=99999999999999999999,op=attn.q", "a range such as"},
        {"op=attn.score", "near: attn.scores"},
        {"op=topk", "near: index.topk"},
        {"op=attn.kq", "near: attn.kv_proj"},
        {"op=", "there is no op ''"},
        {"op=zebra", "probe list"},
        {"op=zebra*", "probe list"},
        {"op=attn.q,first=0", "from the start"},
        {"op=attn.q,last=two", "from the end"},
        {"op=attn.q,at=40", "positions 0 to 39"},
        {"op=attn.q,at=9-8", "a position such as"},
        {"op=attn.q,rows=3", "'rows' is no key"},
        {"op=attn.q,", "'' is no key"},
        {"attn.q", "'attn.q' is no key"},
        {"", "'' is no key"},
        {"layer=3", "names no op"},
        {"op=embed,at=1,at=2,at=3,at=4,at=5,at=6,at=7,at=8,at=9,at=10,at=11,at=12,at=13,at=14,at="
         "15,"
         "at=16,at=17",
         "more than 16"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct lp_probe_spec spec;
        struct lp_err err;
        assert_int_equal(lp_probe_spec_parse(&spec, wrong[i].text, N_LAYERS, N_TOKENS, &err),
                         LP_STATUS_INVALID);
        if (!strstr(err.text, wrong[i].words)) print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, wrong[i].words));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selects_layers_and_points),
        cmocka_unit_test(selects_rows),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
