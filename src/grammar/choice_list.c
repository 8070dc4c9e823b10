// One of several texts, given as a JSON array of strings.
#include <jansson.h>

#include "grammar/build.h"
#include "base/grow.h"

static lp_gb_node one_of(struct lp_gb *b, const json_t *list) {
    size_t n = json_array_size(list);
    lp_gb_node *nodes = lp_alloc(n, sizeof *nodes);
    if (!nodes) return lp_gb_fail(b, LP_STATUS_MEMORY, "out of memory: the choices");
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_array_get(list, i);
        if (!json_is_string(text)) {
            lp_free(nodes);
            return lp_gb_fail(b, LP_STATUS_INVALID, "choice %zu is not a text", i);
        }
        nodes[i] =
            lp_gb_text(b, (struct lp_str){json_string_value(text), json_string_length(text)});
    }
    lp_gb_node node = lp_gb_choice(b, nodes, n);
    lp_free(nodes);
    return node;
}

lp_gb_node lp_grammar_from_choice(struct lp_gb *b, struct lp_str choices) {
    json_error_t error;
    json_t *list = json_loadb(choices.data, choices.len, JSON_ALLOW_NUL, &error);
    lp_gb_node node = 0;
    if (!list)
        lp_gb_fail(b, LP_STATUS_INVALID, "the list of choices is no valid JSON: %s (line %d)",
                   error.text, error.line);
    else if (!json_is_array(list) || json_array_size(list) == 0)
        lp_gb_fail(b, LP_STATUS_INVALID, "the choices must be a JSON array of at least one text");
    else
        node = one_of(b, list);
    json_decref(list);
    return node;
}
