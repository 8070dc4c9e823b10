// SentencePiece-style BPE: ids against the library sentencepiece on a model it trained, the rule on
// small vocabularies, broken ones.
#include "tokenizer_build.h"

#include <math.h>

static void test_equals_sentencepiece(void **state) {
    (void)state;
    struct vocab v;
    vocab_spm(&v);
    struct lp_tokenizer *tok = make(&v);
    assert_true(assert_cases(tok, json_object_get(v.json, "cases")) >= 150);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

// Ids 0 <unk>, 1 <s>, 2 </s>, 3.. the bytes, from 259 what the test adds.
enum { FIRST_BYTE = 3, FIRST_EXTRA = 259 };

static void vocab_small(struct vocab *v, const char *const *extra, const float *scores,
                        uint32_t n) {
    vocab_init(v, "llama", "", FIRST_EXTRA + n, 0);
    v->tokens[0] = lp_str_from("<unk>");
    v->tokens[1] = lp_str_from("<s>");
    v->tokens[2] = lp_str_from("</s>");
    v->types[0] = LP_TOKEN_UNKNOWN;
    v->types[1] = v->types[2] = LP_TOKEN_CONTROL;
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        v->tokens[FIRST_BYTE + b] = (struct lp_str){lp_arena_strndup(&v->arena, text, 6), 6};
        v->types[FIRST_BYTE + b] = LP_TOKEN_BYTE;
    }
    for (uint32_t i = 0; i < n; i++) {
        v->tokens[FIRST_EXTRA + i] = lp_str_from(extra[i]);
        v->scores[FIRST_EXTRA + i] = scores[i];
    }
}

#define X(i) (FIRST_EXTRA + (i))
#define BYTE(b) (FIRST_BYTE + (b))

static void test_the_rule(void **state) {
    (void)state;
    static const char *const extra[] = {"a",
                                        "b",
                                        "c",
                                        "ab",
                                        "bc",
                                        "abc",
                                        "\xE2\x96\x81",
                                        ("\xE2\x96\x81"
                                         "a"),
                                        "aa",
                                        "<|x|>",
                                        "<think>"};
    static const float scores[] = {-20, -21, -22, -5, -4, -8, -23, -7, -1, 0, 0};
    struct vocab v;
    vocab_small(&v, extra, scores, 11);
    v.types[X(9)] = LP_TOKEN_CONTROL;
    v.types[X(10)] = LP_TOKEN_USER_DEFINED;
    struct lp_tokenizer *tok = make(&v);
    assert_ids(tok, "abc", 0, X(7), X(4)); // b c first, then mark + a, not a + bc
    assert_ids(tok, "c abc", 0, X(6), X(2), X(7), X(4));
    assert_ids(tok, "caaa", 0, X(6), X(2), X(8), X(0)); // leftmost on a tie
    assert_ids(tok, "b\xC3\xA9", 0, X(6), X(1), BYTE(0xC3), BYTE(0xA9));
    assert_ids(tok, "b\n", 0, X(6), X(1), BYTE('\n'));
    // Every fragment after a special token gets its prefix; control tokens only where asked.
    assert_ids(tok, "b<|x|>b", LP_ENCODE_SPECIAL, X(6), X(1), X(9), X(6), X(1));
    assert_ids(tok, "<think>b", 0, X(10), X(6), X(1));
    assert_ids(tok, "b<s>", 0, X(6), X(1), BYTE('<'), BYTE('s'), BYTE('>'));
    assert_ids(tok, "<|x|>", LP_ENCODE_SPECIAL, X(9));
    // Defaults: BOS 1 is added, EOS is not.
    assert_ids(tok, "b", LP_ENCODE_BOS_EOS, 1, X(6), X(1));
    assert_int_equal(lp_tokenizer_eos(tok), 2);
    assert_true(lp_tokenizer_is_stop(tok, 2));
    lp_tokenizer_free(tok);
    v.params.add_space_prefix = 0;
    v.params.add_bos = 0;
    tok = make(&v);
    assert_ids(tok, "abc", LP_ENCODE_BOS_EOS, X(5)); // b c, then a + bc
    assert_ids(tok, " b", 0, X(6), X(1));
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_byte_texts(void **state) {
    (void)state;
    assert_int_equal(lp_spm_byte_of(lp_str_from("<0x00>")), 0);
    assert_int_equal(lp_spm_byte_of(lp_str_from("<0xFf>")), 255);
    assert_int_equal(lp_spm_byte_of(lp_str_from("<0x-1>")), -1);
    assert_int_equal(lp_spm_byte_of(lp_str_from("<0x 1>")), -1);
    assert_int_equal(lp_spm_byte_of(lp_str_from("<0xZZ>")), -1);
    assert_int_equal(lp_spm_byte_of(lp_str_from("<0x123>")), -1);
    assert_int_equal(lp_spm_byte_of(lp_str_from("<0x1>")), -1);
    assert_int_equal(lp_spm_byte_of(lp_str_from("")), -1);
    struct vocab v;
    vocab_small(&v, NULL, NULL, 0);
    v.tokens[BYTE(9)] = lp_str_from("<0x-1>");
    assert_refused(&v, LP_STATUS_FORMAT, "<0x-1>");
    v.tokens[BYTE(9)] = lp_str_from("<0x0a>");
    assert_refused(&v, LP_STATUS_FORMAT, "byte 0x0A");
    v.tokens[BYTE(9)] = lp_str_from("tab");
    v.types[BYTE(9)] = LP_TOKEN_NORMAL;
    assert_refused(&v, LP_STATUS_FORMAT, "<0x09>");
    vocab_release(&v);
}

static void test_broken_scores(void **state) {
    (void)state;
    struct vocab v;
    vocab_small(&v, NULL, NULL, 0);
    v.scores[7] = NAN;
    assert_refused(&v, LP_STATUS_FORMAT, "scores[7]");
    v.params.scores = NULL;
    assert_refused(&v, LP_STATUS_FORMAT, "tokenizer.ggml.scores is missing");
    vocab_release(&v);
}

static void test_long_text(void **state) {
    (void)state;
    struct vocab v;
    vocab_spm(&v);
    struct lp_tokenizer *tok = make(&v);
    static const char *const units[] = {" ", "a", "the ", "\xE4\xB8\xAD"};
    for (size_t i = 0; i < 4; i++) {
        struct lp_bytes text = repeat(units[i], 300000, "");
        double start = cpu_seconds();
        struct lp_ids ids = encode(tok, lp_bytes_view(&text), 0);
        assert_true(cpu_seconds() - start < 20);
        assert_true(ids.n > 0);
        lp_free(ids.data);
        lp_bytes_release(&text);
    }
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_sentencepiece),
        cmocka_unit_test(test_the_rule),
        cmocka_unit_test(test_byte_texts),
        cmocka_unit_test(test_broken_scores),
        cmocka_unit_test(test_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
