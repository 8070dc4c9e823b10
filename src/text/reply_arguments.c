// Arguments that a model writes as JSON: passed on as they come, made valid by reply_json.h.
#include "text/reply_parts.h"

static void take_json(struct lp_reply *r) {
    for (int i = 0; i < r->json.n_repairs; i++) lp_reply_repair(r);
    if (r->json.failed) r->failed = true;
    lp_reply_json_release(&r->json);
}

// What there is becomes a whole object; `rest` of a broken one is text.
static void close_json(struct lp_reply *r, struct lp_str rest) {
    bool broken = r->json.state == LP_JSON_BROKEN;
    lp_reply_repair(r);
    lp_reply_json_close(&r->json, &r->out);
    if (broken) lp_bytes_append(&r->stray, r->json.raw.data, r->json.raw.len);
    lp_bytes_append(&r->stray, rest.data, rest.len);
    take_json(r);
}

static void begin_tail(struct lp_reply *r, size_t at, size_t tail) {
    r->tail_want = tail;
    r->tail_seen = 0;
    lp_reply_go(r, at, LP_PHASE_TAIL);
}

static enum lp_reply_answer no_arguments(struct lp_reply *r, struct lp_str name, size_t behind,
                                         size_t tail) {
    lp_reply_call_begin(r, name);
    lp_bytes_puts(&r->out, "{}");
    begin_tail(r, behind, tail);
    return LP_REPLY_YES;
}

static void whole_object(struct lp_reply *r, struct lp_str text) {
    size_t n = lp_reply_json_feed(&r->json, text, &r->out);
    struct lp_str rest = lp_reply_trim((struct lp_str){text.data + n, text.len - n});
    if (r->json.state == LP_JSON_DONE && !rest.len)
        take_json(r);
    else
        close_json(r, rest);
}

static enum lp_reply_answer object_in_string(struct lp_reply *r, struct lp_str name,
                                             struct lp_str value, size_t behind, size_t tail) {
    struct lp_bytes text = {0};
    enum lp_reply_answer answer = LP_REPLY_NO;
    if (!lp_reply_json_unquote(value, &text)) r->failed = true;
    struct lp_str object = lp_reply_trim(lp_bytes_view(&text));
    if (!object.len) {
        answer = no_arguments(r, name, behind, tail);
    } else if (object.data[0] == '{') {
        lp_reply_call_begin(r, name);
        whole_object(r, object);
        begin_tail(r, behind, tail);
        answer = LP_REPLY_YES;
    }
    if (answer == LP_REPLY_YES) lp_reply_repair(r);
    lp_bytes_release(&text);
    return answer;
}

enum lp_reply_answer lp_reply_json_given(struct lp_reply *r, struct lp_str name,
                                         struct lp_str value, size_t behind, size_t tail) {
    if (value.len && value.data[0] == '"') return object_in_string(r, name, value, behind, tail);
    if (!value.len || lp_str_is(value, "null")) return no_arguments(r, name, behind, tail);
    if (value.data[0] != '{') return LP_REPLY_NO;
    lp_reply_call_begin(r, name);
    whole_object(r, value);
    begin_tail(r, behind, tail);
    return LP_REPLY_YES;
}

enum lp_reply_answer lp_reply_json_begin(struct lp_reply *r, struct lp_str name, size_t at,
                                         size_t tail) {
    enum lp_reply_answer answer = lp_reply_skip_gap(r, &at);
    enum lp_reply_tag tag;
    if (answer != LP_REPLY_YES) return answer;
    if (r->buf.data[at] == '{') {
        lp_reply_call_begin(r, name);
        r->tail_want = tail;
        lp_reply_go(r, at, LP_PHASE_JSON);
        return LP_REPLY_YES;
    }
    if (r->buf.data[at] == '<') {
        answer = lp_reply_tag_at(r, at, LP_TAG_BIT(LP_TAG_CALL_END), &tag);
        if (answer == LP_REPLY_YES) lp_reply_repair(r);
        return answer == LP_REPLY_YES ? no_arguments(r, name, at, 0) : answer;
    }
    size_t length;
    struct lp_str rest = lp_reply_slice(r, at, r->buf.len);
    if (!lp_reply_json_length(rest, &length)) r->failed = true;
    if (r->failed || !length) return LP_REPLY_NO;
    if (length == SIZE_MAX) return lp_reply_more(r);
    return lp_reply_json_given(r, name, (struct lp_str){rest.data, length}, at + length, tail);
}

