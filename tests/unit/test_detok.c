// Ids to text: single pieces, and the streaming form, whose output must not depend on where tokens
// cut.
#include "tokenizer_build.h"

// All ids through the streaming form; every chunk must be well-formed UTF-8.
static struct lp_bytes stream(const struct lp_tokenizer *tok, struct lp_ids ids,
                              bool skip_special) {
    struct lp_bytes out = {0};
    struct lp_detok detok;
    lp_detok_init(&detok, tok, skip_special);
    for (size_t i = 0; i < ids.n; i++) {
        size_t before = out.len;
        assert_true(lp_detok_push(&detok, ids.data[i], &out));
        if (out.len == before) continue;
        json_t *valid = json_stringn(out.data + before, out.len - before); // NULL unless UTF-8
        assert_non_null(valid);
        json_decref(valid);
    }
    assert_true(lp_detok_finish(&detok, &out));
    return out;
}

static void assert_stream(const struct lp_tokenizer *tok, const int32_t *ids, size_t n,
                          bool skip_special, const char *want) {
    struct lp_bytes out = stream(tok, (struct lp_ids){(int32_t *)ids, n, n}, skip_special);
    assert_string_equal(out.data ? out.data : "", want);
    lp_bytes_release(&out);
}
#define ASSERT_STREAM(tok, skip, want, ...)                                                        \
    assert_stream(tok, (const int32_t[]){__VA_ARGS__},                                             \
                  sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t), skip, want)

static void test_streams_what_was_encoded(void **state) {
    (void)state;
    struct vocab v;
    vocab_mini(&v);
    struct lp_tokenizer *tok = make(&v);
    json_t *json = load_json("tests/data/tokenizer/mini_cases.json"), *item;
    size_t i;
    json_array_foreach(json, i, item) {
        struct lp_str text = json_str(json_object_get(item, "text"));
        struct lp_ids ids = encode(tok, text, LP_ENCODE_SPECIAL);
        struct lp_bytes out = stream(tok, ids, false);
        assert_true(lp_str_equal(lp_bytes_view(&out), text));
        lp_bytes_release(&out);
        lp_free(ids.data);
    }
    json_decref(json);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

#define BAD "\xEF\xBF\xBD"

// As Python's bytes.decode("utf-8", "replace") on the same bytes.
static void test_bad_bytes(void **state) {
    (void)state;
    struct vocab v;
    vocab_bytes(&v, "glm4", NULL, 0, NULL, 0);
    struct lp_tokenizer *tok = make(&v);
    ASSERT_STREAM(tok, true, "\xF0\x9F\x98\x80", 0xF0, 0x9F, 0x98, 0x80);
    ASSERT_STREAM(tok, true, BAD, 0xF0, 0x9F, 0x98);          // cut at the end: one mark
    ASSERT_STREAM(tok, true, BAD "a", 0xF0, 0x9F, 0x98, 'a'); // cut by another: one mark
    ASSERT_STREAM(tok, true, BAD BAD, 0x80, 0xBF);            // lone continuations
    ASSERT_STREAM(tok, true, BAD BAD BAD, 0xED, 0xA0, 0x80);  // a surrogate
    ASSERT_STREAM(tok, true, BAD BAD, 0xC0, 0x80);            // overlong
    ASSERT_STREAM(tok, true, BAD BAD BAD BAD, 0xF5, 0x80, 0x80, 0x80);
    ASSERT_STREAM(tok, true, BAD "\xC3\xA9", 0xC3, 0xC3, 0xA9);
    ASSERT_STREAM(tok, true, BAD BAD BAD, 0xF4, 0x90, 0x80);
    // The same bytes as text to encode: mended the same way.
    struct lp_str text = {"x\xF0\x9F\x98y\xFF", 6};
    struct lp_ids ids = encode(tok, text, 0);
    struct lp_bytes back = decode(tok, ids);
    assert_string_equal(back.data, "x" BAD "y" BAD);
    lp_bytes_release(&back);
    lp_free(ids.data);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_kinds_of_tokens(void **state) {
    (void)state;
    static const char *const extra[] = {"<|user|>", "<think>",    "[PAD1]",
                                        "x y",      "\xC4\xA0hi", "<unk>"};
    struct vocab v;
    vocab_bytes(&v, "glm4", extra, 6, NULL, 0);
    v.types[256] = LP_TOKEN_CONTROL;
    v.types[257] = LP_TOKEN_USER_DEFINED;
    v.types[258] = LP_TOKEN_UNUSED;
    v.types[261] = LP_TOKEN_UNKNOWN;
    struct lp_tokenizer *tok = make(&v);
    ASSERT_STREAM(tok, true, "<think> hi", 256, 257, 261, 260);
    ASSERT_STREAM(tok, false, "<|user|><think><unk> hi", 256, 257, 261, 260);
    ASSERT_STREAM(tok, true, "[PAD1]x y", 258,
                  259); // 259: no byte is spelled " ", so it is plain text
    struct lp_bytes out = {0};
    assert_false(lp_tokenizer_piece(tok, -1, true, &out));
    assert_false(lp_tokenizer_piece(tok, 262, true, &out));
    ASSERT_STREAM(tok, true, "\xC3\xA9", 0xC3, 256,
                  0xA9); // a skipped token does not cut a character
    lp_bytes_release(&out);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_spm(void **state) {
    (void)state;
    struct vocab v;
    vocab_spm(&v);
    struct lp_tokenizer *tok = make(&v);
    json_t *cases = json_object_get(v.json, "cases"), *item;
    size_t i;
    json_array_foreach(cases, i, item) {
        struct lp_str text = json_str(json_object_get(item, "text"));
        struct lp_ids ids = encode(tok, text, LP_ENCODE_BOS_EOS);
        struct lp_bytes out = stream(tok, ids, true);
        assert_true(lp_str_equal(lp_bytes_view(&out), text));
        lp_bytes_release(&out);
        lp_free(ids.data);
    }
    int32_t space = lp_tokenizer_find(tok, lp_str_from("\xE2\x96\x81"));
    assert_true(space >= 0);
    ASSERT_STREAM(tok, true, "", space); // the prefix alone
    ASSERT_STREAM(tok, true, " ", space, space);
    ASSERT_STREAM(tok, false, "<s> ", 1, space); // only the very first space is dropped
    lp_tokenizer_free(tok);
    v.params.add_space_prefix = 0;
    tok = make(&v);
    ASSERT_STREAM(tok, true, " ", space);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_out_of_memory(void **state) {
    (void)state;
    struct vocab v;
    vocab_bytes(&v, "glm4", NULL, 0, NULL, 0);
    struct lp_tokenizer *tok = make(&v);
    struct lp_detok detok;
    lp_detok_init(&detok, tok, true);
    struct lp_bytes out = {0};
    lp_alloc_fail_after(1);
    bool ok = lp_detok_push(&detok, 'a', &out);
    lp_alloc_fail_after(0);
    assert_false(ok);
    lp_bytes_release(&out);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_what_was_encoded),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_kinds_of_tokens),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
