// The reply parser's hands: finding tags in the text that waits, and sending pieces.
#include "text/reply_parts.h"

struct lp_str lp_reply_trim(struct lp_str text) {
    while (text.len && lp_reply_is_space(text.data[0])) text.data++, text.len--;
    while (text.len && lp_reply_is_space(text.data[text.len - 1])) text.len--;
    return text;
}

size_t lp_reply_skip_space(const struct lp_reply *r, size_t at) {
    while (at < r->buf.len && lp_reply_is_space(r->buf.data[at])) at++;
    return at;
}

enum lp_reply_answer lp_reply_skip_gap(const struct lp_reply *r, size_t *at) {
    size_t from = *at;
    *at = lp_reply_skip_space(r, from);
    if (*at - from > LP_REPLY_MAX_GAP) return LP_REPLY_NO;
    return *at == r->buf.len ? lp_reply_more(r) : LP_REPLY_YES;
}

// ---- tags ----

enum lp_reply_answer lp_reply_tag_at(const struct lp_reply *r, size_t at, unsigned wanted,
                                     enum lp_reply_tag *tag) {
    size_t n = r->buf.len - at;
    if (!n) return lp_reply_more(r);
    const char *text = r->buf.data + at;
    bool may = false;
    if (*text != '<') return LP_REPLY_NO;
    for (unsigned i = 0; i < LP_TAG_COUNT; i++) {
        struct lp_str spelt = r->tags[i];
        if (!(wanted & LP_TAG_BIT(i)) || !spelt.len) continue;
        if (memcmp(text, spelt.data, n < spelt.len ? n : spelt.len)) continue;
        *tag = (enum lp_reply_tag)i;
        if (n >= spelt.len) return LP_REPLY_YES;
        may = true;
    }
    return may && !r->ended ? LP_REPLY_MORE : LP_REPLY_NO;
}

struct lp_reply_hit lp_reply_find(const struct lp_reply *r, unsigned wanted) {
    struct lp_reply_hit hit = {.at = r->scan};
    for (; hit.at < r->buf.len; hit.at++) {
        const char *from = r->buf.data + hit.at;
        const char *bracket = memchr(from, '<', r->buf.len - hit.at);
        if (!bracket) break;
        hit.at += (size_t)(bracket - from);
        enum lp_reply_answer answer = lp_reply_tag_at(r, hit.at, wanted, &hit.tag);
        hit.found = answer == LP_REPLY_YES;
        if (answer != LP_REPLY_NO) return hit;
    }
    hit.at = r->buf.len;
    return hit;
}

enum lp_reply_answer lp_reply_gap_then(const struct lp_reply *r, size_t at, unsigned wanted,
                                       bool or_end) {
    enum lp_reply_answer answer = lp_reply_skip_gap(r, &at);
    if (at == r->buf.len && answer == LP_REPLY_NO && or_end) return LP_REPLY_YES;
    enum lp_reply_tag tag;
    return answer == LP_REPLY_YES ? lp_reply_tag_at(r, at, wanted, &tag) : answer;
}

// ---- tools ----

static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == ':' || c == '-';
}

bool lp_reply_name_ok(struct lp_str name) {
    if (!name.len || name.len > LP_REPLY_MAX_NAME) return false;
    for (size_t i = 0; i < name.len; i++)
        if (!name_char(name.data[i])) return false;
    return true;
}

bool lp_reply_tool_known(const struct lp_reply *r, struct lp_str name) {
    return lp_map_get(&r->tool_names, name) != LP_MAP_NONE;
}

const json_t *lp_reply_tool_properties(const struct lp_reply *r, struct lp_str name) {
    uint32_t index = lp_map_get(&r->tool_names, name);
    if (index == LP_MAP_NONE) return NULL;
    const json_t *tool = json_array_get(r->params.tools, index);
    const json_t *function = json_object_get(tool, "function");
    if (!function) function = tool;
    const json_t *parameters = json_object_get(function, "parameters");
    if (!parameters) parameters = json_object_get(function, "input_schema");
    return json_object_get(parameters, "properties");
}

// ---- pieces ----

static void send(struct lp_reply *r, enum lp_reply_kind kind, struct lp_str text) {
    bool of_call = kind == LP_REPLY_CALL || kind == LP_REPLY_ARGUMENTS || kind == LP_REPLY_CALL_END;
    const struct lp_reply_piece piece = {
        .kind = kind, .call = of_call ? r->n_calls - 1 : -1, .text = text};
    if (!r->failed && !r->params.sink(r->params.user, &piece)) r->failed = true;
}

void lp_reply_flush(struct lp_reply *r) {
    if (r->out.failed || r->json.failed) r->failed = true;
    if (r->out.len) send(r, LP_REPLY_ARGUMENTS, lp_bytes_view(&r->out));
    lp_bytes_clear(&r->out);
}

void lp_reply_emit(struct lp_reply *r, enum lp_reply_kind kind, struct lp_str text) {
    lp_reply_flush(r);
    if (text.len || kind == LP_REPLY_CALL_END) send(r, kind, text);
}

void lp_reply_repair(struct lp_reply *r) {
    r->n_repairs += r->n_repairs < INT32_MAX;
}

void lp_reply_call_begin(struct lp_reply *r, struct lp_str name) {
    r->n_calls++;
    if (r->from_reasoning) lp_reply_repair(r);
    r->think_open |= r->from_reasoning;
    bool sections = r->tags[LP_TAG_SECTION].len != 0;
    if (sections && !r->in_section && !r->new_section) lp_reply_repair(r);
    r->in_section = sections; // where its opening is missing, its end may still come
    r->properties = lp_reply_tool_properties(r, name);
    lp_map_release(&r->keys);
    lp_arena_release(&r->key_arena);
    lp_reply_emit(r, LP_REPLY_CALL, name);
}

void lp_reply_call_end(struct lp_reply *r) {
    lp_reply_emit(r, LP_REPLY_CALL_END, (struct lp_str){0});
    if (r->stray.failed) r->failed = true;
    lp_reply_emit(r, LP_REPLY_CONTENT, lp_bytes_view(&r->stray));
    lp_bytes_clear(&r->stray);
    r->gap = true;
    lp_reply_go(r, r->at, LP_PHASE_CONTENT);
}
