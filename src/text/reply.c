// Reasoning and content, and where in them a tool call begins. The calls themselves are read by
// their syntax (reply_glm.c, reply_dsml.c, reply_json_calls.c).
//
//     START --<think>--> THINK_START --> REASONING --</think>--> NEWLINES
//       |                                    | marker               |
//       +---------> CONTENT <-- not a call --+--> HEAD --> a call --+--> CONTENT
//
// White space before a tag waits in the buffer until it is known whether a call follows.
#include "base/utf8_step.h"
#include "text/reply_parts.h"

// ---- reasoning ----

static enum lp_reply_step start_step(struct lp_reply *r) {
    size_t at = lp_reply_skip_space(r, r->scan);
    r->scan = at;
    if (at == r->buf.len && !r->ended) return LP_STEP_WAIT;
    enum lp_reply_tag tag;
    enum lp_reply_answer answer = lp_reply_tag_at(r, at, LP_TAG_BIT(LP_TAG_THINK), &tag);
    if (answer == LP_REPLY_MORE) return LP_STEP_WAIT;
    if (answer == LP_REPLY_YES)
        lp_reply_go(r, at + r->tags[tag].len, LP_PHASE_THINK_START);
    else
        r->phase = LP_PHASE_CONTENT;
    return LP_STEP_AGAIN;
}

static enum lp_reply_step think_start_step(struct lp_reply *r) {
    size_t at = lp_reply_skip_space(r, r->scan);
    r->scan = at;
    if (at == r->buf.len) return LP_STEP_WAIT; // at the end: it was nothing
    enum lp_reply_tag tag;
    unsigned wanted = LP_TAG_BIT(LP_TAG_THINK_END) | (r->calls ? LP_TAGS_OPEN : 0);
    if (!r->repeated_think) wanted |= LP_TAG_BIT(LP_TAG_THINK);
    enum lp_reply_answer answer = lp_reply_tag_at(r, at, wanted, &tag);
    if (answer == LP_REPLY_MORE) return LP_STEP_WAIT;
    if (answer == LP_REPLY_YES && tag == LP_TAG_THINK) {
        r->repeated_think = true;
        lp_reply_go(r, at + r->tags[tag].len, LP_PHASE_THINK_START);
        return LP_STEP_AGAIN;
    }
    if (answer == LP_REPLY_YES) r->at = at; // nothing was thought
    r->phase = LP_PHASE_REASONING;
    return LP_STEP_AGAIN;
}

static enum lp_reply_step begin_head(struct lp_reply *r, size_t mark) {
    r->mark = r->scan = mark;
    r->from_reasoning = r->phase == LP_PHASE_REASONING;
    r->new_section = false;
    r->tried = 0;
    r->phase = LP_PHASE_HEAD;
    return LP_STEP_AGAIN;
}

static enum lp_reply_step reasoning_step(struct lp_reply *r) {
    struct lp_reply_hit hit =
        lp_reply_find(r, LP_TAG_BIT(LP_TAG_THINK_END) | (r->calls ? LP_TAGS_OPEN : 0));
    lp_reply_emit(r, LP_REPLY_REASONING, lp_reply_slice(r, r->at, hit.at));
    lp_reply_go(r, hit.at, LP_PHASE_REASONING);
    if (!hit.found) return LP_STEP_WAIT;
    if (hit.tag != LP_TAG_THINK_END) return begin_head(r, hit.at);
    lp_reply_go(r, hit.at + r->tags[hit.tag].len, LP_PHASE_NEWLINES);
    r->gap = true;
    return LP_STEP_AGAIN;
}

static enum lp_reply_step newlines_step(struct lp_reply *r) {
    size_t at = r->at;
    while (at < r->buf.len && (r->buf.data[at] == '\n' || r->buf.data[at] == '\r')) at++;
    lp_reply_go(r, at, at < r->buf.len ? LP_PHASE_CONTENT : LP_PHASE_NEWLINES);
    return at < r->buf.len ? LP_STEP_AGAIN : LP_STEP_WAIT;
}

// ---- content ----

static unsigned content_tags(const struct lp_reply *r) {
    if (!r->calls) return 0;
    return LP_TAGS_OPEN | (r->in_section ? LP_TAGS_SECTION_END : 0) |
           (r->drop_call_end ? LP_TAG_BIT(LP_TAG_CALL_END) : 0) |
           (r->think_open ? LP_TAG_BIT(LP_TAG_THINK_END) : 0);
}

