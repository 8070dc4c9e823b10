// Which tokens begin and end texts, by what several files say.
#include "hf_tokenizer_build.h"

#define LLAMA3                                                                                     \
    "[" ADD(258, "<|begin_of_text|>", true) "," ADD(259, "<|end_of_text|>", true) "," ADD(         \
        260, "<|eot_id|>", true) "," ADD(261, "<|eom_id|>", true) "]"
#define GLM                                                                                        \
    "[" ADD(258, "<|endoftext|>", true) "," ADD(259, "[gMASK]", true) "," ADD(                     \
        260, "<sop>", true) "," ADD(261, "<|user|>", true) "," ADD(262, "<|observation|>",         \
                                                                   true) "," ADD(263, "[MASK]",    \
                                                                                 true) "]"
#define BOS_FIRST                                                                                  \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|begin_of_text|>"   \
    "\","                                                                                          \
    "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}"
#define TWO_FIRST                                                                                  \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[gMASK]\"}},"        \
    "{\"SpecialToken\":{\"id\":\"<sop>\"}},{\"Sequence\":{\"id\":\"A\"}}]}"

static void special_ids(void **state) {
    (void)state;
    static const struct {
        const char *added, *processor, *tokenizer_config, *generation_config, *config;
        bool ignore_merges;
        int bos, eos, eot, eom, unk, pad, add_bos, add_eos;
    } rows[] = {
        // nothing said
        {"[]", "null", "{}", "{}", "{}", 0, -1, -1, -1, -1, -1, -1, -1, -1},
        // Llama 3: the template adds BOS; three ends
        {LLAMA3, "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," BOS_FIRST "]}",
         "{\"bos_token\":\"<|begin_of_text|>\",\"eos_token\":\"<|eot_id|>\"}",
         "{\"eos_token_id\":[259,261,260]}", "{\"eos_token_id\":259}", 1, 258, 260, 259, 261, -1,
         -1, 1, 0},
        // without a tokenizer_config.json
        {LLAMA3, BOS_FIRST, "null", "{\"eos_token_id\":[259,261,260]}", "{}", 1, 258, 259, 260, 261,
         -1, -1, 1, 0},
        // Llama 3 that adds nothing says so, as its pre-tokenizer's default is to add
        {LLAMA3, "null", "{\"bos_token\":\"<|begin_of_text|>\",\"eos_token\":\"<|eot_id|>\"}", "{}",
         "{}", 1, 258, 260, -1, -1, -1, -1, 0, -1},
        // ids of config.json where the tokenizer has none; the tokenizer's come first
        {LLAMA3, "null", "{\"bos_token\":null,\"eos_token\":{\"content\":\"<|eot_id|>\"}}", "{}",
         "{\"bos_token_id\":258,\"eos_token_id\":259,\"pad_token_id\":261}", 0, 258, 260, 259, -1,
         -1, 261, -1, -1},
        {LLAMA3, "null",
         "{\"add_bos_token\":true,\"add_eos_token\":true,\"bos_token\":"
         "\"<|begin_of_text|>\",\"eos_token\":\"<|eot_id|>\",\"pad_token\":\"<|eot_id|>\"}",
         "{}", "{}", 0, 258, 260, -1, -1, -1, 260, 1, 1},
        // nothing to add
        {"[]", "null", "{\"add_bos_token\":true,\"add_eos_token\":false}", "{}", "{}", 0, -1, -1,
         -1, -1, -1, -1, 0, 0},
        // a pad that is no row, and ids that mean none
        {LLAMA3, "null", "{}", "{\"bos_token_id\":-1}", "{\"pad_token_id\":99999}", 0, -1, -1, -1,
         -1, -1, -1, -1, -1},
        // GLM
        {GLM, "null", "null", "{}", "{}", 0, 259, 258, 261, 262, 258, 258, -1, -1},
        {GLM, "null", "{\"eos_token\":\"<|endoftext|>\",\"pad_token\":\"[MASK]\"}",
         "{\"eos_token_id\":[258,261,262]}", "{\"eos_token_id\":[258,261,262]}", 1, 259, 258, 261,
         262, 258, 263, -1, -1},
        {GLM, TWO_FIRST, "null", "{}", "{}", 0, 259, 258, 261, 262, 258, 258, 0, 0},
    };
    lp_log_set_level(LP_LOG_ERROR);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_hf_folder f = folder_of(bytes_tokenizer(rows[i].added));
        json_object_set_new(f.tokenizer, "post_processor", parse(rows[i].processor));
        json_object_set_new(json_object_get(f.tokenizer, "model"), "ignore_merges",
                            json_boolean(rows[i].ignore_merges));
        if (strcmp(rows[i].tokenizer_config, "null"))
            f.tokenizer_config = parse(rows[i].tokenizer_config);
        f.generation_config = parse(rows[i].generation_config);
        f.config = parse(rows[i].config);
        struct file file = convert(&f, 264);
        const struct {
            const char *key;
            int expected;
        } keys[] = {{"bos_token_id", rows[i].bos},      {"eos_token_id", rows[i].eos},
                    {"eot_token_id", rows[i].eot},      {"eom_token_id", rows[i].eom},
                    {"unknown_token_id", rows[i].unk},  {"padding_token_id", rows[i].pad},
                    {"add_bos_token", rows[i].add_bos}, {"add_eos_token", rows[i].add_eos}};
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++)
            if (number_of(&file, keys[j].key) != keys[j].expected)
                fail_msg("case %zu: %s is %d, expected %d", i, keys[j].key,
                         (int)number_of(&file, keys[j].key), keys[j].expected);
        drop(&file);
        release(&f);
    }
    lp_log_set_level(LP_LOG_WARN);
}

static void damaged_configs(void **state) {
    (void)state;
    static const struct {
        const char *tokenizer_config, *generation_config, *words;
    } rows[] = {
        {"{}", "{\"eos_token_id\":258}", "generation_config.json: eos_token_id is 258"},
        {"{}", "{\"eos_token_id\":[1,-2]}", "eos_token_id[1]"},
        {"{}", "{\"eos_token_id\":[\"x\"]}", "eos_token_id[0]"},
        {"{}", "{\"bos_token_id\":1000}", "bos_token_id is 1000"},
        {"{\"added_tokens_decoder\":{\"x\":{}}}", "{}", "\"x\""},
        {"{\"added_tokens_decoder\":{\"9999999999\":{}}}", "{}", "9999999999"},
        {"{\"added_tokens_decoder\":{\"65\":{\"content\":\"x\"}}}", "{}", "tokenizer_config.json"},
        {"{\"added_tokens_decoder\":{\"65\":3}}", "{}", "65 has no content"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
        f.tokenizer_config = parse(rows[i].tokenizer_config);
        f.generation_config = parse(rows[i].generation_config);
        refused(f, 258, LP_STATUS_FORMAT, rows[i].words);
    }
    lp_log_set_level(LP_LOG_ERROR); // left out with a warning
    struct lp_hf_folder f = folder_of(bytes_tokenizer("[]"));
    f.tokenizer_config = parse("{\"bos_token\":\"<none>\",\"eos_token\":7,\"chat_template\":7}");
    struct file file = convert(&f, 258);
    assert_int_equal(number_of(&file, "bos_token_id"), -1);
    drop(&file);
    release(&f);
    lp_log_set_level(LP_LOG_WARN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_ids),
        cmocka_unit_test(damaged_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
