// tiktoken.model: ids are ranks, and each token's merge is the one that is left when lower ranks
// have merged its bytes.
#include "hf_tokenizer_build.h"

#include "base/bytes.h"

static void put_base64(struct lp_bytes *out, const char *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < n ? (unsigned char)bytes[i + j] : 0);
        for (int j = 0; j < 4; j++)
            lp_bytes_append(out, (size_t)j > n - i ? "=" : &digits[bits >> (18 - 6 * j) & 63], 1);
    }
}

// The 256 bytes in order, then the texts.
static void put_file(struct lp_bytes *out, const char *const *texts, const char *line_end) {
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        put_base64(out, &byte, 1);
        lp_bytes_printf(out, " %d%s", b, line_end);
    }
    for (int i = 0; texts[i]; i++) {
        put_base64(out, texts[i], strlen(texts[i]));
        lp_bytes_printf(out, " %d%s", 256 + i, line_end);
    }
}

#define KIMI                                                                                       \
    "{\"tokenizer_class\":\"TikTokenTokenizer\",\"bos_token\":\"[BOS]\",\"eos_token\":\"[EOS]\","  \
    "\"added_tokens_decoder\":{\"264\":{\"content\":\"[BOS]\",\"special\":true},"                  \
    "\"265\":{\"content\":\"[EOS]\",\"special\":true},\"267\":{\"content\":\"<|im_end|>\","        \
    "\"special\":true},\"268\":{\"content\":\"<think>\",\"special\":false}}}"

static struct lp_hf_folder kimi(const struct lp_bytes *text, const char *config) {
    return (struct lp_hf_folder){.path = (char *)"no folder",
                                 .tokenizer_config = parse(config),
                                 .generation_config = parse("{\"eos_token_id\":267}"),
                                 .tiktoken = text->data,
                                 .tiktoken_len = text->len};
}

// By hand: abcd is ab + cd although abc is a token, since cd has the lower rank; bcd is b + cd;
// aaaa is aa + aa. The last has three bytes of which no two are a token: nothing makes it.
static const char *const texts[] = {"ab", "cd",   "abc",       "abcd", "bcd",
                                    "aa", "aaaa", "\xC3\xA9 ", NULL};

static void merges_come_from_ranks(void **state) {
    (void)state;
    static const char *const expected[] = {"a b", "c d", "ab c", "ab cd", "b cd", "a a", "aa aa"};
    for (int crlf = 0; crlf < 2; crlf++) {
        struct lp_bytes text = {0};
        put_file(&text, texts, crlf ? "\r\n" : "\n");
        struct lp_hf_folder f = kimi(&text, KIMI);
        lp_log_set_level(LP_LOG_ERROR);
        struct file file = convert(&f, 600);
        lp_log_set_level(LP_LOG_WARN);
        assert_string_of(&file, "ggml.model", "gpt2");
        assert_string_of(&file, "ggml.pre", "kimi-k2");
        const struct lp_gguf_kv *merges = lp_gguf_find(file.gguf, "tokenizer.ggml.merges");
        assert_int_equal(merges->count, 7);
        for (int i = 0; i < 7; i++) assert_true(lp_str_is(merges->strings[i], expected[i]));
        assert_token(&file, 0, "\xC4\x80", LP_TOKEN_NORMAL);
        assert_token(&file, 'A', "A", LP_TOKEN_NORMAL);
        assert_token(&file, 259, "abcd", LP_TOKEN_NORMAL);
        assert_token(&file, 263, "\xC3\x83\xC2\xA9\xC4\xA0", LP_TOKEN_NORMAL); // Ã©Ġ
        assert_token(&file, 264, "[BOS]", LP_TOKEN_CONTROL);
        assert_token(&file, 266, "<|reserved_token_266|>", LP_TOKEN_CONTROL);
        assert_token(&file, 268, "<think>", LP_TOKEN_USER_DEFINED);
        assert_token(&file, 264 + 255, "<|reserved_token_519|>", LP_TOKEN_CONTROL);
        assert_token(&file, 264 + 256, "[PAD520]", LP_TOKEN_UNUSED);
        assert_int_equal(number_of(&file, "bos_token_id"), 264);
        assert_int_equal(number_of(&file, "eos_token_id"), 265);
        assert_int_equal(number_of(&file, "eot_token_id"), 267);
        drop(&file);
        release(&f);
        lp_bytes_release(&text);
    }
}

static void damaged_files(void **state) {
    (void)state;
    static const struct {
        const char *more, *words;
        lp_status status;
    } rows[] = {
        {"YWI= 999\n", "rank 999", LP_STATUS_FORMAT},
        {"YWI= 258\n", "none of rank 256", LP_STATUS_FORMAT},
        {"YWI= 256\nYWI= 257\n", "line 258 repeats", LP_STATUS_FORMAT},
        {"YWI= 256\nYWM= 256\n", "line 258 repeats", LP_STATUS_FORMAT},
        {"YWI=\n", "line 257", LP_STATUS_FORMAT},
        {"YWI= \n", "line 257", LP_STATUS_FORMAT},
        {"YWI= x\n", "line 257", LP_STATUS_FORMAT},
        {"YWI= -1\n", "line 257", LP_STATUS_FORMAT},
        {"YWI= 2560000000\n", "line 257", LP_STATUS_FORMAT},
        {"Y*I= 256\n", "line 257", LP_STATUS_FORMAT},
        {"YWJjY 256\n", "line 257", LP_STATUS_FORMAT},
        {"= 256\n", "line 257", LP_STATUS_FORMAT},
        {" 256\n", "line 257", LP_STATUS_FORMAT},
    };
    static const char *const none[] = {NULL};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lp_bytes text = {0};
        put_file(&text, none, "\n");
        lp_bytes_puts(&text, rows[i].more);
        refused(kimi(&text, KIMI), 600, rows[i].status, rows[i].words);
        lp_bytes_release(&text);
    }
    struct lp_bytes text = {0};
    put_file(&text, none, "\n");
    for (int i = 0; i < 1000; i++) lp_bytes_puts(&text, "AAAA");
    lp_bytes_puts(&text, " 256\n");
    refused(kimi(&text, KIMI), 600, LP_STATUS_LIMIT, "line 257");
    lp_bytes_clear(&text);
    lp_bytes_puts(&text, "YQ== 0\n");
    refused(kimi(&text, KIMI), 600, LP_STATUS_FORMAT, "byte 0x00");
    lp_bytes_clear(&text);
    put_file(&text, texts, "\n");
    refused(kimi(&text, KIMI), 260, LP_STATUS_FORMAT, "260 rows");
    refused(kimi(&text, "{\"tokenizer_class\":\"QWenTokenizer\"}"), 600, LP_STATUS_UNSUPPORTED,
            "add a tokenizer.json");
    lp_bytes_release(&text);
}

static void no_allocation_is_missed(void **state) {
    (void)state;
    struct lp_bytes text = {0};
    put_file(&text, texts, "\n");
    struct lp_hf_folder f = kimi(&text, KIMI);
    lp_log_set_level(LP_LOG_ERROR);
    sweep(&f, 300);
    lp_log_set_level(LP_LOG_WARN);
    release(&f);
    lp_bytes_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_come_from_ranks),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(no_allocation_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
