// GLM's calls:  <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value>...</tool_call>
// with or without line ends between the tags, and with each of the tags forgotten at times.
#include "text/reply_parts.h"

#define TAG(name) LP_TAG_BIT(LP_TAG_##name)
// Those that mean something between pairs.
#define PAIR_TAGS (TAG(KEY) | TAG(KEY_END) | TAG(VALUE_END) | TAG(CALL) | TAG(CALL_END))

static void set_key(struct lp_reply *r, struct lp_str key) {
    lp_bytes_clear(&r->key);
    if (!lp_bytes_append(&r->key, key.data, key.len)) r->failed = true;
}

// ---- the name ----

static bool declares(const struct lp_reply *r, struct lp_str tool, struct lp_str key) {
    const json_t *properties = lp_reply_tool_properties(r, tool);
    return properties && json_object_getn(properties, key.data, key.len);
}

// A name and a key that have run together: the longest known tool that text begins with, rather one
// that has such a parameter. The name's length; 0: there is none.
static size_t split_name(const struct lp_reply *r, struct lp_str text) {
    size_t longest = 0;
    size_t n = text.len < LP_REPLY_MAX_NAME ? text.len : LP_REPLY_MAX_NAME;
    for (; n; n--) {
        struct lp_str name = {text.data, n}, key = {text.data + n, text.len - n};
        if (!lp_reply_name_ok(name) || !lp_reply_tool_known(r, name)) continue;
        if (declares(r, name, lp_reply_trim(key))) return n;
        if (!longest && lp_reply_trim(key).len) longest = n;
    }
    return longest;
}

// May these be the first bytes of a name (and a key)?
static bool may_be_name(const struct lp_reply *r, struct lp_str text) {
    return !text.len || lp_reply_name_ok(text) || split_name(r, text);
}

static enum lp_reply_answer begin(struct lp_reply *r, struct lp_str name, size_t at) {
    if (!lp_reply_name_ok(name)) return LP_REPLY_NO;
    lp_reply_call_begin(r, name);
    lp_reply_go(r, at, LP_PHASE_PAIRS);
    return LP_REPLY_YES;
}

static enum lp_reply_answer begin_split(struct lp_reply *r, struct lp_str text, size_t at) {
    size_t n = split_name(r, text);
    if (!n) return LP_REPLY_NO;
    lp_reply_repair(r);
    set_key(r, lp_reply_trim((struct lp_str){text.data + n, text.len - n}));
    begin(r, (struct lp_str){text.data, n}, at);
    r->phase = LP_PHASE_GAP;
    return LP_REPLY_YES;
}

enum lp_reply_answer lp_reply_glm_head(struct lp_reply *r) {
    size_t from = r->mark + r->tags[LP_TAG_CALL].len, left = r->buf.len - from;
    const char *bracket = left ? memchr(r->buf.data + from, '<', left) : NULL;
    size_t to = bracket ? (size_t)(bracket - r->buf.data) : r->buf.len;
    struct lp_str name = lp_reply_trim(lp_reply_slice(r, from, to));
    if (to - from > LP_REPLY_MAX_HEAD || !may_be_name(r, name)) return LP_REPLY_NO;
    if (!bracket) {
        if (!r->ended) return LP_REPLY_MORE;
        return lp_reply_tool_known(r, name) ? begin(r, name, to) : LP_REPLY_NO;
    }
    enum lp_reply_tag tag;
    enum lp_reply_answer answer =
        lp_reply_tag_at(r, to, TAG(KEY) | TAG(KEY_END) | TAG(CALL) | TAG(CALL_END), &tag);
    if (answer != LP_REPLY_YES) return answer;
    if (tag == LP_TAG_KEY_END) return begin_split(r, name, to + r->tags[tag].len);
    if (tag == LP_TAG_CALL && !lp_reply_tool_known(r, name)) return LP_REPLY_NO;
    return begin(r, name, to);
}

// ---- pairs ----

// Text up to a tag that is none between pairs.
static enum lp_reply_step read_junk(struct lp_reply *r) {
    struct lp_reply_hit hit;
    if (!lp_reply_junk(r, PAIR_TAGS, &hit))
        return r->phase == LP_PHASE_CONTENT ? LP_STEP_AGAIN : LP_STEP_WAIT;
    struct lp_str junk = lp_reply_slice(r, r->at, hit.at);
    lp_reply_repair(r);
    if (hit.tag == LP_TAG_KEY_END) { // its opening is missing
        set_key(r, lp_reply_trim(junk));
        lp_reply_go(r, hit.at + r->tags[hit.tag].len, LP_PHASE_GAP);
        return LP_STEP_AGAIN;
    }
    lp_bytes_append(&r->stray, junk.data, junk.len);
    lp_reply_go(r, hit.at, LP_PHASE_PAIRS);
    return LP_STEP_AGAIN;
}

enum lp_reply_step lp_reply_glm_pairs(struct lp_reply *r) {
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
    if (tag == LP_TAG_CALL) return lp_reply_pairs_end(r, true);
    size_t behind = r->at + r->tags[tag].len;
    lp_reply_go(r, behind, tag == LP_TAG_KEY ? LP_PHASE_KEY : LP_PHASE_PAIRS);
    if (tag == LP_TAG_CALL_END) return lp_reply_pairs_end(r, false);
    if (tag != LP_TAG_KEY) lp_reply_repair(r); // a closing tag too many
    return LP_STEP_AGAIN;
}

