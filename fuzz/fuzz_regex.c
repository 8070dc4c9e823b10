// Regular expressions: the input is one, compiled as a grammar of its own and as the "pattern" of a
// JSON string. Whatever it says, it must end in a status with a sentence, within the limits.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "grammar/build.h"
#include "grammar/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compile_pattern(struct lp_str source) {
    struct lp_gb *b = lp_gb_new();
    struct lp_regex regex;
    struct lp_grammar *grammar = NULL;
    struct lp_err err = {0};
    if (!b) abort();
    if (lp_regex_parse(&regex, b, source, true, "pattern") &&
        lp_regex_fit(&regex, 1, 20) == LP_REGEX_FITS) {
        lp_gb_rule rule = lp_gb_declare(b, "pattern");
        lp_gb_define(b, rule, lp_regex_emit(&regex, b, LP_REGEX_IN_JSON));
        lp_status status = lp_gb_finish(b, rule, NULL, &grammar, &err);
        if ((status == LP_OK) != (grammar != NULL) || (status && !err.text[0])) abort();
        lp_grammar_put(grammar);
    }
    lp_regex_release(&regex);
    lp_gb_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lp_str source = {(const char *)data, size};
    struct lp_grammar *grammar;
    struct lp_err err = {0};
    lp_status status =
        lp_grammar_compile(&grammar, LP_GRAMMAR_REGEX, source, NULL, NULL, NULL, &err);
    if ((status == LP_OK) != (grammar != NULL) || (status && !err.text[0])) abort();
    if (grammar) lp_grammar_matches(grammar, lp_str_from("aB1 \xC3\xA9"));
    lp_grammar_put(grammar);
    compile_pattern(source);
    return 0;
}