// Sends the text up to `to`, where a tag may be; white space at its end is kept. What lies between
// at and scan is white space.
static void send_content(struct lp_reply *r, size_t to) {
    size_t end = to, held = r->scan;
    while (r->calls && end > held && lp_reply_is_space(r->buf.data[end - 1])) end--;
    r->scan = to;
    if (end == held) return;
    lp_reply_emit(r, LP_REPLY_CONTENT, lp_reply_slice(r, r->at, end));
    r->at = end;
    r->gap = false;
}

static enum lp_reply_step content_step(struct lp_reply *r) {
    struct lp_reply_hit hit = lp_reply_find(r, content_tags(r));
    send_content(r, hit.at);
    if (!hit.found) {
        if (r->ended && !r->gap)
            lp_reply_emit(r, LP_REPLY_CONTENT, lp_reply_slice(r, r->at, hit.at));
        if (r->ended) r->at = hit.at;
        return LP_STEP_WAIT;
    }
    if (LP_TAG_BIT(hit.tag) & LP_TAGS_OPEN) return begin_head(r, hit.at);
    bool think_end = hit.tag == LP_TAG_THINK_END;
    if (think_end)
        r->think_open = false;
    else if (hit.tag == LP_TAG_CALL_END)
        r->drop_call_end = false;
    else
        r->in_section = false;
    r->gap = true;
    lp_reply_go(r, hit.at + r->tags[hit.tag].len, think_end ? LP_PHASE_NEWLINES : LP_PHASE_CONTENT);
    return LP_STEP_AGAIN;
}

// ---- heads ----

// It was no call: its marker is text, and what follows is read again.
static void give_back(struct lp_reply *r) {
    enum lp_reply_tag tag = LP_TAG_CALL;
    lp_reply_tag_at(r, r->mark, LP_TAGS_OPEN, &tag);
    size_t behind = r->mark + r->tags[tag].len;
    lp_reply_emit(r, r->from_reasoning ? LP_REPLY_REASONING : LP_REPLY_CONTENT,
                  lp_reply_slice(r, r->at, behind));
    r->gap = false;
    lp_reply_go(r, behind, r->from_reasoning ? LP_PHASE_REASONING : LP_PHASE_CONTENT);
}

// A head that is longer than most (JSON with the name behind the arguments) is read from its
// beginning each time, so it is asked again only where it may end, and grown by half.
static bool worth_trying(struct lp_reply *r) {
    size_t n = r->buf.len - r->mark;
    if (r->ended || n <= LP_REPLY_MAX_HEAD || !r->tried) return true;
    struct lp_reply_hit hit = lp_reply_find(r, LP_TAG_BIT(LP_TAG_CALL_END));
    r->scan = hit.at;
    if (!hit.found || n - r->tried < r->tried / 2) return false;
    r->scan++;
    return true;
}

static enum lp_reply_step head_step(struct lp_reply *r) {
    if (!worth_trying(r)) return LP_STEP_WAIT;
    r->tried = r->buf.len - r->mark;
    switch (r->style->head(r)) {
    case LP_REPLY_MORE:
        return LP_STEP_WAIT;
    case LP_REPLY_NO:
        give_back(r);
        break;
    case LP_REPLY_YES:
        r->drop_call_end = false;
        break;
    }
    return LP_STEP_AGAIN;
}

// ---- the parser ----

static enum lp_reply_step step(struct lp_reply *r) {
    switch (r->phase) {
    case LP_PHASE_START:
        return start_step(r);
    case LP_PHASE_THINK_START:
        return think_start_step(r);
    case LP_PHASE_REASONING:
        return reasoning_step(r);
    case LP_PHASE_NEWLINES:
        return newlines_step(r);
    case LP_PHASE_CONTENT:
        return content_step(r);
    case LP_PHASE_HEAD:
        return head_step(r);
    case LP_PHASE_PAIRS:
        return r->style->pairs(r);
    case LP_PHASE_KEY:
        return lp_reply_glm_key(r);
    case LP_PHASE_GAP:
        return lp_reply_glm_gap(r);
    case LP_PHASE_VALUE:
        return lp_reply_value_step(r);
    case LP_PHASE_JSON:
        return lp_reply_json_step(r);
    case LP_PHASE_TAIL:
        return lp_reply_tail_step(r);
    }
    return LP_STEP_WAIT;
}

// Moves what still waits to the front, once that is less than what is gone.
static void compact(struct lp_reply *r) {
    if (r->at <= r->buf.len / 2) return;
    memmove(r->buf.data, r->buf.data + r->at, r->buf.len - r->at);
    r->buf.len -= r->at;
    r->scan -= r->at;
    r->mark -= r->mark < r->at ? r->mark : r->at;
    r->at = 0;
}

