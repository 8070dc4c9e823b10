// Invariant 2: the route is a function of the work, not of a phase name.
#include "lp_test.h"

#include "attention/route.h"

// GLM-5's head sizes
static struct lp_route_work work(int64_t n_query, int64_t n_kv, int32_t top_k) {
    return (struct lp_route_work){.n_query = n_query,
                                  .n_kv = n_kv,
                                  .top_k = top_k,
                                  .nope = 192,
                                  .rope = 64,
                                  .latent = 512,
                                  .v_dim = 256};
}

static void few_queries_absorb_many_expand(void **state) {
    (void)state;
    struct lp_route_work one = work(1, 1, 0), decode = work(1, 5000, 0), prompt = work(512, 512, 0),
                         late = work(16, 100000, 0);
    assert_string_equal(lp_route_choose(&one).name, "absorbed");
    assert_string_equal(lp_route_choose(&decode).name, "absorbed");
    assert_string_equal(lp_route_choose(&prompt).name, "expanded");
    assert_string_equal(lp_route_choose(&late).name, "absorbed");
}

static void a_one_token_prompt_is_no_special_case(void **state) {
    (void)state;
    // the same work by either name: the struct has no field that could tell them apart
    for (int64_t n_kv = 1; n_kv < 10000; n_kv = n_kv * 3 + 1) {
        struct lp_route_work a = work(1, n_kv, 2048), b = work(1, n_kv, 2048);
        struct lp_route ra = lp_route_choose(&a), rb = lp_route_choose(&b);
        assert_int_equal(ra.expanded, rb.expanded);
        assert_int_equal(ra.select, n_kv > 2048);
    }
}

static void selection_starts_behind_top_k(void **state) {
    (void)state;
    struct lp_route_work at = work(1, 2048, 2048), past = work(1, 2049, 2048);
    assert_false(lp_route_choose(&at).select);
    assert_true(lp_route_choose(&past).select);
    assert_string_equal(lp_route_choose(&past).name, "sparse");
}

static void forces_are_obeyed_and_reported(void **state) {
    (void)state;
    struct lp_route_work w = work(1, 4000, 2048);
    w.force = LP_ROUTE_EXPANDED;
    assert_string_equal(lp_route_choose(&w).name, "expanded-sparse");
    w.force = LP_ROUTE_DENSE;
    assert_false(lp_route_choose(&w).select);
    assert_string_equal(lp_route_choose(&w).name, "dense-absorbed");
    w = work(512, 512, 0);
    w.force = LP_ROUTE_ABSORBED;
    assert_string_equal(lp_route_choose(&w).name, "absorbed");
    assert_non_null(strstr(lp_route_choose(&w).reason, "forced"));
}

static void deterministic_knows_one_form(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 4096; n *= 2) {
        struct lp_route_work w = work(n, n + 77, 0);
        w.deterministic = true;
        assert_false(lp_route_choose(&w).expanded);
    }
}

static void names_are_parsed(void **state) {
    (void)state;
    enum lp_route_force force;
    assert_true(lp_route_force_parse("absorbed", &force) && force == LP_ROUTE_ABSORBED);
    assert_true(lp_route_force_parse("dense", &force) && force == LP_ROUTE_DENSE);
    assert_false(lp_route_force_parse("Dense", &force));
    assert_false(lp_route_force_parse("", &force));
}

// Names that another process has sent: in a buffer of that one's, which is gone later.
static void names_are_found(void **state) {
    (void)state;
    static const enum lp_route_force forces[] = {LP_ROUTE_EXPANDED, LP_ROUTE_ABSORBED,
                                                 LP_ROUTE_DENSE};
    for (size_t i = 0; i < sizeof forces / sizeof *forces; i++)
        for (int64_t n_kv = 100; n_kv <= 5000; n_kv += 4900) {
            struct lp_route_work w = work(16, n_kv, 2048);
            w.force = forces[i];
            const char *name = lp_route_choose(&w).name;
            char sent[32];
            snprintf(sent, sizeof sent, "%s", name);
            assert_ptr_equal(lp_route_find_name(sent), name);
        }
    assert_string_equal(lp_route_find_name("gqa"), "gqa");
    assert_null(lp_route_find_name("absorb"));
    assert_null(lp_route_find_name(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_queries_absorb_many_expand),
        cmocka_unit_test(a_one_token_prompt_is_no_special_case),
        cmocka_unit_test(selection_starts_behind_top_k),
        cmocka_unit_test(forces_are_obeyed_and_reported),
        cmocka_unit_test(deterministic_knows_one_form),
        cmocka_unit_test(names_are_parsed),
        cmocka_unit_test(names_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
