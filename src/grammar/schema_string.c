// Strings: length, pattern, format; inside JSON quotes, or as bare text for models that write
// arguments so.
#include <stdio.h>

#include "grammar/node_list.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

struct wanted {
    int64_t min, max;    // characters; max -1: any number
    struct lp_str regex; // data NULL: none
    bool search;         // it is a pattern, which matches anywhere
    const char *keyword; // where the expression is from
};

// By the standard a format only describes; beside a pattern it is left to the pattern.
static bool read_wanted(struct lp_schema *s, const json_t *flat, struct wanted *out) {
    const json_t *pattern = json_object_get(flat, "pattern"),
                 *format = json_object_get(flat, "format");
    out->min = lp_schema_count(s, flat, "minLength", 0);
    out->max = lp_schema_count(s, flat, "maxLength", -1);
    if (pattern) {
        out->regex = lp_jg_str(pattern);
        out->search = true;
        out->keyword = "pattern";
    } else if (format) {
        const char *regex = lp_schema_format(json_string_value(format));
        if (!regex)
            lp_schema_fail(s, LP_STATUS_UNSUPPORTED, "the \"format\" \"%.60s\" is not supported",
                           json_string_value(format));
        else if (*regex)
            out->regex = lp_str_from(regex);
        out->keyword = "format";
    }
    return !lp_gb_failed(s->b);
}

static lp_gb_node emit_regex(struct lp_schema *s, const struct wanted *wanted,
                             enum lp_regex_form form) {
    char what[200];
    const char *path = s->path.data ? s->path.data : "";
    snprintf(what, sizeof what, "%.40s, #%.120s: \"%s\"", s->what, path, wanted->keyword);
    struct lp_regex regex;
    lp_gb_node node = 0;
    if (lp_regex_parse(&regex, s->b, wanted->regex, wanted->search, what)) {
        switch (lp_regex_fit(&regex, wanted->min, wanted->max)) {
        case LP_REGEX_FITS:
            node = lp_regex_emit(&regex, s->b, form);
            break;
        case LP_REGEX_NEVER:
            node = lp_schema_never(s, "\"%s\" has no text of the lengths allowed", wanted->keyword);
            break;
        case LP_REGEX_CANNOT:
            node = lp_schema_fail(s, LP_STATUS_UNSUPPORTED,
                                  "\"minLength\" and \"maxLength\" beside this \"%s\" are not "
                                  "supported: only one part of it may have an open length",
                                  wanted->keyword);
            break;
        }
    }
    lp_regex_release(&regex);
    return node;
}

lp_gb_node lp_schema_string(struct lp_schema *s, json_t *flat) {
    struct wanted wanted = {0};
    if (!read_wanted(s, flat, &wanted)) return 0;
    if (wanted.max >= 0 && wanted.min > wanted.max)
        return lp_schema_never(s, "\"minLength\" is above \"maxLength\"");
    lp_gb_node text;
    if (wanted.regex.data)
        text = emit_regex(s, &wanted, LP_REGEX_IN_JSON);
    else if (!wanted.min && wanted.max < 0)
        return lp_jg_use(s->jg, LP_JG_STRING);
    else
        text = lp_gb_repeat(s->b, lp_jg_use(s->jg, LP_JG_CHAR), wanted.min, wanted.max);
    if (text == LP_SCHEMA_NEVER) return text;
    return LP_GB_SEQ(s->b, lp_gb_word(s->b, "\""), text, lp_gb_word(s->b, "\""));
}

lp_gb_node lp_schema_string_text(struct lp_schema *s, json_t *flat, lp_gb_node any_text) {
    struct wanted wanted = {0};
    if (!read_wanted(s, flat, &wanted)) return 0;
    if (wanted.max >= 0 && wanted.min > wanted.max)
        return lp_schema_never(s, "\"minLength\" is above \"maxLength\"");
    if (wanted.regex.data) return emit_regex(s, &wanted, LP_REGEX_WITHOUT_LT);
    if (!wanted.min && wanted.max < 0) return any_text;
    static const struct lp_gb_range mark = {'<', '<'};
    return lp_gb_repeat(s->b, lp_gb_class(s->b, &mark, 1, true), wanted.min, wanted.max);
}
