#include "serve/json_scan.h"

#include <stdbool.h>
#include <string.h>

struct scanner {
    const char *text;
    size_t n, at;
    struct lp_json_scan found;
    bool in_prompt;          // the last key of the outermost object was "prompt"
    bool in_ids;             // in an array of numbers within it
    size_t ids_depth, n_ids; // of that array
};

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(const struct scanner *s, size_t at) {
    while (at < s->n && is_space(s->text[at])) at++;
    return at;
}

// From the opening quote to behind the closing one; a string of the outermost object with a colon
// behind is a key.
static void pass_string(struct scanner *s) {
    size_t begin = ++s->at;
    while (s->at < s->n && s->text[s->at] != '"') s->at += s->text[s->at] == '\\' ? 2 : 1;
    size_t end = s->at < s->n ? s->at : s->n, behind = skip_space(s, end + 1);
    s->at = end + 1;
    if (s->found.depth == 1 && behind < s->n && s->text[behind] == ':')
        s->in_prompt = end - begin == 6 && memcmp(s->text + begin, "prompt", 6) == 0;
}

static void count_id(struct scanner *s) {
    s->n_ids++;
    if (s->n_ids > s->found.longest_ids) s->found.longest_ids = s->n_ids;
}

static void open_one(struct scanner *s) {
    size_t first = skip_space(s, s->at + 1);
    char c = first < s->n ? s->text[first] : 0;
    s->found.depth++;
    if (s->text[s->at] == '[' && s->in_prompt && !s->in_ids &&
        (c == '-' || (c >= '0' && c <= '9'))) {
        s->in_ids = true;
        s->ids_depth = s->found.depth;
        s->n_ids = 0;
        count_id(s);
    }
}

static void close_one(struct scanner *s) {
    if (s->in_ids && s->found.depth == s->ids_depth) s->in_ids = false;
    if (s->found.depth) s->found.depth--;
}

struct lp_json_scan lp_json_scan(const char *text, size_t n_bytes, size_t max_depth) {
    struct scanner s = {.text = text, .n = n_bytes};
    size_t deepest = 0;
    while (s.at < s.n) {
        switch (text[s.at]) {
        case '"':
            pass_string(&s);
            continue;
        case '[':
        case '{':
            open_one(&s);
            if (s.found.depth > deepest) deepest = s.found.depth;
            if (deepest > max_depth) {
                s.found.depth_at = s.at;
                return s.found;
            }
            break;
        case ']':
        case '}':
            close_one(&s);
            break;
        case ',':
            if (s.in_ids && s.found.depth == s.ids_depth) count_id(&s);
            break;
        default:
            break;
        }
        s.at++;
    }
    s.found.depth = deepest;
    return s.found;
}
