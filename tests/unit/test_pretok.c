// Pre-tokenizers: every row against the pieces that two independent engines (the package regex, and
// Oniguruma inside the library tokenizers) agree on; the spec's own examples; long runs.
#include "tokenizer_build.h"

struct splitter {
    struct lp_pretok *pretok;
    struct lp_pretok_work work;
};

static struct splitter splitter_new(const char *name) {
    struct splitter s = {0};
    struct lp_err err = {0};
    const struct lp_pretok_row *row = lp_pretok_find(lp_str_from(name));
    if (!row) fail_msg("no row for %s", name);
    if (lp_pretok_new(&s.pretok, row, &err)) fail_msg("%s", err.text);
    return s;
}

static void splitter_free(struct splitter *s) {
    lp_pretok_work_release(&s->work);
    lp_pretok_free(s->pretok);
}

static void split(struct splitter *s, struct lp_str text) {
    struct lp_err err = {0};
    if (lp_pretok_split(s->pretok, &s->work, text, &err)) fail_msg("%s", err.text);
}

static void test_agrees_with_other_engines(void **state) {
    (void)state;
    json_t *json = load_json("tests/data/tokenizer/pretok_cases.json"), *row;
    json_t *texts = json_object_get(json, "texts");
    const char *name;
    json_object_foreach(json_object_get(json, "pieces_bytes"), name, row) {
        struct splitter s = splitter_new(name);
        assert_int_equal(json_array_size(row), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(texts); i++) {
            struct lp_str text = json_str(json_array_get(texts, i));
            json_t *want = json_array_get(row, i);
            split(&s, text);
            bool same = s.work.n == json_array_size(want);
            for (size_t j = 0, begin = 0; same && j < s.work.n; begin = s.work.ends[j++])
                same = s.work.ends[j] - begin == (size_t)json_integer_value(json_array_get(want, j));
            if (!same) fail_msg("%s splits text %zu \"%.*s\" otherwise", name, i, LP_STR_ARGS(text));
        }
        splitter_free(&s);
    }
    json_decref(json);
}

// pieces: separated by '|'.
static void assert_split(const char *name, const char *text, const char *pieces) {
    struct splitter s = splitter_new(name);
    struct lp_bytes got = {0};
    split(&s, lp_str_from(text));
    for (size_t i = 0, begin = 0; i < s.work.n; begin = s.work.ends[i++]) {
        if (i) lp_bytes_puts(&got, "|");
        lp_bytes_append(&got, text + begin, s.work.ends[i] - begin);
    }
    assert_string_equal(got.data, pieces);
    lp_bytes_release(&got);
    splitter_free(&s);
}

static void test_examples(void **state) {
    (void)state;
    assert_split("glm4", "1234567", "123|456|7");
    assert_split("deepseek-v3", "1234567", "123|456|7");
    assert_split("qwen2", "123", "1|2|3");
    assert_split("smollm", "123", "1|2|3");
    assert_split("glm4", "  x", " | x");
    assert_split("glm4", "\n\n x", "\n\n| x");
    assert_split("glm4", "a\t\tb", "a|\t|\tb");
    assert_split("glm4", "I'LL", "I|'LL");
    assert_split("gpt-2", "I'LL", "I|'|LL");
    assert_split("glm4", "I'\xC5\xBFo", "I|'\xC5\xBF|o"); // long s folds to s
    assert_split("glm4", "a\xC2\x85" "b", "a|\xC2\x85" "b"); // U+0085 is white space
    assert_split("glm4", "\xE1\xA0\x8E\xE1\xA0\x8E", "\xE1\xA0\x8E\xE1\xA0\x8E"); // U+180E is not
    assert_split("glm4", "!\xE1\xA0\x8E", "!\xE1\xA0\x8E");
    assert_split("kimi-k2", "camelCase", "camel|Case");
    assert_split("kimi-k2", "a\xE4\xB8\xAD\xE4\xB8\xAD" "b", "a|\xE4\xB8\xAD\xE4\xB8\xAD|b");
    assert_split("default", "12345", "123|45");
    assert_split("deepseek-llm", "a  ", "a|  ");
}

static void test_names(void **state) {
    (void)state;
    assert_ptr_equal(lp_pretok_find(lp_str_from("")), lp_pretok_find(lp_str_from("default")));
    assert_ptr_equal(lp_pretok_find(lp_str_from("llama3")), lp_pretok_find(lp_str_from("llama-bpe")));
    assert_true(lp_pretok_find(lp_str_from("llama3"))->ignore_merges);
    assert_true(lp_pretok_find(lp_str_from("llama3"))->add_bos);
    assert_false(lp_pretok_find(lp_str_from("glm4"))->add_bos);
    assert_null(lp_pretok_find(lp_str_from("glm")));
    assert_null(lp_pretok_find(lp_str_from("glm4 chatglm-bpe")));
    assert_null(lp_pretok_find(lp_str_from(" ")));
}

// A million characters of each kind through every row: no limit is hit, the pieces cover the text,
// and the time is linear (a quadratic pattern would take minutes; the bound leaves room for
// sanitizers on a busy machine).
static void test_long_runs(void **state) {
    (void)state;
    static const char *const runs[][2] = {
        {" ", ""}, {" ", "x"}, {"\t", "x"}, {"a", ""}, {"A", ""}, {"aA", ""}, {"1", ""}, {"!", ""},
        {"\n", "x"}, {" \n", "x"}, {"\xE4\xB8\xAD", ""}, {"\xCC\x81", ""}, {"\x01", ""},
        {"\xE3\x80\x80", "x"}, {"'s", ""}, {"\xE3\x81\x82" "A", ""}, {"\xE1\xA0\x8E", "x"},
    };
    size_t n_rows;
    const struct lp_pretok_row *rows = lp_pretok_rows(&n_rows);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct lp_bytes text = repeat(runs[i][0], 1000000, runs[i][1]);
        for (size_t j = 0; j < n_rows; j++) {
            char name[32] = "";
            strncat(name, rows[j].names, strcspn(rows[j].names, " "));
            struct splitter s = splitter_new(name);
            double start = cpu_seconds();
            split(&s, lp_bytes_view(&text));
            assert_true(cpu_seconds() - start < 20);
            assert_int_equal(s.work.ends[s.work.n - 1], text.len);
            splitter_free(&s);
        }
        lp_bytes_release(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_other_engines),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
