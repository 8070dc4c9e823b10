// tokenizer.json and its neighbours -> keys. Expected keys come from the shipped mini model, from
// the pre-tokenizers of the models' own files, and by hand.
#include "hf_tokenizer_build.h"

static void the_mini_model_is_the_shipped_one(void **state) {
    (void)state;
    struct lp_hf_folder f =
        folder_of(json_load_file("tests/data/tokenizer/mini_tokenizer.json", JSON_ALLOW_NUL, NULL));
    struct lp_gguf *shipped;
    struct lp_err err = {0};
    assert_non_null(f.tokenizer);
    assert_int_equal(lp_gguf_open(&shipped, "models/mini-glm-dsa.gguf", &err), LP_OK);
    struct file file = convert(&f, 3584);
    uint64_t n = 0;
    for (uint64_t i = 0; i < lp_gguf_n_kv(shipped); i++) {
        const struct lp_gguf_kv *kv = lp_gguf_kv_at(shipped, i), *mine;
        if (kv->key.len < 15 || memcmp(kv->key.data, "tokenizer.ggml.", 15)) continue;
        mine = lp_gguf_kv_at(file.gguf, n++);
        assert_true(lp_str_equal(mine->key, kv->key));
        assert_int_equal(mine->type, kv->type);
        assert_int_equal(mine->element_type, kv->element_type);
        assert_int_equal(mine->count, kv->count);
        for (uint64_t j = 0; j < kv->count; j++)
            if (kv->strings)
                assert_true(lp_str_equal(mine->strings[j], kv->strings[j]));
            else
                assert_int_equal(lp_gguf_int_at(mine, j), lp_gguf_int_at(kv, j));
    }
    assert_int_equal(lp_gguf_n_kv(file.gguf), n);
    assert_int_equal(n, 11);
    lp_gguf_close(shipped);
    drop(&file);
    release(&f);
}

static void types_of_added_tokens_and_padding(void **state) {
    (void)state;
    struct lp_hf_folder f =
        folder_of(bytes_tokenizer("[" ADD(258, "<s>", true) "," ADD(259, "<think>", false) "," ADD(
            260, "<|box|>", false) "," ADD(261, "<\xEF\xBD\x9Cx\xEF\xBD\x9C>",
                                           false) "," ADD(263, "<pad>", false) "," ADD(257, "the",
                                                                                       false) "]"));
    f.tokenizer_config = parse("{\"added_tokens_decoder\":{\"264\":{\"content\":\"new\"},"
                               "\"259\":{\"content\":\"<think>\",\"special\":true}}}");
    struct file file = convert(&f, 268);
    assert_token(&file, 'A', "A", LP_TOKEN_NORMAL);
    assert_token(&file, ' ', "\xC4\xA0", LP_TOKEN_NORMAL);
    assert_token(&file, 256, "th", LP_TOKEN_NORMAL);
    assert_token(&file, 257, "the", LP_TOKEN_USER_DEFINED);
    assert_token(&file, 258, "<s>", LP_TOKEN_CONTROL);
    assert_token(&file, 259, "<think>", LP_TOKEN_CONTROL);
    assert_token(&file, 260, "<|box|>", LP_TOKEN_CONTROL);
    assert_token(&file, 261, "<\xEF\xBD\x9Cx\xEF\xBD\x9C>", LP_TOKEN_CONTROL);
    assert_token(&file, 262, "[PAD262]", LP_TOKEN_UNUSED);
    assert_token(&file, 263, "<pad>", LP_TOKEN_CONTROL);
    assert_token(&file, 264, "new", LP_TOKEN_USER_DEFINED);
    assert_token(&file, 267, "[PAD267]", LP_TOKEN_UNUSED);
    const struct lp_gguf_kv *merges = lp_gguf_find(file.gguf, "tokenizer.ggml.merges");
    assert_int_equal(merges->count, 2);
    assert_true(lp_str_is(merges->strings[1], "th e"));
    drop(&file);
    release(&f);
}

static void merges_as_pairs(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
    json_object_set_new(json_object_get(f.tokenizer, "model"), "merges",
                        parse("[[\"t\",\"h\"],[\"th\",\"e\"]]"));
    struct file file = convert(&f, 258);
    const struct lp_gguf_kv *merges = lp_gguf_find(file.gguf, "tokenizer.ggml.merges");
    assert_true(lp_str_is(merges->strings[0], "t h") && lp_str_is(merges->strings[1], "th e"));
    drop(&file);
    release(&f);
}

