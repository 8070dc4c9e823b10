// JSON Schema: the input is a schema, compiled alone and as the parameters of a tool. Whatever it
// says, it must end in a status with a sentence, within the limits.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compile(enum lp_grammar_kind kind, struct lp_str source) {
    static const char *const texts[] = {
        "", "{}", "[]", "0", "\"a\"", "null", "{\"a\": 1, \"b\": [2.5]}"};
    struct lp_grammar *grammar;
    struct lp_err err = {0};
    lp_status status = lp_grammar_compile(&grammar, kind, source, NULL, NULL, NULL, &err);
    if ((status == LP_OK) != (grammar != NULL) || (status && !err.text[0])) abort();
    for (size_t i = 0; grammar && i < sizeof texts / sizeof *texts; i++)
        lp_grammar_matches(grammar, lp_str_from(texts[i]));
    lp_grammar_put(grammar);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lp_str schema = {(const char *)data, size};
    compile(LP_GRAMMAR_SCHEMA, schema);
    struct lp_bytes tools = {0};
    lp_bytes_puts(&tools, "{\"syntax\":\"");
    lp_bytes_puts(&tools, size % 2 ? "glm" : "deepseek-v3.2");
    lp_bytes_puts(&tools, "\",\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":");
    lp_bytes_append(&tools, schema.data, schema.len);
    lp_bytes_puts(&tools, "}}]}");
    compile(LP_GRAMMAR_TOOLS, lp_bytes_view(&tools));
    lp_bytes_release(&tools);
    return 0;
}
