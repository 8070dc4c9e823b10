// limpid.h as an embedder uses it: opening, text, engines, and their errors.
#include "lp_test.h"

#include "base/alloc.h"
#include "limpid.h"

#define MINI "models/mini-glm-dsa.gguf"

static void opens_and_says_what_it_is(void **state) {
    (void)state;
    limpid_model *model;
    limpid_error err;
    assert_int_equal(limpid_model_open(&model, MINI, NULL, &err), LIMPID_OK);
    limpid_model_info info = limpid_model_get_info(model);
    assert_string_equal(info.architecture, "glm-dsa");
    assert_int_equal(info.n_layers, 5);
    assert_int_equal(info.n_vocab, 3584);
    assert_int_equal(info.top_k, 256);
    assert_int_equal(info.n_bound + info.n_ignored, info.n_tensors);
    assert_true(info.has_chat_template);
    limpid_model_close(model);
}

static void a_vocabulary_alone_makes_no_engine(void **state) {
    (void)state;
    limpid_model *model;
    limpid_engine *engine;
    limpid_error err;
    int32_t *ids;
    size_t n_ids;
    limpid_model_options mo = limpid_model_default_options();
    mo.vocab_only = true;
    assert_int_equal(limpid_model_open(&model, MINI, &mo, &err), LIMPID_OK);
    assert_int_equal(limpid_model_get_info(model).n_vocab, 3584);
    assert_int_equal(limpid_tokenize(model, "<sop>", 5, LIMPID_SPECIAL, &ids, &n_ids, &err),
                     LIMPID_OK);
    assert_int_equal(n_ids, 1);
    limpid_free(ids);
    assert_int_equal(limpid_engine_new(&engine, model, NULL, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "vocab_only"));
    limpid_model_close(model);
}

static void bad_settings_are_named(void **state) {
    (void)state;
    limpid_model *model;
    limpid_engine *engine;
    limpid_error err;
    limpid_model_options mo = limpid_model_default_options();
    mo.backend = "gpu9";
    assert_int_equal(limpid_model_open(&model, MINI, &mo, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "gpu9"));
    mo = limpid_model_default_options();
    mo.cpu_level = "mmx";
    assert_int_equal(limpid_model_open(&model, MINI, &mo, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "mmx"));
    assert_int_equal(limpid_model_open(&model, "no/such.gguf", NULL, &err), LIMPID_IO);
    assert_non_null(strstr(err.text, "no/such.gguf"));
    assert_int_equal(limpid_model_open(&model, MINI, NULL, &err), LIMPID_OK);
    limpid_engine_options eo = limpid_engine_default_options();
    eo.route = "sideways";
    assert_int_equal(limpid_engine_new(&engine, model, &eo, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "sideways"));
    eo = limpid_engine_default_options();
    eo.kv_type = "q4_0";
    assert_int_equal(limpid_engine_new(&engine, model, &eo, &err), LIMPID_INVALID);
    assert_non_null(strstr(err.text, "q4_0"));
    eo = limpid_engine_default_options();
    eo.n_context = -3;
    assert_int_equal(limpid_engine_new(&engine, model, &eo, &err), LIMPID_INVALID);
    limpid_model_close(model);
}

static void text_goes_both_ways(void **state) {
    (void)state;
    limpid_model *model;
    limpid_error err;
    int32_t *ids;
    size_t n_ids, n_bytes;
    char *text;
    const char *const texts[] = {"Hello, world", "caf\xc3\xa9 \xf0\x9f\x98\x80", "",
                                 "  <think>a</think>\n\n"};
    assert_int_equal(limpid_model_open(&model, MINI, NULL, &err), LIMPID_OK);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(
            limpid_tokenize(model, texts[i], strlen(texts[i]), LIMPID_SPECIAL, &ids, &n_ids, &err),
            LIMPID_OK);
        assert_int_equal(limpid_detokenize(model, ids, n_ids, false, &text, &n_bytes, &err),
                         LIMPID_OK);
        assert_int_equal(n_bytes, strlen(texts[i]));
        assert_memory_equal(text, texts[i], n_bytes);
        limpid_free(ids);
        limpid_free(text);
    }
    const int32_t bad[] = {-1}, past[] = {3584};
    assert_int_equal(limpid_detokenize(model, bad, 1, false, &text, &n_bytes, &err),
                     LIMPID_INVALID);
    assert_int_equal(limpid_detokenize(model, past, 1, false, &text, &n_bytes, &err),
                     LIMPID_INVALID);
    assert_non_null(strstr(err.text, "3584"));
    limpid_model_close(model);
}

