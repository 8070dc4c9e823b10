// SentencePiece's BPE out of tokenizer.json: scores that merge in the order of the merges.
#include "hf_tokenizer_build.h"

#define MARK "\xE2\x96\x81"
#define LEGACY                                                                                     \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},"     \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}]}"
#define METASPACE(rest) "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"," rest "}"

// <unk> <s> </s> <0x00> ... <0xFF>, then those of the texts.
enum { FIRST = 259 };

static json_t *spm_tokenizer(const char *const *texts, const char *merges, const char *normalizer,
                             const char *pre_tokenizer) {
    json_t *vocab = json_pack("{si si si}", "<unk>", 0, "<s>", 1, "</s>", 2);
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        json_object_set_new(vocab, text, json_integer(3 + b));
    }
    for (int i = 0; texts[i]; i++) json_object_set_new(vocab, texts[i], json_integer(FIRST + i));
    return json_pack(
        "{s{ss so so ss sb} so so so}", "model", "type", "BPE", "vocab", vocab, "merges",
        parse(merges), "unk_token", "<unk>", "byte_fallback", 1, "added_tokens",
        parse("[" ADD(0, "<unk>", true) "," ADD(1, "<s>", true) "," ADD(2, "</s>", true) "]"),
        "normalizer", parse(normalizer), "pre_tokenizer", parse(pre_tokenizer));
}

static const char *const abc[] = {"a", "b", "c", MARK, "ab", "bc", "abc", MARK "a", NULL};
// In no order of ids; "abc" in two ways.
#define ABC_MERGES "[\"b c\",\"a b\",\"" MARK " a\",\"a bc\",\"ab c\"]"

static void scores_are_ranks(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(spm_tokenizer(abc, ABC_MERGES, LEGACY, "null"));
    f.tokenizer_config = parse("{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":"
                               "\"<unk>\",\"add_bos_token\":true,\"add_eos_token\":false}");
    struct file file = convert(&f, FIRST + 9);
    assert_string_of(&file, "ggml.model", "llama");
    assert_string_of(&file, "ggml.pre", "default");
    const struct lp_gguf_kv *scores = lp_gguf_find(file.gguf, "tokenizer.ggml.scores");
    assert_int_equal(scores->count, FIRST + 9);
    static const int expected[] = {-5, -5, -5, -5, -1, 0, -3, -2};
    for (int i = 0; i < 8; i++)
        assert_int_equal((int)lp_gguf_float_at(scores, (uint64_t)(FIRST + i)), expected[i]);
    assert_int_equal((int)lp_gguf_float_at(scores, 3), 0);
    assert_token(&file, 0, "<unk>", LP_TOKEN_UNKNOWN);
    assert_token(&file, 1, "<s>", LP_TOKEN_CONTROL);
    assert_token(&file, 3, "<0x00>", LP_TOKEN_BYTE);
    assert_token(&file, 258, "<0xFF>", LP_TOKEN_BYTE);
    assert_token(&file, FIRST + 7, MARK "a", LP_TOKEN_NORMAL);
    assert_token(&file, FIRST + 8, "[PAD267]", LP_TOKEN_UNUSED);
    assert_null(lp_gguf_find(file.gguf, "tokenizer.ggml.merges"));
    assert_int_equal(number_of(&file, "bos_token_id"), 1);
    assert_int_equal(number_of(&file, "eos_token_id"), 2);
    assert_int_equal(number_of(&file, "unknown_token_id"), 0);
    assert_int_equal(number_of(&file, "add_bos_token"), 1);
    assert_int_equal(number_of(&file, "add_eos_token"), 0);
    assert_int_equal(number_of(&file, "add_space_prefix"), 1);
    drop(&file);
    release(&f);
}

