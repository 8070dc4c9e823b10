// Byte-level BPE: ids against the golden file and the library tokenizers, the byte spelling, the
// merge order, broken merge lists, long pieces.
#include "tokenizer_build.h"

#include <stdio.h>

static void test_golden_texts(void **state) {
    (void)state;
    struct vocab v;
    vocab_glm4(&v);
    struct lp_tokenizer *tok = make(&v);
    json_t *json = load_json("tests/golden/tokenizer_glm4.json");
    assert_true(assert_cases(tok, json_object_get(json, "texts")) >= 15);
    json_decref(json);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_mini_model_equals_tokenizers(void **state) {
    (void)state;
    struct vocab v;
    vocab_mini(&v);
    struct lp_tokenizer *tok = make(&v);
    json_t *json = load_json("tests/data/tokenizer/mini_cases.json"), *item;
    size_t i;
    assert_true(assert_cases(tok, json) >= 300);
    json_array_foreach(json, i, item)
        assert_round_trip(tok, json_str(json_object_get(item, "text")));
    json_decref(json);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

// GPT-2's table: printable Latin-1 is itself, the others follow from U+0100 in ascending order.
static void test_byte_spelling(void **state) {
    (void)state;
    uint32_t next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        uint32_t want = printable ? b : next++;
        assert_int_equal(lp_bpe_byte_char(b), want);
        assert_int_equal(lp_bpe_char_byte(want), b);
    }
    assert_int_equal(next, 0x144);
    assert_int_equal(lp_bpe_char_byte(' '), -1);
    assert_int_equal(lp_bpe_char_byte(0xAD), -1);
    assert_int_equal(lp_bpe_char_byte(0x144), -1);
    assert_int_equal(lp_bpe_char_byte(UINT32_MAX), -1);
}

static const char *const A_TOKENS[] = {"aa", "aaaa", "ab", "bc", "abc"};
static const char *const A_MERGES[] = {"a a", "aa aa", "b c", "a b", "a bc"};

static void test_merge_order(void **state) {
    (void)state;
    struct vocab v;
    vocab_bytes(&v, "glm4", A_TOKENS, 5, A_MERGES, 5);
    struct lp_tokenizer *tok = make(&v);
    assert_ids(tok, "aaa", 0, 256, 'a');          // leftmost first
    assert_ids(tok, "aaaaaaa", 0, 257, 256, 'a'); // 4 + 2 + 1
    assert_ids(tok, "abc", 0, 260);               // b c (rank 2) before a b (rank 3)
    assert_ids(tok, "aabc", 0, 256, 259);         // a a first of all
    assert_ids(tok, "ab", 0, 258);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_ignore_merges(void **state) {
    (void)state;
    static const char *const tokens[] = {"he", "hello"}, *const merges[] = {"h e"};
    struct vocab v;
    vocab_bytes(&v, "glm4", tokens, 2, merges, 1);
    struct lp_tokenizer *tok = make(&v);
    assert_ids(tok, "hello", 0, 256, 'l', 'l', 'o'); // no merge leads to the token
    lp_tokenizer_free(tok);
    v.params.pre = lp_str_from("llama-bpe");
    tok = make(&v);
    assert_ids(tok, "hello", 0, 257);
    assert_ids(tok, "hello hello", 0, 257, 32, 256, 'l', 'l', 'o');
    lp_tokenizer_free(tok);
    v.types[257] = LP_TOKEN_CONTROL; // ordinary text never becomes a control token
    tok = make(&v);
    assert_ids(tok, "hello", 0, 256, 'l', 'l', 'o');
    assert_ids(tok, "hello", LP_ENCODE_SPECIAL, 257);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_merges_cannot_make_control_tokens(void **state) {
    (void)state;
    struct vocab v;
    vocab_bytes(&v, "glm4", A_TOKENS, 5, A_MERGES, 5);
    v.types[258] = LP_TOKEN_CONTROL;
    struct lp_tokenizer *tok = make(&v);
    assert_ids(tok, "ab", 0, 'a', 'b');
    assert_ids(tok, "ab", LP_ENCODE_SPECIAL, 258);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void refuse_merge(const char *merge, const char *part) {
    struct vocab v;
    vocab_bytes(&v, "glm4", A_TOKENS, 5, A_MERGES, 5);
    v.merges[4] = lp_str_from(merge);
    assert_refused(&v, LP_STATUS_FORMAT, "tokenizer.ggml.merges[4]");
    assert_refused(&v, LP_STATUS_FORMAT, part);
    vocab_release(&v);
}

static void test_broken_merges(void **state) {
    (void)state;
    refuse_merge("abc", "\"abc\"");
    refuse_merge("", "one space");
    refuse_merge(" a", "one space");
    refuse_merge("a ", "one space");
    refuse_merge(" ", "one space");
    refuse_merge("a  b", "one space");
    refuse_merge("a b c", "one space");
    refuse_merge("a c", "the token \"ac\"");
    refuse_merge("ax b", "the token \"ax\"");
    refuse_merge("a bx", "the token \"bx\"");
    refuse_merge("a a", "repeats merges[0]");
    struct vocab v;
    vocab_bytes(&v, "glm4", NULL, 0, NULL, 0);
    v.params.merges = NULL;
    assert_refused(&v, LP_STATUS_FORMAT, "tokenizer.ggml.merges is missing");
    vocab_release(&v);
}

static void test_missing_bytes(void **state) {
    (void)state;
    struct vocab v;
    vocab_bytes(&v, "glm4", NULL, 0, NULL, 0);
    v.tokens['a'] = lp_str_from("qq");
    assert_refused(&v, LP_STATUS_FORMAT, "byte 0x61");
    v.tokens['a'] = lp_str_from("a");
    v.tokens[' '] = lp_str_from("qq");
    assert_refused(&v, LP_STATUS_FORMAT, "byte 0x20");
    v.tokens[' '] = lp_str_from("\xC4\xA0");
    v.tokens[4] = lp_str_from("qq"); // as in SmolLM2's vocabulary: left out, as there
    struct lp_tokenizer *tok = make(&v);
    assert_ids(tok,
               "a\x04"
               "b",
               0, 'a', 'b');
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

static void test_long_pieces(void **state) {
    (void)state;
    struct vocab v;
    vocab_bytes(&v, "glm4", A_TOKENS, 5, A_MERGES, 5);
    struct lp_tokenizer *tok = make(&v);
    struct lp_bytes text = repeat("a", 1000003, "");
    double start = cpu_seconds();
    struct lp_ids ids = encode(tok, lp_bytes_view(&text), 0);
    assert_true(cpu_seconds() - start < 20); // quadratic would be hours
    assert_int_equal(ids.n, 250002);
    assert_int_equal(ids.data[0], 257);
    assert_int_equal(ids.data[250000], 256);
    assert_int_equal(ids.data[250001], 'a');
    lp_free(ids.data);
    lp_bytes_release(&text);
    lp_tokenizer_free(tok);
    vocab_release(&v);
}

// The size of GLM-5's vocabulary: ranks and ids past 16 bits, and a build that stays short.
static void test_large_vocabulary(void **state) {
    (void)state;
    enum { N_FOUR = 140000, N_EXTRA = 26 * 26 + 26 * 26 * 26 + N_FOUR };
    struct vocab v;
    vocab_bytes(&v, "glm4", NULL, 0, NULL, 0);
    struct vocab bytes = v;
    vocab_init(&v, "gpt2", "glm4", 256 + N_EXTRA, 26 * 26 + 26 * 26 * 26 + 2 * N_FOUR);
    memcpy(v.tokens, bytes.tokens, 256 * sizeof *v.tokens);
    uint32_t n = 256, n_merges = 0;
    for (size_t len = 2; len <= 4; len++) {
        for (uint32_t i = 0; i < (len == 2 ? 676 : len == 3 ? 17576 : N_FOUR); i++) {
            char word[5], merge[8];
            for (size_t k = 0, rest = i; k < len; k++, rest /= 26)
                word[k] = (char)('a' + rest % 26);
            v.tokens[n++] = (struct lp_str){lp_arena_strndup(&v.arena, word, len), len};
            for (size_t cut = 1; cut < (len == 3 ? 2 : len) && cut < 3; cut++) {
                int size = snprintf(merge, sizeof merge, "%.*s %.*s", (int)cut, word,
                                    (int)(len - cut), word + cut);
                v.merges[n_merges++] =
                    (struct lp_str){lp_arena_strndup(&v.arena, merge, (size_t)size), (size_t)size};
            }
        }
    }
    assert_int_equal(n_merges, v.params.n_merges);
    double start = cpu_seconds();
    struct lp_tokenizer *tok = make(&v);
    assert_true(cpu_seconds() - start < 5); // 0.1 s without sanitizers
    // Pairs come first (lowest ranks, leftmost among equals), then the four of two pairs: word i is
    // spelled in base 26, lowest digit first; its id follows the pairs and the triples.
    assert_ids(tok, "zzzd", 0, 256 + 676 + 17576 + 25 + 25 * 26 + 25 * 676 + 3 * 17576);
    assert_ids(tok, "ab", 0, 256 + 26);
    lp_tokenizer_free(tok);
    vocab_release(&v);
    vocab_release(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_texts),
        cmocka_unit_test(test_mini_model_equals_tokenizers),
        cmocka_unit_test(test_byte_spelling),
        cmocka_unit_test(test_merge_order),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_merges_cannot_make_control_tokens),
        cmocka_unit_test(test_broken_merges),
        cmocka_unit_test(test_missing_bytes),
        cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_large_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
