// The known texts as tokens: what is scored is what must follow, no more and no less.
#include "lp_test.h"

#include "doctor/texts.h"
#include "engine/engine.h"

static void open_file(const char *path, struct lp_gguf **gguf, struct lp_tokenizer **tok) {
    struct lp_err err = {0};
    assert_int_equal(lp_gguf_open(gguf, path, &err), LP_OK);
    assert_int_equal(lp_vocab_load(tok, *gguf, &err), LP_OK);
}

static const struct lp_known_text *known(const char *name) {
    size_t n;
    const struct lp_known_text *texts = lp_known_texts(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(texts[i].name, name) == 0) return &texts[i];
    fail_msg("no text %s", name);
    return NULL;
}

static void test_scored_is_obvious(void **state) {
    (void)state;
    struct lp_gguf *gguf;
    struct lp_tokenizer *tok;
    struct lp_passages p;
    struct lp_err err = {0};
    struct lp_texts_choice choice = {.plain = true, .chat = true, .max_tokens = 512};
    int64_t n_tokens = 0, n_scored = 0;
    size_t n_known;
    open_file("models/mini-glm-dsa.gguf", &gguf, &tok);
    assert_int_equal(lp_texts_encode(&p, tok, gguf, &choice, &err), LP_OK);
    lp_known_texts(&n_known);
    assert_int_equal(p.n, n_known); // the file has a template
    for (size_t i = 0; i < p.n; i++) {
        const struct lp_passage *x = &p.list[i];
        struct lp_bytes text = {0};
        for (int32_t k = x->first_scored; k < x->n_tokens; k++)
            assert_true(lp_tokenizer_piece(tok, x->tokens[k], false, &text));
        assert_string_equal(text.data, known(x->name)->obvious);
        assert_int_equal(x->n_bytes, text.len);
        assert_true(x->first_scored > 0);
        assert_int_equal(x->tokens[0], lp_tokenizer_find(tok, lp_str_from("[gMASK]")));
        lp_bytes_release(&text);
        n_tokens += x->n_tokens;
        n_scored += x->n_tokens - x->first_scored;
    }
    assert_int_equal(p.n_tokens, n_tokens);
    assert_int_equal(p.n_scored, n_scored);
    lp_passages_release(&p);
    lp_tokenizer_free(tok);
    lp_gguf_close(gguf);
}

static void test_choices(void **state) {
    (void)state;
    struct lp_gguf *gguf;
    struct lp_tokenizer *tok;
    struct lp_passages p;
    struct lp_err err = {0};
    struct lp_texts_choice choice = {.quick = true, .plain = true, .max_tokens = 512};
    open_file("models/mini-glm-dsa.gguf", &gguf, &tok);
    assert_int_equal(lp_texts_encode(&p, tok, gguf, &choice, &err), LP_OK);
    for (size_t i = 0; i < p.n; i++) {
        assert_true(known(p.list[i].name)->quick);
        assert_int_equal(p.list[i].kind, LP_TEXT_PLAIN);
    }
    int32_t with = p.list[0].n_tokens;
    lp_passages_release(&p);
    choice.prefix = LP_PREFIX_NONE;
    assert_int_equal(lp_texts_encode(&p, tok, gguf, &choice, &err), LP_OK);
    assert_int_equal(p.list[0].n_tokens, with - 2);
    lp_passages_release(&p);
    choice.max_tokens = 5; // nothing is that short
    assert_int_equal(lp_texts_encode(&p, tok, gguf, &choice, &err), LP_OK);
    assert_int_equal(p.n, 0);
    lp_passages_release(&p);
    choice = (struct lp_texts_choice){.plain = true, .max_tokens = 512, .max_all = 1};
    assert_int_equal(lp_texts_encode(&p, tok, gguf, &choice, &err), LP_OK);
    assert_int_equal(p.n, 1);
    lp_passages_release(&p);
    lp_tokenizer_free(tok);
    lp_gguf_close(gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scored_is_obvious),
                                       cmocka_unit_test(test_choices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
