// Building a vocabulary: what is refused and with which words, stop tokens, special tokens in text,
// BOS and EOS, allocation failures.
#include "tokenizer_build.h"

#include <stdio.h>

static void test_ids_out_of_range(void **state) {
    (void)state;
    struct vocab v;
    vocab_glm4(&v);
    int32_t *const ids[] = {&v.params.bos, &v.params.eos, &v.params.eot,
                            &v.params.eom, &v.params.unk, &v.params.pad};
    static const char *const keys[] = {"bos_token_id", "eos_token_id",     "eot_token_id",
                                       "eom_token_id", "unknown_token_id", "padding_token_id"};
    for (size_t i = 0; i < 6; i++) {
        int32_t old = *ids[i];
        char want[128];
        *ids[i] = 99999;
        snprintf(want, sizeof want, "tokenizer.ggml.%s is 99999, the vocabulary has 320 tokens",
                 keys[i]);
        assert_refused(&v, LP_STATUS_FORMAT, want);
        *ids[i] = 320;
        assert_refused(&v, LP_STATUS_FORMAT, keys[i]);
        *ids[i] = -2;
        assert_refused(&v, LP_STATUS_FORMAT, keys[i]);
        *ids[i] = old;
    }
    lp_tokenizer_free(make(&v));
    vocab_release(&v);
}

static void test_unknown_kinds(void **state) {
    (void)state;
    struct vocab v;
    vocab_glm4(&v);
    v.params.model = lp_str_from("bert");
    assert_refused(&v, LP_STATUS_UNSUPPORTED, "\"bert\"");
    v.params.model = lp_str_from("gpt2");
    v.params.pre = lp_str_from("martian");
    assert_refused(&v, LP_STATUS_UNSUPPORTED, "\"martian\"");
    v.params.pre = lp_str_from("glm4");
    v.types[5] = 7;
    assert_refused(&v, LP_STATUS_FORMAT, "token_type[5] is 7");
    v.types[5] = 0;
    assert_refused(&v, LP_STATUS_FORMAT, "token_type[5] is 0");
    v.types[5] = LP_TOKEN_BYTE;
    assert_refused(&v, LP_STATUS_FORMAT, "typed as a byte");
    v.types[5] = LP_TOKEN_NORMAL;
    v.tokens[310] = lp_str_from("\xE2\x96");
    assert_refused(&v, LP_STATUS_FORMAT, "special token 310 is not valid UTF-8");
    v.params.n_tokens = 0;
    v.params.bos = v.params.eos = v.params.eot = v.params.eom = v.params.unk = v.params.pad = -1;
    assert_refused(&v, LP_STATUS_FORMAT, "0 tokens");
    vocab_release(&v);
}

