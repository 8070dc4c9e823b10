// What is refused, warned of and advised, on machines of every size.
#include "cli/memory_check.h"

#include "lp_test.h"

#define GB ((uint64_t)1000000000)

// Mapped 8 GB, copied 1, cache 3, buffers 1.
static const limpid_memory_plan plan = {.mapped_weights = 8 * GB,
                                        .copied_weights = GB,
                                        .kv_cache = 3 * GB,
                                        .step_buffers = GB,
                                        .n_context = 1000,
                                        .n_kv_tokens = 4000};

static struct lp_memory_judgement judge(limpid_memory_plan p, uint64_t available,
                                        const limpid_model_options *o, bool is_folder) {
    struct lp_memory_judgement j;
    p.available = available;
    lp_memory_judge(&j, &p, o, is_folder, "lower --ctx");
    return j;
}

static void what_must_be_in_memory_is_held_against_it(void **state) {
    (void)state;
    limpid_model_options o = limpid_model_default_options();
    assert_int_equal(judge(plan, 13 * GB, &o, false).verdict, LP_MEMORY_FITS);
    assert_int_equal(judge(plan, 13 * GB - 1, &o, false).verdict, LP_MEMORY_PAGES);
    assert_int_equal(judge(plan, 5 * GB, &o, false).verdict, LP_MEMORY_PAGES);
    assert_int_equal(judge(plan, 5 * GB - 1, &o, false).verdict, LP_MEMORY_REFUSED);
    assert_int_equal(judge(plan, 1, &o, false).verdict, LP_MEMORY_REFUSED); // nothing is left
    assert_int_equal(judge(plan, 0, &o, false).verdict, LP_MEMORY_FITS);    // not known
    assert_string_equal(judge(plan, 13 * GB, &o, false).text, "");
}

// Of a GPU the host's memory says nothing, and mapped weights are the experts that stay there.
static void of_a_gpu_its_own_memory_counts(void **state) {
    (void)state;
    limpid_model_options o = limpid_model_default_options();
    limpid_memory_plan p = plan;
    char text[512];
    p.on_device = 1;
    assert_int_equal(judge(p, 5 * GB, &o, false).verdict, LP_MEMORY_FITS);
    p.mapped_weights = 0;
    p.copied_weights = 9 * GB;
    struct lp_memory_judgement j = judge(p, 10 * GB, &o, false);
    assert_int_equal(j.verdict, LP_MEMORY_REFUSED);
    static const char *const words[] = {"13.00 GB of the GPU's memory", "10.00 GB", "--vram-budget",
                                        "lower --ctx"};
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (!strstr(j.text, words[k])) fail_msg("no '%s' in: %s", words[k], j.text);
    o.vram_budget_bytes = 10 * GB;
    j = judge(p, 10 * GB, &o, false);
    if (!strstr(j.text, "raise --vram-budget")) fail_msg("%s", j.text);
    lp_memory_plan_text(text, sizeof text, &p);
    if (strncmp(text, "GPU memory: ", 12) != 0) fail_msg("%s", text);
}

static void a_refusal_names_the_sizes_and_what_to_do(void **state) {
    (void)state;
    limpid_memory_plan p = plan;
    p.mapped_weights = 0;
    p.copied_weights = 9 * GB;
    struct {
        limpid_model_options o;
        bool is_folder;
        const char *word;
    } cases[] = {{{.prefetch = true}, false, "leave --prefetch out"},
                 {{.repack = "on"}, false, "leave --repack on out"},
                 {{.prefetch = true, .repack = "on"}, false, "--prefetch and --repack on"},
                 {{.memory_budget_bytes = GB}, false, "lower --memory-budget"},
                 {{.repack = "auto"}, true, "limpid convert"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lp_memory_judgement j = judge(p, 10 * GB, &cases[i].o, cases[i].is_folder);
        assert_int_equal(j.verdict, LP_MEMORY_REFUSED);
        static const char *const words[] = {"13.00 GB", "10.00 GB",    "9.00 GB", "3.00 GB",
                                            "1.00 GB",  "lower --ctx", "--kv"};
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            if (!strstr(j.text, words[k])) fail_msg("no '%s' in: %s", words[k], j.text);
        if (!strstr(j.text, cases[i].word)) fail_msg("no '%s' in: %s", cases[i].word, j.text);
    }
    assert_null(strstr(judge(plan, GB, &cases[4].o, false).text, "convert"));
}

static void weights_that_page_from_disk_name_the_remedy(void **state) {
    (void)state;
    limpid_model_options o = limpid_model_default_options();
    struct lp_memory_judgement j = judge(plan, 7 * GB, &o, false);
    assert_non_null(strstr(j.text, "8.00 GB"));
    assert_non_null(strstr(j.text, "2.00 GB"));
    assert_non_null(strstr(j.text, "--memory-budget"));
    o.memory_budget_bytes = 6 * GB;
    assert_non_null(strstr(judge(plan, 7 * GB, &o, false).text, "lower --memory-budget"));
}

static void the_plan_is_one_line(void **state) {
    (void)state;
    char text[512];
    limpid_memory_plan p = plan;
    lp_memory_plan_text(text, sizeof text, &p);
    assert_non_null(strstr(text, "unknown"));
    p.available = 20 * GB;
    lp_memory_plan_text(text, sizeof text, &p);
    assert_string_equal(text,
                        "memory: weights 8.00 GB mapped and 1.00 GB copied; KV cache 3.00 GB for "
                        "4000 tokens (a context has 1000); buffers of a step 1.00 GB; "
                        "available: 20.00 GB");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_must_be_in_memory_is_held_against_it),
        cmocka_unit_test(of_a_gpu_its_own_memory_counts),
        cmocka_unit_test(a_refusal_names_the_sizes_and_what_to_do),
        cmocka_unit_test(weights_that_page_from_disk_name_the_remedy),
        cmocka_unit_test(the_plan_is_one_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