// What has begun as a key is text.
static void no_key(struct lp_reply *r, size_t to) {
    struct lp_str tag = r->tags[LP_TAG_KEY];
    lp_reply_repair(r);
    lp_bytes_append(&r->stray, tag.data, tag.len);
    lp_bytes_append(&r->stray, r->buf.data + r->at, to - r->at);
    lp_reply_go(r, to, LP_PHASE_PAIRS);
}

enum lp_reply_step lp_reply_glm_key(struct lp_reply *r) {
    struct lp_reply_hit hit =
        lp_reply_find(r, TAG(KEY) | TAG(KEY_END) | TAG(VALUE) | TAG(CALL) | TAG(CALL_END));
    r->scan = hit.at;
    if (hit.at - r->at > LP_REPLY_MAX_KEY) {
        no_key(r, r->at);
        r->drop_call_end = true;
        return lp_reply_pairs_end(r, false);
    }
    if (!hit.found) {
        if (!r->ended) return LP_STEP_WAIT;
        r->at = hit.at; // a key that was cut off is left out
        return lp_reply_pairs_end(r, true);
    }
    if (hit.tag != LP_TAG_KEY_END && hit.tag != LP_TAG_VALUE) {
        no_key(r, hit.at);
        return LP_STEP_AGAIN;
    }
    set_key(r, lp_reply_trim(lp_reply_slice(r, r->at, hit.at)));
    if (hit.tag == LP_TAG_VALUE) lp_reply_repair(r);
    lp_reply_go(r, hit.at + (hit.tag == LP_TAG_VALUE ? 0 : r->tags[hit.tag].len), LP_PHASE_GAP);
    return LP_STEP_AGAIN;
}

enum lp_reply_step lp_reply_glm_gap(struct lp_reply *r) {
    lp_reply_go(r, lp_reply_skip_space(r, r->at), LP_PHASE_GAP);
    if (r->at == r->buf.len) return r->ended ? lp_reply_pairs_end(r, true) : LP_STEP_WAIT;
    enum lp_reply_tag tag;
    enum lp_reply_answer answer =
        lp_reply_tag_at(r, r->at, TAG(KEY) | TAG(VALUE) | TAG(CALL) | TAG(CALL_END), &tag);
    if (answer == LP_REPLY_MORE) return LP_STEP_WAIT;
    if (answer == LP_REPLY_YES && tag != LP_TAG_VALUE) { // a key without a value
        struct lp_str open = r->tags[LP_TAG_KEY], close = r->tags[LP_TAG_KEY_END];
        lp_reply_repair(r);
        lp_bytes_append(&r->stray, open.data, open.len);
        lp_bytes_append(&r->stray, r->key.data, r->key.len);
        lp_bytes_append(&r->stray, close.data, close.len);
        r->phase = LP_PHASE_PAIRS;
        return LP_STEP_AGAIN;
    }
    if (answer == LP_REPLY_NO) lp_reply_repair(r); // the value's opening is missing
    size_t at = r->at + (answer == LP_REPLY_YES ? r->tags[tag].len : 0);
    lp_reply_value_begin(r, at, lp_reply_key_types(r));
    return LP_STEP_AGAIN;
}

// ---- a value whose closing tag is missing ----

// K</arg_key><arg_value>
static enum lp_reply_answer key_then_value(const struct lp_reply *r, size_t at) {
    size_t left = r->buf.len - at;
    const char *bracket = left ? memchr(r->buf.data + at, '<', left) : NULL;
    size_t to = bracket ? (size_t)(bracket - r->buf.data) : r->buf.len;
    if (to - at > LP_REPLY_MAX_JUNK) return LP_REPLY_NO;
    enum lp_reply_tag tag;
    enum lp_reply_answer answer = lp_reply_tag_at(r, to, TAG(KEY_END), &tag);
    if (answer != LP_REPLY_YES) return answer;
    return lp_reply_gap_then(r, to + r->tags[tag].len, TAG(VALUE), false);
}

// NAME<arg_key> or NAME</tool_call>, of a known tool
static enum lp_reply_answer known_call(const struct lp_reply *r, size_t at) {
    size_t left = r->buf.len - at;
    const char *bracket = left ? memchr(r->buf.data + at, '<', left) : NULL;
    size_t to = bracket ? (size_t)(bracket - r->buf.data) : r->buf.len;
    struct lp_str name = lp_reply_trim(lp_reply_slice(r, at, to));
    if (to - at > LP_REPLY_MAX_JUNK) return LP_REPLY_NO;
    if (!bracket) return lp_reply_more(r);
    if (!lp_reply_tool_known(r, name)) return LP_REPLY_NO;
    enum lp_reply_tag tag;
    return lp_reply_tag_at(r, to, TAG(KEY) | TAG(CALL_END), &tag);
}

enum lp_reply_answer lp_reply_glm_ends_value(const struct lp_reply *r, enum lp_reply_tag tag,
                                             size_t at) {
    at += r->tags[tag].len;
    if (tag == LP_TAG_KEY) return key_then_value(r, at);
    if (tag == LP_TAG_CALL) return known_call(r, at);
    return lp_reply_gap_then(r, at, TAG(CALL), true);
}