static void damaged_vocabularies(void **state) {
    (void)state;
    static const struct {
        const char *path, *key, *json, *words;
        lp_status status;
    } rows[] = {
        {"model", "type", "\"WordPiece\"", "WordPiece", LP_STATUS_UNSUPPORTED},
        {"model", "type", "\"Unigram\"", "Unigram", LP_STATUS_UNSUPPORTED},
        {"model", "vocab", "[]", "model.vocab is missing or empty", LP_STATUS_FORMAT},
        {"model", "vocab", "{\"a\":0,\"b\":0}", "given to two tokens", LP_STATUS_FORMAT},
        {"model", "vocab", "{\"a\":258}", "has 258 rows", LP_STATUS_FORMAT},
        {"model", "vocab", "{\"a\":-1}", "has the id -1", LP_STATUS_FORMAT},
        {"model", "vocab", "{\"a\":9223372036854775807}", "258 rows", LP_STATUS_FORMAT},
        {"model", "vocab", "{\"a\":\"0\"}", "no whole number", LP_STATUS_FORMAT},
        {"model", "vocab", "{\"a\":0}", "for byte 0x", LP_STATUS_FORMAT},
        {"model", "merges", "null", "model.merges is missing", LP_STATUS_FORMAT},
        {"model", "merges", "[7]", "model.merges[0]", LP_STATUS_FORMAT},
        {"model", "merges", "[[\"a\"]]", "model.merges[0]", LP_STATUS_FORMAT},
        {"model", "merges", "[[\"a\",\"b\",\"c\"]]", "model.merges[0]", LP_STATUS_FORMAT},
        {"model", "merges", "[\"t h\",\"t h\"]", "merges[1] repeats", LP_STATUS_FORMAT},
        {"model", "merges", "[\"th\"]", "merges[0] is \"th\"", LP_STATUS_FORMAT},
        {"model", "merges", "[\"h t\"]", "needs the token \"ht\"", LP_STATUS_FORMAT},
        {"model", "dropout", "0.1", "dropout", LP_STATUS_UNSUPPORTED},
        {"model", "end_of_word_suffix", "\"</w>\"", "</w>", LP_STATUS_UNSUPPORTED},
        {"", "added_tokens", "[{\"content\":\"a\"}]", "added_tokens[0] has no id",
         LP_STATUS_FORMAT},
        {"", "added_tokens", "[{\"id\":1}]", "no content", LP_STATUS_FORMAT},
        {"", "added_tokens", "[" ADD(258, "x", true) "]", "has 258 rows", LP_STATUS_FORMAT},
        {"", "added_tokens", "[" ADD(65, "x", true) "]", "\"A\" and \"x\"", LP_STATUS_FORMAT},
        {"", "model", "null", "only BPE", LP_STATUS_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
        json_t *at = *rows[i].path ? json_object_get(f.tokenizer, rows[i].path) : f.tokenizer;
        json_object_set_new(at, rows[i].key, parse(rows[i].json));
        refused(f, 258, rows[i].status, rows[i].words);
    }
    refused(folder_of(bytes_tokenizer("[]")), 0, LP_STATUS_LIMIT, "vocab_size is 0");
    refused(folder_of(bytes_tokenizer("[]")), 1LL << 40, LP_STATUS_LIMIT, "vocab_size");
    refused(folder_of(bytes_tokenizer("[]")), 257, LP_STATUS_FORMAT, "has 257 rows");
    refused(folder_of(bytes_tokenizer("[" ADD(258, "xy", true) "," ADD(259, "xy", true) "]")), 260,
            LP_STATUS_FORMAT, "two ids, 258 and 259");
    refused(folder_of(NULL), 260, LP_STATUS_FORMAT, "no tokenizer.json");
}

static void no_allocation_is_missed(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(bytes_tokenizer("[" ADD(258, "<s>", true) "]"));
    sweep(&f, 262);
    release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mini_model_is_the_shipped_one),
        cmocka_unit_test(types_of_added_tokens_and_padding),
        cmocka_unit_test(merges_as_pairs),
        cmocka_unit_test(damaged_vocabularies),
        cmocka_unit_test(no_allocation_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
