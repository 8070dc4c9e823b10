// DeepSeek V3.2's calls, and V4's, whose section has another name:
//
//     <｜DSML｜function_calls>
//     <｜DSML｜invoke name="NAME">
//     <｜DSML｜parameter name="K" string="true">V</｜DSML｜parameter>
//     </｜DSML｜invoke>
//     </｜DSML｜function_calls>
//
// string says whether V is the text itself or JSON; where it is left out, the tool's schema does.
#include "text/reply_parts.h"
#include "text/reply_value.h"

#define TAG(name) LP_TAG_BIT(LP_TAG_##name)
#define PAIR_TAGS (TAG(VALUE) | TAG(CALL) | TAG(CALL_END) | LP_TAGS_SECTION_END)

struct attributes {
    struct lp_str name, string; // data NULL: not there
    size_t behind;              // the >
};

// One NAME="VALUE" at *at, which is moved behind it.
static enum lp_reply_answer read_attribute(const struct lp_reply *r, size_t *at,
                                           struct attributes *a) {
    const char *text = r->buf.data;
    size_t from = *at, to = from;
    while (to < r->buf.len && text[to] >= 'a' && text[to] <= 'z') to++;
    if (to == r->buf.len) return LP_REPLY_MORE;
    if (to == from || text[to] != '=') return LP_REPLY_NO;
    if (to + 1 == r->buf.len) return LP_REPLY_MORE;
    if (text[to + 1] != '"') return LP_REPLY_NO;
    const char *value = text + to + 2, *end = memchr(value, '"', r->buf.len - to - 2);
    if (!end) return LP_REPLY_MORE;
    struct lp_str name = lp_reply_slice(r, from, to), is = {value, (size_t)(end - value)};
    if (lp_str_is(name, "name")) a->name = is;
    if (lp_str_is(name, "string")) a->string = is;
    *at = (size_t)(end + 1 - text);
    return LP_REPLY_YES;
}

// From behind a tag's name to its >. YES: there is a name.
static enum lp_reply_answer read_attributes(const struct lp_reply *r, size_t at,
                                            struct attributes *a) {
    *a = (struct attributes){0};
    enum lp_reply_answer answer = LP_REPLY_YES;
    size_t from = at, next = at;
    while (answer == LP_REPLY_YES) {
        next = lp_reply_skip_space(r, at);
        if (next == r->buf.len || r->buf.data[next] == '>') break;
        if (next == at) return LP_REPLY_NO;
        answer = read_attribute(r, &next, a);
        at = next;
    }
    if ((answer == LP_REPLY_YES ? next : r->buf.len) - from > LP_REPLY_MAX_KEY) return LP_REPLY_NO;
    if (answer == LP_REPLY_NO) return answer;
    if (answer == LP_REPLY_MORE || next == r->buf.len) return lp_reply_more(r);
    a->behind = next + 1;
    return a->name.data ? LP_REPLY_YES : LP_REPLY_NO;
}

enum lp_reply_answer lp_reply_dsml_head(struct lp_reply *r) {
    size_t at;
    struct attributes a;
    enum lp_reply_answer answer = lp_reply_openings(r, &at);
    if (answer == LP_REPLY_YES) answer = read_attributes(r, at, &a);
    if (answer != LP_REPLY_YES) return answer;
    if (!lp_reply_name_ok(a.name)) return LP_REPLY_NO;
    lp_reply_call_begin(r, a.name);
    lp_reply_go(r, a.behind, LP_PHASE_PAIRS);
    return LP_REPLY_YES;
}

static enum lp_reply_step read_junk(struct lp_reply *r) {
    struct lp_reply_hit hit;
    if (!lp_reply_junk(r, PAIR_TAGS, &hit))
        return r->phase == LP_PHASE_CONTENT ? LP_STEP_AGAIN : LP_STEP_WAIT;
    lp_reply_repair(r);
    lp_bytes_append(&r->stray, r->buf.data + r->at, hit.at - r->at);
    lp_reply_go(r, hit.at, LP_PHASE_PAIRS);
    return LP_STEP_AGAIN;
}

static void begin_value(struct lp_reply *r, const struct attributes *a) {
    lp_bytes_clear(&r->key);
    lp_bytes_append(&r->key, a->name.data, a->name.len);
    if (r->key.failed) r->failed = true;
    unsigned types = lp_reply_key_types(r);
    if (a->string.data && lp_str_is(a->string, "true")) types = LP_VALUE_STRING;
    if (a->string.data && lp_str_is(a->string, "false")) types = LP_VALUE_ANY & ~LP_VALUE_STRING;
    lp_reply_value_begin(r, a->behind, types);
}

static enum lp_reply_step parameter(struct lp_reply *r) {
    struct attributes a;
    switch (read_attributes(r, r->at + r->tags[LP_TAG_VALUE].len, &a)) {
    case LP_REPLY_MORE:
        return LP_STEP_WAIT;
    case LP_REPLY_NO:
        return read_junk(r);
    case LP_REPLY_YES:
        break;
    }
    begin_value(r, &a);
    return LP_STEP_AGAIN;
}

enum lp_reply_step lp_reply_dsml_pairs(struct lp_reply *r) {
    if (r->scan <= r->at) lp_reply_go(r, lp_reply_skip_space(r, r->at), LP_PHASE_PAIRS);
    if (r->at == r->buf.len) return r->ended ? lp_reply_pairs_end(r, true) : LP_STEP_WAIT;
    enum lp_reply_tag tag;
    switch (lp_reply_tag_at(r, r->at, PAIR_TAGS, &tag)) {
    case LP_REPLY_MORE:
        return LP_STEP_WAIT;
    case LP_REPLY_NO:
        return read_junk(r);
    case LP_REPLY_YES:
        break;
    }
    if (tag == LP_TAG_VALUE) return parameter(r);
    if (tag != LP_TAG_CALL_END) return lp_reply_pairs_end(r, true);
    lp_reply_go(r, r->at + r->tags[tag].len, LP_PHASE_PAIRS);
    return lp_reply_pairs_end(r, false);
}

enum lp_reply_answer lp_reply_dsml_ends_value(const struct lp_reply *r, enum lp_reply_tag tag,
                                              size_t at) {
    struct attributes a;
    at += r->tags[tag].len;
    if (tag == LP_TAG_VALUE) return read_attributes(r, at, &a);
    return lp_reply_gap_then(r, at, TAG(CALL) | LP_TAGS_SECTION_END, true);
}
