// Pre-tokenizers as the models' own files write them, and others.
#include "hf_tokenizer_build.h"

#define Q                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"      \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define P "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CJK "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+"

static void pre_tokenizers_are_known_by_their_expressions(void **state) {
    (void)state;
    static const struct {
        const char *pre;
        bool ignore_merges, use_regex;
        const char *regexes[6];
    } rows[] = {
        {"glm4", false, false, {G}},
        {"llama-bpe", true, false, {G}},
        {"glm4",
         false,
         false,
         {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
          "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
        {"qwen2", false, false, {Q}},
        {"gpt-2", false, true, {NULL}},
        {"gpt-2", false, false, {P}},
        {"smollm", false, true, {"digits"}},
        {"smollm", false, false, {"\\p{N}", P}},
        {"deepseek-v3",
         false,
         false,
         {"\\p{N}{1,3}",
          "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
          "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}},
        {"deepseek-coder", false, false, {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "digits"}},
        {"kimi-k2",
         false,
         false,
         {"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*"
          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
          "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
          "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
          " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
        json_object_set_new(f.tokenizer, "pre_tokenizer",
                            sequence(rows[i].regexes, rows[i].use_regex));
        json_object_set_new(json_object_get(f.tokenizer, "model"), "ignore_merges",
                            json_boolean(rows[i].ignore_merges));
        struct file file = convert(&f, 258);
        assert_string_of(&file, "ggml.model", "gpt2");
        assert_string_of(&file, "ggml.pre", rows[i].pre);
        drop(&file);
        release(&f);
    }
}

// The letters of DeepSeek-LLM are many: a file of that model, less its vocabulary.
static void deepseek_llm(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
    json_t *steps = json_load_file("tests/data/tokenizer/deepseek_llm_steps.json", 0, NULL);
    assert_non_null(steps);
    json_object_set_new(f.tokenizer, "pre_tokenizer", steps);
    struct file file = convert(&f, 258);
    assert_string_of(&file, "ggml.pre", "deepseek-llm");
    drop(&file);
    release(&f);
}

static void other_pre_tokenizers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *words;
    } rows[] = {
        {"null", "known are"},
        {"{\"type\":\"Whitespace\"}", "Whitespace"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}",
         "add_prefix_space"},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x+\"},\"behavior\":\"Isolated\"}", "\"x+\""},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"a\"},"
         "\"behavior\":\"MergedWithNext\"},{\"type\":\"ByteLevel\",\"use_regex\":true}]}",
         "MergedWithNext"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\" "
         "\"},"
         "\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"use_regex\":false}]}",
         "Split \" \""},
        // Digits only are kept, the rest is thrown away: not the same as digits apart.
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"\\\\p{N}\"},\"behavior\":\"Removed\",\"invert\":true},{\"type\":\"ByteLevel\",\"use_"
         "regex\":"
         "true}]}",
         "p{N}"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]"
         "}",
         "more steps"},
        {"17", "without a type"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
        json_object_set_new(f.tokenizer, "pre_tokenizer", parse(rows[i].json));
        refused(f, 258, LP_STATUS_UNSUPPORTED, rows[i].words);
    }
}

// o200k's expression covers every character, so keeping only its matches keeps all; glm4's too.
static void only_the_matches_of_an_expression_that_matches_all(void **state) {
    (void)state;
    struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
    json_t *step = json_array_get(
        json_object_get(json_object_get(f.tokenizer, "pre_tokenizer"), "pretokenizers"), 0);
    json_object_set_new(step, "behavior", json_string("Removed"));
    refused((struct lp_hf_folder){.tokenizer = json_deep_copy(f.tokenizer)}, 258,
            LP_STATUS_UNSUPPORTED, "Removed");
    json_object_set_new(step, "invert", json_true());
    struct file file = convert(&f, 258);
    assert_string_of(&file, "ggml.pre", "glm4");
    drop(&file);
    release(&f);
}

static void normalizers(void **state) {
    (void)state;
    static const struct {
        const char *json, *words; // NULL: taken
    } rows[] = {
        {"null", NULL},
        {"{\"type\":\"Sequence\",\"normalizers\":[]}", NULL},
        {"{\"type\":\"NFC\"}", NULL},
        {"{\"type\":\"NFKC\"}", "NFKC"},
        {"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}",
         "Lowercase"},
    };
    lp_log_set_level(LP_LOG_ERROR);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
        json_object_set_new(f.tokenizer, "normalizer", parse(rows[i].json));
        if (rows[i].words) {
            refused(f, 258, LP_STATUS_UNSUPPORTED, rows[i].words);
            continue;
        }
        struct file file = convert(&f, 258);
        drop(&file);
        release(&f);
    }
    lp_log_set_level(LP_LOG_WARN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pre_tokenizers_are_known_by_their_expressions),
        cmocka_unit_test(deepseek_llm),
        cmocka_unit_test(other_pre_tokenizers_are_refused),
        cmocka_unit_test(only_the_matches_of_an_expression_that_matches_all),
        cmocka_unit_test(normalizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