static void the_space_in_front(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *pre_tokenizer;
        int prefix;
    } rows[] = {
        {LEGACY, "null", 1},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"}", "null",
         0},
        {"null", METASPACE("\"prepend_scheme\":\"first\",\"split\":false"), 1},
        {"null", METASPACE("\"prepend_scheme\":\"always\",\"split\":false"), 1},
        {"null", METASPACE("\"prepend_scheme\":\"never\",\"split\":false"), 0},
        {"null", METASPACE("\"add_prefix_space\":false,\"split\":false"), 0},
        {"null", METASPACE("\"split\":false"), 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_hf_folder f =
            folder_of(spm_tokenizer(abc, ABC_MERGES, rows[i].normalizer, rows[i].pre_tokenizer));
        struct file file = convert(&f, FIRST + 8);
        assert_int_equal(number_of(&file, "add_space_prefix"), rows[i].prefix);
        assert_int_equal(number_of(&file, "add_bos_token"), 0); // nothing says that it is added
        drop(&file);
        release(&f);
    }
}

// Added tokens are found in texts whose spaces are spaces still.
static void marks_of_added_tokens(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(spm_tokenizer(abc, ABC_MERGES, LEGACY, "null"));
    json_t *added = json_object_get(f.tokenizer, "added_tokens");
    json_array_append_new(added, parse("{\"id\":267,\"content\":\"" MARK MARK
                                       "x\",\"special\":false,\"normalized\":true}"));
    json_array_append_new(added, parse("{\"id\":268,\"content\":\"" MARK
                                       "y\",\"special\":false,\"normalized\":false}"));
    struct file file = convert(&f, FIRST + 10);
    assert_token(&file, 267, "  x", LP_TOKEN_USER_DEFINED);
    assert_token(&file, 268, MARK "y", LP_TOKEN_USER_DEFINED);
    drop(&file);
    release(&f);
}

static void what_is_no_sentencepiece_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *pre_tokenizer, *merges, *words;
        lp_status status;
    } rows[] = {
        {"null", METASPACE("\"split\":true"), ABC_MERGES, "Metaspace that splits",
         LP_STATUS_UNSUPPORTED},
        {"null", METASPACE("\"prepend_scheme\":\"first\""), ABC_MERGES, "Metaspace that splits",
         LP_STATUS_UNSUPPORTED},
        {LEGACY, "{\"type\":\"Split\"}", ABC_MERGES, "Split", LP_STATUS_UNSUPPORTED},
        {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"}," LEGACY "]}", "null",
         ABC_MERGES, "NFKC", LP_STATUS_UNSUPPORTED},
        {LEGACY, "null", "[\"ab\"]", "merges[0]", LP_STATUS_FORMAT},
        {LEGACY, "null", "[\"a b\",\"a b c\"]", "merges[1]", LP_STATUS_FORMAT},
        {LEGACY, "null", "[\"a b\",\"c b\"]", "no token of the vocabulary", LP_STATUS_FORMAT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(folder_of(
                    spm_tokenizer(abc, rows[i].merges, rows[i].normalizer, rows[i].pre_tokenizer)),
                FIRST + 8, rows[i].status, rows[i].words);
    struct lp_hf_folder f = folder_of(spm_tokenizer(abc, ABC_MERGES, LEGACY, "null"));
    json_object_set_new(json_object_get(f.tokenizer, "model"), "byte_fallback", json_false());
    refused(f, FIRST + 8, LP_STATUS_UNSUPPORTED, "byte_fallback");
    f = folder_of(spm_tokenizer(abc, ABC_MERGES, LEGACY, "null"));
    json_object_del(json_object_get(json_object_get(f.tokenizer, "model"), "vocab"), "<0x41>");
    refused(f, FIRST + 8, LP_STATUS_FORMAT, "<0x41>");
}

static void no_allocation_is_missed(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(spm_tokenizer(abc, ABC_MERGES, LEGACY, "null"));
    sweep(&f, FIRST + 10);
    release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_ranks),
        cmocka_unit_test(the_space_in_front),
        cmocka_unit_test(marks_of_added_tokens),
        cmocka_unit_test(what_is_no_sentencepiece_is_refused),
        cmocka_unit_test(no_allocation_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
