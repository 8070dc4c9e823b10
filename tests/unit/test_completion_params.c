// The body of /v1/completions: every kind of prompt, defaults, types and ranges. That a fuzz target
// reads arbitrary bytes with the same function is in fuzz/fuzz_request.c.
#include "lp_test.h"

#include "base/alloc.h"
#include "serve/completion_params.h"

#define N_CONTEXT 4

static struct lp_completion_params p;
static struct lp_api_error err;

static bool parse(const char *body) {
    return lp_completion_params_parse(&p, body, strlen(body), N_CONTEXT, &err);
}

static int release(void **state) {
    (void)state;
    lp_completion_params_release(&p);
    return 0;
}

static void refuses(const char *body, const char *param, const char *part_of_message) {
    assert_false(parse(body));
    assert_int_equal(err.http, 400);
    assert_string_equal(err.type, "invalid_request_error");
    assert_string_equal(err.param, param);
    if (!strstr(err.message, part_of_message))
        fail_msg("'%s' lacks '%s'", err.message, part_of_message);
    lp_completion_params_release(&p);
}

static void what_is_absent_or_null_has_its_default(void **state) {
    (void)state;
    const char *bodies[] = {"{\"prompt\": \"x\"}",
                            "{\"prompt\": \"x\", \"max_tokens\": null, \"temperature\": null, "
                            "\"stop\": null, \"n\": null,"
                            "\"seed\": null, \"logprobs\": null, \"model\": null, "
                            "\"stream_options\": null, \"best_of\": null, \"min_p\": null, "
                            "\"logit_bias\": null, \"stop_token_ids\": null, "
                            "\"repeat_penalty\": null, \"dry_sequence_breakers\": null}"};
    for (size_t i = 0; i < 2; i++) {
        assert_true(parse(bodies[i]));
        assert_int_equal(p.max_tokens, 16);
        assert_true(p.temperature == 1 && p.top_p == 1 && p.min_p == 0 && p.typical_p == 1);
        assert_true(p.repetition_penalty == 1 && p.presence_penalty == 0 &&
                    p.frequency_penalty == 0 && p.dry_multiplier == 0 && p.dry_base == 1.75);
        assert_int_equal(p.dry_allowed_length, 2);
        assert_int_equal(p.min_tokens, 0);
        assert_int_equal(p.priority, 0);
        assert_int_equal(p.n_stop_ids + p.n_bias + p.n_breakers, 0);
        assert_false(p.has_breakers);
        assert_int_equal(p.top_k, 0);
        assert_int_equal(p.n, 1);
        assert_int_equal(p.logprobs, -1);
        assert_int_equal(p.n_stop, 0);
        assert_false(p.has_seed || p.echo || p.stream || p.include_usage || p.ignore_eos);
        assert_true(p.skip_special_tokens && p.add_special_tokens);
        assert_null(p.model);
        lp_completion_params_release(&p);
    }
}

static void every_field_arrives(void **state) {
    (void)state;
    assert_true(parse(
        "{\"prompt\": \"x\", \"max_tokens\": 7, \"temperature\": 0.5, \"top_p\": 0.25, \"top_k\": "
        "3, \"n\": 2,"
        "\"best_of\": 2, \"seed\": -9223372036854775808, \"logprobs\": 20, \"stop\": [\"a\", "
        "\"bc\"], \"echo\": true,"
        "\"stream\": true, \"stream_options\": {\"include_usage\": true}, \"ignore_eos\": true,"
        "\"skip_special_tokens\": false, \"add_special_tokens\": false, \"model\": \"m\"}"));
    assert_int_equal(p.max_tokens, 7);
    assert_true(p.temperature == 0.5 && p.top_p == 0.25);
    assert_int_equal(p.top_k, 3);
    assert_int_equal(p.n, 2);
    assert_true(p.has_seed && p.seed == INT64_MIN);
    assert_int_equal(p.logprobs, 20);
    assert_int_equal(p.n_stop, 2);
    assert_string_equal(p.stop[1], "bc");
    assert_true(p.echo && p.stream && p.include_usage && p.ignore_eos);
    assert_false(p.skip_special_tokens || p.add_special_tokens);
    assert_string_equal(p.model, "m");
}