static void chat_prompts_are_those_of_the_model(void **state) {
    (void)state;
    limpid_model *model;
    limpid_error err;
    char *text;
    size_t n;
    const char *messages = "[{\"role\":\"user\",\"content\":\"706 + 31\"}]";
    assert_int_equal(limpid_model_open(&model, MINI, NULL, &err), LIMPID_OK);
    assert_int_equal(
        limpid_chat_prompt(model, messages, "{\"enable_thinking\": false}", &text, &n, &err),
        LIMPID_OK);
    assert_string_equal(text,
                        "[gMASK]<sop><|user|>706 + 31<|assistant|></think>"); // as in skills.jsonl
    limpid_free(text);
    assert_int_equal(limpid_chat_prompt(model, messages, NULL, &text, &n, &err), LIMPID_OK);
    assert_string_equal(text, "[gMASK]<sop><|user|>706 + 31<|assistant|><think>");
    limpid_free(text);
    const char *tools = "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}";
    assert_int_equal(limpid_chat_prompt(model, messages, tools, &text, &n, &err), LIMPID_OK);
    limpid_free(text);
    assert_int_equal(limpid_chat_prompt(model, messages, "{\"tools\": 1}", &text, &n, &err),
                     LIMPID_INVALID);
    assert_non_null(strstr(err.text, "tools"));
    assert_int_equal(limpid_chat_prompt(model, "[{]", NULL, &text, &n, &err), LIMPID_INVALID);
    assert_int_equal(limpid_chat_prompt(model, "{}", NULL, &text, &n, &err), LIMPID_INVALID);
    limpid_model_close(model);
}

// The engines of a model share its device: a smaller one that comes later takes nothing away.
static void engines_of_one_model_go_together(void **state) {
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    for (size_t i = 0; i < 2; i++) {
        limpid_model *model;
        limpid_engine *large, *small;
        limpid_sequence *sequence;
        limpid_error err;
        limpid_model_options mo = limpid_model_default_options();
        limpid_engine_options eo = limpid_engine_default_options();
        int32_t tokens[96] = {0};
        mo.backend = backends[i];
        assert_int_equal(limpid_model_open(&model, "tests/golden/dsa_shared.gguf", &mo, &err),
                         LIMPID_OK);
        eo.n_context = 128;
        assert_int_equal(limpid_engine_new(&large, model, &eo, &err), LIMPID_OK);
        eo.n_context = 2;
        assert_int_equal(limpid_engine_new(&small, model, &eo, &err), LIMPID_OK);
        assert_int_equal(limpid_sequence_new(&sequence, large, &err), LIMPID_OK);
        assert_int_equal(limpid_sequence_append(sequence, tokens, 96, NULL, NULL, &err), LIMPID_OK);
        limpid_sequence_free(sequence);
        limpid_engine_free(small, NULL);
        limpid_engine_free(large, NULL);
        limpid_model_close(model);
    }
}

// Opening a model and an engine with each allocation failing in turn: an error, no crash, no leak.
static void running_out_of_memory_is_an_error(void **state) {
    (void)state;
    limpid_model_options mo = limpid_model_default_options();
    limpid_engine_options eo = limpid_engine_default_options();
    mo.backend = "ref";
    mo.n_threads = 1; // the failure hook is not for several threads
    eo.n_context = 64;
    bool done = false;
    for (size_t nth = 1; !done && nth < 100000; nth += nth < 400 ? 1 : 97) {
        limpid_model *model = NULL;
        limpid_engine *engine = NULL;
        limpid_error err = {0};
        lp_alloc_fail_after(nth);
        limpid_status status = limpid_model_open(&model, "tests/golden/dsa_shared.gguf", &mo, &err);
        if (!status) status = limpid_engine_new(&engine, model, &eo, &err);
        lp_alloc_fail_after(0);
        done = status == LIMPID_OK;
        if (!done) assert_int_equal(status, LIMPID_MEMORY);
        if (!done) assert_true(err.text[0] != 0);
        limpid_engine_free(engine, NULL);
        limpid_model_close(model);
    }
    assert_true(done);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens_and_says_what_it_is),
                                       cmocka_unit_test(a_vocabulary_alone_makes_no_engine),
                                       cmocka_unit_test(bad_settings_are_named),
                                       cmocka_unit_test(text_goes_both_ways),
                                       cmocka_unit_test(chat_prompts_are_those_of_the_model),
                                       cmocka_unit_test(engines_of_one_model_go_together),
                                       cmocka_unit_test(running_out_of_memory_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