// Does the tag at this place end the call, though its JSON is not whole? In a string only if
// nothing but another call's tag or the end of the text follows.
static enum lp_reply_answer is_cut(const struct lp_reply *r, size_t at) {
    enum lp_reply_tag tag;
    enum lp_reply_answer answer = lp_reply_tag_at(r, at, LP_TAGS_AROUND, &tag);
    if (answer != LP_REPLY_YES || !lp_reply_json_in_string(&r->json)) return answer;
    if (LP_TAG_BIT(tag) & LP_TAGS_OPEN) return LP_REPLY_NO;
    return lp_reply_gap_then(r, at + r->tags[tag].len, LP_TAGS_AROUND, true);
}

// Reads what is there. WAIT: there is no more, or a tag is not whole.
static enum lp_reply_step read_json(struct lp_reply *r) {
    while (r->at < r->buf.len && r->json.state == LP_JSON_READING && !r->failed) {
        struct lp_str text = lp_reply_slice(r, r->at, r->buf.len);
        const char *bracket = memchr(text.data, '<', text.len);
        if (bracket == text.data) {
            enum lp_reply_answer answer = is_cut(r, r->at);
            if (answer == LP_REPLY_MORE) return LP_STEP_WAIT;
            if (answer == LP_REPLY_YES) return LP_STEP_AGAIN;
            bracket++;
        }
        if (bracket) text.len = (size_t)(bracket - text.data);
        size_t n = lp_reply_json_feed(&r->json, text, &r->out);
        if (r->json.failed) r->failed = true;
        lp_reply_go(r, r->at + n, LP_PHASE_JSON);
    }
    if (r->json.state != LP_JSON_READING || r->ended) return LP_STEP_AGAIN;
    return LP_STEP_WAIT;
}

enum lp_reply_step lp_reply_json_step(struct lp_reply *r) {
    if (read_json(r) == LP_STEP_WAIT) return LP_STEP_WAIT;
    if (r->json.state == LP_JSON_DONE) {
        take_json(r);
        begin_tail(r, r->at, r->tail_want);
    } else if (r->json.state == LP_JSON_READING && r->at < r->buf.len) {
        close_json(r, (struct lp_str){0});
        begin_tail(r, r->at, 0);
    } else {
        r->drop_call_end = r->json.state == LP_JSON_BROKEN;
        close_json(r, (struct lp_str){0});
        lp_reply_call_end(r);
    }
    return LP_STEP_AGAIN;
}

enum lp_reply_step lp_reply_tail_step(struct lp_reply *r) {
    for (; r->at < r->buf.len; r->at++) {
        char c = r->buf.data[r->at];
        bool closing = c == '}' || c == ']' || c == '`';
        if (!closing && !lp_reply_is_space(c)) break;
        r->tail_seen += closing;
    }
    r->scan = r->at;
    if (r->at == r->buf.len && !r->ended) return LP_STEP_WAIT;
    enum lp_reply_tag tag = LP_TAG_COUNT;
    enum lp_reply_answer answer = lp_reply_tag_at(r, r->at, LP_TAGS_AROUND, &tag);
    if (answer == LP_REPLY_MORE) return LP_STEP_WAIT;
    bool ends = answer == LP_REPLY_YES && tag == LP_TAG_CALL_END;
    if (!ends || r->tail_seen != r->tail_want) lp_reply_repair(r);
    if (ends) r->at += r->tags[tag].len;
    r->drop_call_end = answer == LP_REPLY_NO;
    lp_reply_call_end(r);
    return LP_STEP_AGAIN;
}