static void every_sampling_field_arrives(void **state) {
    (void)state;
    assert_true(parse(
        "{\"prompt\": \"x\", \"min_p\": 0.25, \"typical_p\": 0.5, \"repetition_penalty\": 1.5, "
        "\"presence_penalty\": -2, \"frequency_penalty\": 2, \"dry_multiplier\": 0.75, "
        "\"dry_base\": 2, \"dry_allowed_length\": 3, \"dry_sequence_breakers\": [\"a\", \"\\n\"], "
        "\"min_tokens\": 16, \"stop_token_ids\": [7, 2147483647], \"priority\": -5, "
        "\"logit_bias\": {\"5\": 1.5, \"0\": -100}}"));
    assert_true(p.min_p == 0.25 && p.typical_p == 0.5 && p.repetition_penalty == 1.5);
    assert_true(p.presence_penalty == -2 && p.frequency_penalty == 2);
    assert_true(p.dry_multiplier == 0.75 && p.dry_base == 2);
    assert_int_equal(p.dry_allowed_length, 3);
    assert_true(p.has_breakers);
    assert_int_equal(p.n_breakers, 2);
    assert_string_equal(p.breakers[1], "\n");
    assert_int_equal(p.min_tokens, 16);
    assert_int_equal(p.n_stop_ids, 2);
    assert_int_equal(p.stop_ids[1], 2147483647);
    assert_int_equal(p.priority, -5);
    assert_int_equal(p.n_bias, 2);
    size_t five = p.bias_ids[0] == 5 ? 0 : 1; // an object has no order
    assert_int_equal(p.bias_ids[five], 5);
    assert_true(p.bias[five] == 1.5f && p.bias_ids[1 - five] == 0 && p.bias[1 - five] == -100);
    lp_completion_params_release(&p);

    assert_true(parse("{\"prompt\": \"x\", \"repeat_penalty\": 1.25, \"repeat_last_n\": -1, "
                      "\"dry_sequence_breakers\": []}")); // llama-server's names
    assert_true(p.repetition_penalty == 1.25);
    assert_true(p.has_breakers && p.n_breakers == 0);
}

static void sampling_fields_out_of_range_are_refused(void **state) {
    (void)state;
    const struct {
        const char *field, *value;
    } rows[] = {
        {"min_p", "-0.1"},
        {"min_p", "1.5"},
        {"min_p", "\"0\""},
        {"typical_p", "0"},
        {"typical_p", "1.1"},
        {"repetition_penalty", "0"},
        {"repeat_penalty", "-1"},
        {"presence_penalty", "2.1"},
        {"frequency_penalty", "-2.1"},
        {"frequency_penalty", "\"0\""},
        {"dry_multiplier", "-1"},
        {"dry_base", "0.5"},
        {"dry_allowed_length", "1.5"},
        {"dry_sequence_breakers", "[1]"},
        {"dry_sequence_breakers", "[\"\"]"},
        {"min_tokens", "-1"},
        {"min_tokens", "17"},
        {"stop_token_ids", "5"},
        {"stop_token_ids", "[-1]"},
        {"stop_token_ids", "[2147483648]"},
        {"stop_token_ids", "[\"a\"]"},
        {"priority", "2147483648"},
        {"logit_bias", "[[5, 1]]"},
        {"logit_bias", "{\"a\": 1}"},
        {"logit_bias", "{\"\": 1}"},
        {"logit_bias", "{\"-1\": 1}"},
        {"logit_bias", "{\"2147483648\": 1}"},
        {"logit_bias", "{\"5\": 101}"},
        {"logit_bias", "{\"5\": true}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\": \"x\", \"%s\": %s}", rows[i].field,
                 rows[i].value);
        refuses(body, rows[i].field, "");
    }
    refuses("{\"prompt\": \"x\", \"repeat_penalty\": 1.5, \"repeat_last_n\": 64}", "repeat_last_n",
            "-1");
    assert_true(parse("{\"prompt\": \"x\", \"repeat_last_n\": 64}")); // nothing to repeat
}

static void long_lists_of_ids_and_deep_bodies_are_refused_unparsed(void **state) {
    (void)state;
    assert_true(parse("{\"prompt\": [1, 2, 3, 4]}"));
    lp_completion_params_release(&p);
    refuses("{\"prompt\": [1, 2, 3, 4, 5]}", "prompt", "5 tokens; the context of 4");
    assert_string_equal(err.code, "context_length_exceeded");
    refuses("{\"prompt\": [[1], [1, 2, 3, 4, 5, 6]]}", "prompt", "6 tokens");
    refuses("{\"prompt\": [1, 2, 3, 4, 5, nonsense", "prompt", ""); // no JSON, or too long: 400

    char body[600] = "{\"x\": ";
    memset(body + 6, '[', 127);
    memset(body + 6 + 127, ']', 127);
    strcpy(body + 6 + 254, ", \"prompt\": \"x\"}");
    assert_true(parse(body)); // 128 levels
    lp_completion_params_release(&p);
    memset(body + 6, '[', 128);
    memset(body + 6 + 128, ']', 128);
    strcpy(body + 6 + 256, ", \"prompt\": \"x\"}");
    refuses(body, "", "more than 128");
}

static void a_prompt_is_text_or_ids_one_or_several(void **state) {
    (void)state;
    assert_true(parse("{\"prompt\": \"a\\u0000b\"}"));
    assert_int_equal(p.n_prompts, 1);
    assert_int_equal(p.prompts[0].n_bytes, 3);
    assert_memory_equal(p.prompts[0].text, "a\0b", 4);
    lp_completion_params_release(&p);

    assert_true(parse("{\"prompt\": [5, 0, 2147483647]}"));
    assert_int_equal(p.n_prompts, 1);
    assert_null(p.prompts[0].text);
    assert_int_equal(p.prompts[0].n_ids, 3);
    assert_int_equal(p.prompts[0].ids[2], 2147483647);
    lp_completion_params_release(&p);

    assert_true(parse("{\"prompt\": [\"a\", \"\"]}"));
    assert_int_equal(p.n_prompts, 2);
    assert_int_equal(p.prompts[1].n_bytes, 0);
    lp_completion_params_release(&p);

    assert_true(parse("{\"prompt\": [[1], [2, 3]]}"));
    assert_int_equal(p.n_prompts, 2);
    assert_int_equal(p.prompts[1].ids[1], 3);
}

