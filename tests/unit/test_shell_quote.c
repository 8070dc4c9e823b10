// What a shell makes of a quoted word is the word; bash says so itself.
#include "lp_test.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/shell_quote.h"

static void quoted(struct lp_bytes *out, const char *word) {
    lp_bytes_clear(out);
    lp_shell_quote(out, word);
    assert_false(out->failed);
}

static void plain_words_stay(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    quoted(&out, "/models/GLM-5_Q4.gguf");
    assert_string_equal(out.data, "/models/GLM-5_Q4.gguf");
    quoted(&out, "it's here");
    assert_string_equal(out.data, "'it'\\''s here'");
    quoted(&out, "");
    assert_string_equal(out.data, "''");
    lp_bytes_clear(&out);
    lp_shell_quote_path(&out, "-p.gguf");
    assert_string_equal(out.data, "./-p.gguf");
    lp_bytes_release(&out);
}

static void control_bytes_do_not_come_out(void **state) {
    (void)state;
    struct lp_bytes out = {0};
    quoted(&out, "a\x1b[31m\x7f\xc2\x9b"
                 "1m\n");
    for (size_t i = 0; i < out.len; i++) {
        unsigned char c = (unsigned char)out.data[i];
        assert_true(c >= 0x20 && c != 0x7f && !(c == 0xc2) && c < 0x80);
    }
    lp_bytes_release(&out);
}

static void bash_gives_the_word_back(void **state) {
    (void)state;
    static const char *const words[] = {
        "a b",     "$HOME `id` $(id) \"x\"", "it's",       "\\'\x1b\\n", "~",        "*?[a]{b,c}",
        "a\nb\tc", "\xc3\xbc\xe2\x86\x92",   "\x9b\xff x", "#x;y&z|w<>", "!! =x %1", "\xc2\x9b'\\"};
    if (system("bash -c : 2>/dev/null")) skip();
    struct lp_bytes script = {0}, out = {0};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char back[256];
        lp_bytes_clear(&script);
        quoted(&out, words[i]);
        lp_bytes_puts(&script, "bash -c ");
        struct lp_bytes command = {0};
        lp_bytes_printf(&command, "printf %%s %s", out.data);
        lp_shell_quote(&script, command.data); // sh runs it, so no $'...' at this level
        if (strstr(script.data, "bash -c $'")) fail_msg("control bytes in a quoted word");
        FILE *pipe = popen(script.data, "r");
        assert_non_null(pipe);
        size_t n = fread(back, 1, sizeof back - 1, pipe);
        assert_int_equal(pclose(pipe), 0);
        back[n] = 0;
        assert_string_equal(back, words[i]);
        lp_bytes_release(&command);
    }
    lp_bytes_release(&script);
    lp_bytes_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_words_stay),
                                       cmocka_unit_test(control_bytes_do_not_come_out),
                                       cmocka_unit_test(bash_gives_the_word_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
