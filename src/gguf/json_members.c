#include "gguf/json_members.h"

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_space(const char *at, const char *end) {
    while (at < end && is_space(*at)) at++;
    return at;
}

// Behind the closing quote of the string that begins at `at`, or NULL.
static const char *skip_string(const char *at, const char *end) {
    for (at++; at < end; at++) {
        if (*at == '"') return at + 1;
        if (*at == '\\') at++;
    }
    return NULL;
}

// Behind the bracket that closes the one at `at`, or NULL. Which kind closes which is the parser's.
static const char *skip_nested(const char *at, const char *end) {
    for (size_t depth = 0; at < end;) {
        if (*at == '"') {
            if (!(at = skip_string(at, end))) return NULL;
            continue;
        }
        if (*at == '{' || *at == '[') depth++;
        if ((*at == '}' || *at == ']') && --depth == 0) return at + 1;
        at++;
    }
    return NULL;
}

static const char *skip_value(const char *at, const char *end) {
    if (at == end) return NULL;
    if (*at == '"') return skip_string(at, end);
    if (*at == '{' || *at == '[') return skip_nested(at, end);
    const char *begin = at;
    while (at < end && !is_space(*at) && *at != ',' && *at != '}' && *at != ']') at++;
    return at > begin ? at : NULL;
}

// Past the brace, or past the comma between two members; *closed where the object ended instead.
static bool step_in(struct lp_json_members *w, bool *closed) {
    *closed = false;
    w->at = skip_space(w->at, w->end);
    if (w->at == w->end) return false;
    bool first = !w->began;
    if (first) {
        if (*w->at != '{') return false;
        w->began = true;
        w->at = skip_space(w->at + 1, w->end);
        if (w->at == w->end) return false;
    }
    if (*w->at == '}') {
        w->at = skip_space(w->at + 1, w->end);
        *closed = true;
        return w->at == w->end;
    }
    if (first) return true;
    if (*w->at != ',') return false;
    w->at = skip_space(w->at + 1, w->end);
    return true;
}

enum lp_json_step lp_json_members_next(struct lp_json_members *w, struct lp_json_member *out) {
    bool closed;
    if (!step_in(w, &closed)) return LP_JSON_BROKEN;
    if (closed) return LP_JSON_END;
    const char *key = w->at, *behind;
    if (key == w->end || *key != '"' || !(behind = skip_string(key, w->end))) return LP_JSON_BROKEN;
    out->key = (struct lp_str){key, (size_t)(behind - key)};
    w->at = skip_space(behind, w->end);
    if (w->at == w->end || *w->at != ':') return LP_JSON_BROKEN;
    w->at = skip_space(w->at + 1, w->end);
    if (!(behind = skip_value(w->at, w->end))) return LP_JSON_BROKEN;
    out->value = (struct lp_str){w->at, (size_t)(behind - w->at)};
    w->at = behind;
    return LP_JSON_MEMBER;
}