static void prompts_of_the_wrong_kind_are_refused(void **state) {
    (void)state;
    refuses("{}", "prompt", "missing");
    refuses("{\"prompt\": null}", "prompt", "missing");
    refuses("{\"prompt\": 5}", "prompt", "a number");
    refuses("{\"prompt\": []}", "prompt", "empty");
    refuses("{\"prompt\": [1, \"a\"]}", "prompt", "element 1");
    refuses("{\"prompt\": [\"a\", [1]]}", "prompt", "prompt[1] is an array");
    refuses("{\"prompt\": [[1], [1.0]]}", "prompt", "element 0");
    refuses("{\"prompt\": [2147483648]}", "prompt", "element 0");
    refuses("{\"prompt\": [true]}", "prompt", "element 0");
    refuses("{\"prompt\": [{}]}", "prompt", "element 0");
}

static void bad_json_is_refused_with_its_place(void **state) {
    (void)state;
    refuses("", "", "empty");
    refuses("{\"prompt\":\n \"x\",}", "", "line 2");
    refuses("5", "", "a number");
    refuses("{\"prompt\": \"x\", \"seed\": 99999999999999999999}", "", "too big integer");
    refuses("{\"prompt\": \"x\", \"temperature\": 1e999}", "", "real number overflow");
    refuses("{\"prompt\": \"x\", \"temperature\": NaN}", "", "line 1");
    refuses("{\"prompt\": \"\\ud800\"}", "", "line 1");
    refuses("{\"prompt\": \"x\"} x", "", "line 1");
}

// What would change the output is not dropped in silence; what asks for nothing is accepted.
static void unsupported_settings_are_refused_by_name(void **state) {
    (void)state;
    refuses("{\"prompt\": \"x\", \"length_penalty\": 0.1}", "length_penalty",
            "not supported in this version");
    refuses("{\"prompt\": \"x\", \"allowed_token_ids\": [1]}", "allowed_token_ids",
            "not supported");
    refuses("{\"prompt\": \"x\", \"use_beam_search\": true}", "use_beam_search", "not supported");
    refuses("{\"prompt\": \"x\", \"best_of\": 3, \"n\": 2}", "best_of", "equals n (2)");
    refuses("{\"prompt\": \"x\", \"stream\": true, \"stream_options\": "
            "{\"continuous_usage_stats\": true}}",
            "stream_options.continuous_usage_stats", "not supported");
    assert_true(parse("{\"prompt\": \"x\", \"presence_penalty\": 0.0, \"repetition_penalty\": 1.0, "
                      "\"guided_json\": null,"
                      "\"stop_token_ids\": [], \"use_beam_search\": false, \"suffix\": \"\", "
                      "\"best_of\": 1, \"unheard_of\": 3}"));
}

static void a_key_that_comes_twice_counts_once(void **state) {
    (void)state;
    assert_true(parse("{\"prompt\": \"x\", \"max_tokens\": \"many\", \"max_tokens\": 3}"));
    assert_int_equal(p.max_tokens, 3);
}

static void out_of_memory_is_an_error_at_every_allocation(void **state) {
    (void)state;
    const char *body = "{\"prompt\": [\"a\", \"b\"], \"model\": \"m\", \"stop\": [\"x\", \"y\"], "
                       "\"stop_token_ids\": [1], \"logit_bias\": {\"1\": 1}, "
                       "\"dry_sequence_breakers\": \"z\"}";
    size_t nth = 1;
    for (;; nth++) {
        lp_alloc_fail_after(nth);
        bool ok = parse(body);
        lp_alloc_fail_after(0);
        if (ok) break;
        assert_int_equal(err.http, 500);
        lp_completion_params_release(&p);
    }
    // the array, 2 prompts, the model, 2 stop texts, a breaker, stop ids, ids and numbers of the
    // bias
    assert_int_equal(nth, 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_absent_or_null_has_its_default, release),
        cmocka_unit_test_teardown(every_field_arrives, release),
        cmocka_unit_test_teardown(every_sampling_field_arrives, release),
        cmocka_unit_test_teardown(sampling_fields_out_of_range_are_refused, release),
        cmocka_unit_test_teardown(long_lists_of_ids_and_deep_bodies_are_refused_unparsed, release),
        cmocka_unit_test_teardown(a_prompt_is_text_or_ids_one_or_several, release),
        cmocka_unit_test_teardown(prompts_of_the_wrong_kind_are_refused, release),
        cmocka_unit_test_teardown(bad_json_is_refused_with_its_place, release),
        cmocka_unit_test_teardown(unsupported_settings_are_refused_by_name, release),
        cmocka_unit_test_teardown(a_key_that_comes_twice_counts_once, release),
        cmocka_unit_test_teardown(out_of_memory_is_an_error_at_every_allocation, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