static bool run(struct lp_reply *r) {
    while (!r->failed && step(r) == LP_STEP_AGAIN) {
    }
    lp_reply_flush(r);
    compact(r);
    return !r->failed;
}

// Whole characters go into the buffer, ill-formed ones as U+FFFD; one that is cut waits.
static void take_text(struct lp_reply *r, struct lp_str text) {
    size_t from = 0, at = 0, n;
    const unsigned char *bytes = (const unsigned char *)text.data;
    while (at < text.len) {
        enum lp_utf8_kind kind = lp_utf8_step(bytes + at, text.len - at, &n);
        if (kind != LP_UTF8_WHOLE) {
            lp_bytes_append(&r->buf, text.data + from, at - from);
            from = at + n;
        }
        if (kind == LP_UTF8_BAD) lp_bytes_puts(&r->buf, LP_UTF8_REPLACEMENT);
        if (kind == LP_UTF8_CUT) {
            memcpy(r->cut, bytes + at, n);
            r->n_cut = n;
        }
        at += n;
    }
    lp_bytes_append(&r->buf, text.data + from, at - from);
    if (r->buf.failed) r->failed = true;
}

bool lp_reply_push(struct lp_reply *r, struct lp_str text) {
    while (r->n_cut && text.len && !r->failed) { // a character that an earlier push has begun
        unsigned char begun[sizeof r->cut + 1];
        size_t n = r->n_cut;
        memcpy(begun, r->cut, n);
        begun[n] = (unsigned char)text.data[0];
        size_t taken;
        bool goes_on = lp_utf8_step(begun, n + 1, &taken) != LP_UTF8_BAD;
        r->n_cut = 0;
        if (goes_on)
            text.data++, text.len--;
        else
            lp_bytes_puts(&r->buf, LP_UTF8_REPLACEMENT);
        if (goes_on) take_text(r, (struct lp_str){(const char *)begun, n + 1});
    }
    if (!r->failed) take_text(r, text);
    return run(r);
}

bool lp_reply_finish(struct lp_reply *r) {
    if (r->n_cut) lp_bytes_puts(&r->buf, LP_UTF8_REPLACEMENT);
    r->n_cut = 0;
    if (r->buf.failed) r->failed = true;
    r->ended = true;
    return run(r);
}

static bool know_tools(struct lp_reply *r) {
    size_t n = json_array_size(r->params.tools);
    if (!lp_map_reserve(&r->tool_names, n)) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *tool = json_array_get(r->params.tools, i);
        const json_t *function = json_object_get(tool, "function");
        const json_t *name = json_object_get(function ? function : tool, "name");
        struct lp_str text = {json_string_value(name), json_string_length(name)};
        if (text.len && !lp_map_add(&r->tool_names, text, (uint32_t)i, NULL)) return false;
    }
    return true;
}

lp_status lp_reply_new(struct lp_reply **out, const struct lp_reply_params *params,
                       struct lp_err *err) {
    struct lp_reply *r = *out = lp_alloc(1, sizeof *r);
    if (!r) return lp_err_memory(err, sizeof *r, "a reply parser");
    r->params = *params;
    json_incref((json_t *)params->tools);
    r->style = &lp_reply_styles[params->syntax];
    for (int i = 0; i < LP_TAG_COUNT; i++)
        if (r->style->tags[i]) r->tags[i] = lp_str_from(r->style->tags[i]);
    r->calls = r->style->head && json_array_size(params->tools);
    r->phase = params->in_reasoning ? LP_PHASE_THINK_START : LP_PHASE_START;
    if (!r->calls || know_tools(r)) return LP_OK;
    lp_reply_free(r);
    *out = NULL;
    return lp_err_memory(err, 0, "the names of tools");
}

void lp_reply_free(struct lp_reply *r) {
    if (!r) return;
    json_decref((json_t *)r->params.tools);
    lp_map_release(&r->tool_names);
    lp_map_release(&r->keys);
    lp_arena_release(&r->key_arena);
    lp_bytes_release(&r->buf);
    lp_bytes_release(&r->out);
    lp_bytes_release(&r->stray);
    lp_bytes_release(&r->key);
    lp_reply_json_release(&r->json);
    lp_free(r);
}

bool lp_reply_in_reasoning(const struct lp_reply *r) {
    return r->phase == LP_PHASE_THINK_START || r->phase == LP_PHASE_REASONING ||
           (r->phase == LP_PHASE_HEAD && r->from_reasoning);
}

int32_t lp_reply_n_calls(const struct lp_reply *r) {
    return r->n_calls;
}

int32_t lp_reply_n_repairs(const struct lp_reply *r) {
    return r->n_repairs;
}