static void test_equal_texts(void **state) {
    (void)state;
    static const char *const extra[] = {"<a>", "<a>", "[PAD0]", "[PAD0]", "", ""};
    struct vocab v;
    vocab_bytes(&v, "glm4", extra, 6, NULL, 0);
    v.types[257] = LP_TOKEN_CONTROL;
    assert_refused(&v, LP_STATUS_FORMAT, "tokens 256 and 257 have the same text \"<a>\"");
    v.types[256] = LP_TOKEN_UNUSED; // a filler gives way, whatever the order
    struct lp_tokenizer *tok = make(&v);
    assert_int_equal(lp_tokenizer_find(tok, lp_str_from("<a>")), 257);
    assert_ids(tok, "<a>", LP_ENCODE_SPECIAL, 257);
    for (int32_t id = 258; id < 262; id++) assert_true(lp_tokenizer_is_unused(tok, id));
    assert_true(lp_tokenizer_is_unused(tok, 256));
    assert_false(lp_tokenizer_is_unused(tok, 257));
    assert_true(lp_tokenizer_is_unused(tok, 262));
    assert_true(lp_tokenizer_is_unused(tok, -1));
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void assert_stops(struct vocab *v, const int32_t *want, size_t n) {
    struct lp_tokenizer *tok = make(v);
    size_t n_stops;
    lp_tokenizer_stop_ids(tok, &n_stops);
    assert_int_equal(n_stops, n);
    for (size_t i = 0; i < n; i++) assert_true(lp_tokenizer_is_stop(tok, want[i]));
    assert_false(lp_tokenizer_is_stop(tok, 0));
    assert_false(lp_tokenizer_is_stop(tok, -1));
    lp_tokenizer_free(tok);
}

static void test_stop_tokens(void **state) {
    (void)state;
    struct vocab v;
    vocab_glm4(&v); // <|endoftext|> 308, <|user|> 315, <|observation|> 317
    assert_stops(&v, (const int32_t[]){308, 315, 317}, 3);
    v.params.eot = v.params.eom = -1; // found by text
    assert_stops(&v, (const int32_t[]){308, 315, 317}, 3);
    v.params.eos = -1;
    assert_stops(&v, (const int32_t[]){308, 315, 317}, 3);
    v.params.pre = lp_str_from("gpt-2"); // not a GLM: only what the file names
    v.params.eos = 308;
    assert_stops(&v, (const int32_t[]){308}, 1);
    vocab_release(&v);

    static const char *const extra[] = {"<|eot_id|>", "<|end_of_text|>", "<|im_end|>",
                                        "<|endoftext|>"};
    vocab_bytes(&v, "llama-bpe", extra, 4, NULL, 0);
    for (int i = 256; i < 260; i++) v.types[i] = LP_TOKEN_CONTROL;
    assert_stops(&v, (const int32_t[]){256, 257}, 2);
    v.params.pre = lp_str_from("qwen2");
    assert_stops(&v, (const int32_t[]){258, 259}, 2);
    vocab_release(&v);
}

static void test_special_tokens_in_text(void **state) {
    (void)state;
    static const char *const extra[] = {"<a>", "<a><b>", "<b>", "<think>", "<thin", "<unk>", "<"};
    struct vocab v;
    vocab_bytes(&v, "glm4", extra, 6, NULL, 0);
    v.types[256] = v.types[257] = v.types[258] = v.types[260] = LP_TOKEN_CONTROL;
    v.types[259] = LP_TOKEN_USER_DEFINED;
    v.types[261] = LP_TOKEN_UNKNOWN;
    struct lp_tokenizer *tok = make(&v);
    assert_ids(tok, "x<a>y", LP_ENCODE_SPECIAL, 'x', 256, 'y');
    assert_ids(tok, "<a><b>", LP_ENCODE_SPECIAL, 257);                 // the longest
    assert_ids(tok, "<a><a><b><b>", LP_ENCODE_SPECIAL, 256, 257, 258); // the leftmost first
    assert_ids(tok, "<think>", LP_ENCODE_SPECIAL, 259);
    assert_ids(tok, "<think", LP_ENCODE_SPECIAL, 260, 'k');
    assert_ids(tok, "<unk>", LP_ENCODE_SPECIAL, 261);
    assert_ids(tok, "<a", LP_ENCODE_SPECIAL, '<', 'a');
    assert_ids(tok, "<<a>", LP_ENCODE_SPECIAL, '<', 256);
    assert_ids(tok, "<a><think>", 0, '<', 'a', '>', 259); // user text: only user-defined ones
    assert_ids(tok, "<unk>", 0, '<', 'u', 'n', 'k', '>');
    assert_true(lp_tokenizer_is_special(tok, 256));
    assert_true(lp_tokenizer_is_special(tok, 261));
    assert_false(lp_tokenizer_is_special(tok, 259));
    assert_false(lp_tokenizer_is_special(tok, 999));
    assert_int_equal(lp_tokenizer_find(tok, lp_str_from("<think>")), 259);
    assert_int_equal(lp_tokenizer_find(tok, lp_str_from("nope")), -1);
    assert_int_equal(lp_tokenizer_find(tok, (struct lp_str){NULL, 0}), -1);
    assert_true(lp_str_is(lp_tokenizer_token(tok, 259), "<think>"));
    assert_int_equal(lp_tokenizer_token(tok, 999).len, 0);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_many_special_tokens_stay_fast(void **state) {
    (void)state;
    static char names[1000][32];
    const char *extra[1000];
    for (int i = 0; i < 1000; i++) {
        snprintf(names[i], sizeof names[i], "<|reserved_special_token_%d|>", i);
        extra[i] = names[i];
    }
    struct vocab v;
    vocab_bytes(&v, "glm4", extra, 1000, NULL, 0);
    for (int i = 256; i < 1256; i++) v.types[i] = LP_TOKEN_CONTROL;
    struct lp_tokenizer *tok = make(&v);
    struct lp_bytes text =
        repeat("<|reserved_special_token_77|>", 30000, "<|reserved_special_token_777");
    struct lp_ids ids = encode(tok, lp_bytes_view(&text), LP_ENCODE_SPECIAL);
    assert_int_equal(ids.n, 30000 + 28);
    for (size_t i = 0; i < 30000; i++) assert_int_equal(ids.data[i], 256 + 77);
    lp_free(ids.data);
    lp_bytes_release(&text);
    text = repeat("<", 1000000, "");
    ids = encode(tok, lp_bytes_view(&text), LP_ENCODE_SPECIAL);
    assert_int_equal(ids.n, 1000000);
    lp_free(ids.data);
    lp_bytes_release(&text);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_bos_and_eos(void **state) {
    (void)state;
    static const char *const extra[] = {"<bos>", "<eos>"};
    struct vocab v;
    vocab_bytes(&v, "llama-bpe", extra, 2, NULL, 0);
    v.types[256] = v.types[257] = LP_TOKEN_CONTROL;
    struct lp_tokenizer *tok = make(&v); // the row adds BOS, but the file has none
    assert_false(lp_tokenizer_adds_bos(tok));
    assert_int_equal(lp_tokenizer_bos(tok), -1);
    assert_ids(tok, "a", LP_ENCODE_BOS_EOS, 'a');
    lp_tokenizer_free(tok);
    v.params.add_bos = 1;
    assert_refused(&v, LP_STATUS_FORMAT, "bos_token_id");
    v.params.bos = 256;
    v.params.eos = 257;
    v.params.add_eos = 1;
    tok = make(&v);
    assert_true(lp_tokenizer_adds_bos(tok));
    assert_ids(tok, "a", LP_ENCODE_BOS_EOS, 256, 'a', 257);
    assert_ids(tok, "", LP_ENCODE_BOS_EOS, 256, 257);
    assert_ids(tok, "a", 0, 'a');
    assert_ids(tok, "<bos>a", LP_ENCODE_BOS_EOS | LP_ENCODE_SPECIAL, 256, 'a', 257); // not doubled
    assert_ids(tok, "<bos>", LP_ENCODE_BOS_EOS, 256, '<', 'b', 'o', 's', '>', 257);
    lp_tokenizer_free(tok);
    v.params.add_bos = v.params.add_eos = -1;
    v.params.pre = lp_str_from("glm4");
    tok = make(&v);
    assert_false(lp_tokenizer_adds_bos(tok));
    assert_ids(tok, "a", LP_ENCODE_BOS_EOS, 'a');
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_appends_and_keeps_what_was_there(void **state) {
    (void)state;
    struct vocab v;
    vocab_bytes(&v, "glm4", NULL, 0, NULL, 0);
    struct lp_tokenizer *tok = make(&v);
    struct lp_ids ids = {0};
    for (int round = 0; round < 2; round++)
        assert_int_equal(
            lp_tokenizer_encode(tok, lp_str_from("ab"), 0, &ids.data, &ids.n, &ids.capacity, NULL),
            LP_OK);
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.data, ((const int32_t[]){'a', 'b', 'a', 'b'}), 16);
    struct lp_str too_long = {"", ((size_t)1 << 30) + 1};
    assert_int_equal(lp_tokenizer_encode(tok, too_long, 0, &ids.data, &ids.n, &ids.capacity, NULL),
                     LP_STATUS_LIMIT);
    assert_int_equal(ids.n, 4);
    lp_free(ids.data);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

// Each allocation in turn fails: a status, no leak (the sanitizers look), no half-made result.
static void sweep(const struct vocab *v, const char *text) {
    bool built = false, encoded = false;
    for (size_t nth = 1; !built && nth < 100000; nth++) {
        struct lp_tokenizer *tok;
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        lp_status status = lp_tokenizer_new(&tok, &v->params, &err);
        lp_alloc_fail_after(0);
        built = status == LP_OK;
        if (!built) {
            assert_int_equal(status, LP_STATUS_MEMORY);
            assert_null(tok);
        }
        lp_tokenizer_free(tok);
    }
    struct lp_tokenizer *tok = make(v);
    for (size_t nth = 1; !encoded && nth < 100000; nth++) {
        struct lp_ids ids = {0};
        struct lp_err err = {0};
        lp_alloc_fail_after(nth);
        lp_status status =
            lp_tokenizer_encode(tok, lp_str_from(text), 3, &ids.data, &ids.n, &ids.capacity, &err);
        lp_alloc_fail_after(0);
        encoded = status == LP_OK;
        if (!encoded) {
            assert_int_equal(status, LP_STATUS_MEMORY);
            assert_int_equal(ids.n, 0);
        }
        lp_free(ids.data);
    }
    assert_true(built && encoded);
    lp_tokenizer_free(tok);
}

static void test_allocation_failures(void **state) {
    (void)state;
    struct vocab v;
    struct lp_bytes text = repeat("some words, 123 \xFF<|user|>\n", 30, "end");
    static const char *const rows[] = {"glm4", "llama-bpe", "default", "deepseek-llm"};
    vocab_glm4(&v);
    for (size_t i = 0; i < 4; i++) {
        v.params.pre = lp_str_from(rows[i]);
        sweep(&v, text.data);
    }
    vocab_release(&v);
    vocab_spm(&v);
    sweep(&v, text.data);
    vocab_release(&v);
    lp_bytes_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_out_of_range),
        cmocka_unit_test(test_unknown_kinds),
        cmocka_unit_test(test_equal_texts),
        cmocka_unit_test(test_stop_tokens),
        cmocka_unit_test(test_special_tokens_in_text),
        cmocka_unit_test(test_many_special_tokens_stay_fast),
        cmocka_unit_test(test_bos_and_eos),
        cmocka_unit_test(test_appends_and_keeps_what_was_there),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
