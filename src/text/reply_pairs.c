// Arguments that a model writes as tagged pairs, made into a JSON object as they come:
//
//     city -> {"city": "     Paris -> Paris     end of value -> "     end of call -> }
//
// A value that can only be a string goes out piece by piece, any other once it is whole.
#include "text/reply_parts.h"
#include "text/reply_value.h"

unsigned lp_reply_key_types(const struct lp_reply *r) {
    const json_t *schema = NULL;
    if (r->properties) schema = json_object_getn(r->properties, r->key.data, r->key.len);
    return lp_reply_value_types(schema);
}

// A key that comes again: the first value has been sent, so it stays.
static bool key_is_new(struct lp_reply *r) {
    struct lp_str key = lp_bytes_view(&r->key);
    key.data = lp_arena_strndup(&r->key_arena, key.data, key.len);
    uint32_t old = LP_MAP_NONE;
    if (!key.data || !lp_map_add(&r->keys, key, 0, &old)) r->failed = true;
    return old == LP_MAP_NONE;
}

void lp_reply_value_begin(struct lp_reply *r, size_t at, unsigned types) {
    bool first = !r->keys.n_used;
    r->value_types = types;
    r->value_skipped = !key_is_new(r);
    lp_reply_go(r, at, LP_PHASE_VALUE);
    if (r->value_skipped) {
        lp_reply_repair(r);
        return;
    }
    lp_bytes_puts(&r->out, first ? "{\"" : ", \"");
    lp_reply_json_escape(&r->out, lp_bytes_view(&r->key));
    lp_bytes_puts(&r->out, types == LP_VALUE_STRING ? "\": \"" : "\": ");
}

// What is there of the value up to here is read: out with it, if it need not wait for its end.
static void read_value(struct lp_reply *r, size_t to) {
    r->scan = to;
    if (!r->value_skipped && r->value_types != LP_VALUE_STRING) return;
    if (!r->value_skipped) lp_reply_json_escape(&r->out, lp_reply_slice(r, r->at, to));
    r->at = to;
    lp_reply_flush(r);
}

static void write_value(struct lp_reply *r) {
    bool repaired = false;
    if (r->value_types == LP_VALUE_STRING) {
        lp_bytes_puts(&r->out, "\"");
        return;
    }
    struct lp_str text = lp_reply_slice(r, r->at, r->scan);
    if (!lp_reply_value_write(&r->out, text, r->value_types, &repaired)) r->failed = true;
    if (repaired) lp_reply_repair(r);
}

static void end_value(struct lp_reply *r, size_t behind) {
    if (!r->value_skipped) write_value(r);
    lp_reply_go(r, behind, LP_PHASE_PAIRS);
}

enum lp_reply_step lp_reply_value_step(struct lp_reply *r) {
    struct lp_reply_hit hit = lp_reply_find(r, r->style->value_tags | LP_TAG_BIT(LP_TAG_VALUE_END));
    read_value(r, hit.at);
    if (!hit.found) {
        if (!r->ended) return LP_STEP_WAIT;
        lp_reply_repair(r);
        end_value(r, hit.at);
        return LP_STEP_AGAIN;
    }
    if (hit.tag == LP_TAG_VALUE_END) {
        end_value(r, hit.at + r->tags[hit.tag].len);
        return LP_STEP_AGAIN;
    }
    switch (r->style->ends_value(r, hit.tag, hit.at)) {
    case LP_REPLY_MORE:
        return LP_STEP_WAIT;
    case LP_REPLY_YES:
        lp_reply_repair(r);
        end_value(r, hit.at);
        break;
    case LP_REPLY_NO:
        r->scan = hit.at + 1;
        break;
    }
    return LP_STEP_AGAIN;
}

enum lp_reply_step lp_reply_pairs_end(struct lp_reply *r, bool repaired) {
    if (repaired) lp_reply_repair(r);
    lp_bytes_puts(&r->out, r->keys.n_used ? "}" : "{}");
    lp_reply_call_end(r);
    return LP_STEP_AGAIN;
}

bool lp_reply_junk(struct lp_reply *r, unsigned wanted, struct lp_reply_hit *hit) {
    if (r->scan <= r->at) r->scan = r->at + 1; // a tag that stands at the very place is not wanted
    *hit = lp_reply_find(r, wanted);
    r->scan = hit->at;
    if (hit->at - r->at > LP_REPLY_MAX_JUNK || (!hit->found && r->ended)) {
        lp_reply_pairs_end(r, true);
        r->drop_call_end = true;
        return false;
    }
    return hit->found;
}
