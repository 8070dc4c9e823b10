#include "serve/responses_items.h"

#include <stdio.h>

#include "base/alloc.h"
#include "serve/json_out.h"
#include "serve/request_id.h"

void lp_responses_state_release(void *state) {
    struct lp_responses_state *s = state;
    for (size_t i = 0; i < s->n_items; i++) {
        lp_bytes_release(&s->items[i].text);
        json_decref(s->items[i].logprobs);
    }
    lp_free(s->items);
    *s = (struct lp_responses_state){0};
}

static bool grow(struct lp_responses_state *s) {
    if (s->n_items < s->capacity) return true;
    size_t capacity = s->capacity ? 2 * s->capacity : 4;
    struct lp_responses_item *items = lp_realloc(s->items, capacity, sizeof *items);
    if (!items) return false;
    s->items = items;
    s->capacity = capacity;
    return true;
}

struct lp_responses_item *lp_responses_item_add(struct lp_responses_state *s,
                                                enum lp_responses_kind kind) {
    static const char *const prefixes[] = {[LP_RESPONSES_REASONING] = "rs_",
                                           [LP_RESPONSES_MESSAGE] = "msg_",
                                           [LP_RESPONSES_CALL] = "fc_"};
    char random[LP_RANDOM_ID_HEX + 1];
    if (!grow(s)) return NULL;
    struct lp_responses_item *item = &s->items[s->n_items++];
    *item = (struct lp_responses_item){.kind = kind, .open = true};
    lp_random_id(random);
    snprintf(item->id, sizeof item->id, "%s%s", prefixes[kind], random);
    return item;
}

struct lp_responses_item *lp_responses_item_open(const struct lp_responses_state *s) {
    struct lp_responses_item *last = s->n_items ? &s->items[s->n_items - 1] : NULL;
    return last && last->open ? last : NULL;
}

// Removes what stands before the last entries that spell n_bytes.
static void drop_before(json_t *entries, size_t n_bytes) {
    size_t first = json_array_size(entries), covered = 0;
    while (first > 0 && covered < n_bytes)
        covered += json_array_size(json_object_get(json_array_get(entries, --first), "bytes"));
    while (first-- > 0) json_array_remove(entries, 0);
}

bool lp_responses_take_logprobs(struct lp_responses_item *item, struct lp_chat_choice *choice,
                                size_t n_bytes, json_t **out) {
    json_t *came = choice->logprobs ? choice->logprobs : json_array();
    choice->logprobs = NULL;
    if (!item->logprobs) {
        item->logprobs = json_array();
        drop_before(came, n_bytes);
    }
    *out = came;
    return json_array_extend(item->logprobs, came) == 0;
}

// ---- on the wire ----

json_t *lp_responses_part_json(const struct lp_responses_item *item) {
    json_t *text = lp_json_text(lp_bytes_view(&item->text));
    if (item->kind == LP_RESPONSES_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations",
                     "logprobs", item->logprobs ? json_deep_copy(item->logprobs) : json_array());
}

static json_t *parts_json(const struct lp_responses_item *item) {
    if (item->open && item->text.len == 0) return json_array();
    return json_pack("[o]", lp_responses_part_json(item));
}

static json_t *call_json(const struct lp_responses_item *item, const struct lp_chat_choice *choice,
                         const char *status) {
    const struct lp_chat_call *call = &choice->calls[item->call];
    struct lp_str arguments = item->open ? lp_str_from("") : lp_bytes_view(&call->arguments);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "id", item->id, "type", "function_call",
                     "call_id", call->id, "name", lp_json_text(lp_bytes_view(&call->name)),
                     "arguments", lp_json_text(arguments), "status", status);
}

json_t *lp_responses_item_json(const struct lp_responses_item *item,
                               const struct lp_chat_choice *choice) {
    const char *status = item->cut ? "incomplete" : item->open ? "in_progress" : "completed";
    switch (item->kind) {
    case LP_RESPONSES_REASONING:
        return json_pack("{s:s, s:s, s:[], s:o, s:s}", "id", item->id, "type", "reasoning",
                         "summary", "content", parts_json(item), "status", status);
    case LP_RESPONSES_MESSAGE:
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", item->id, "type", "message", "role",
                         "assistant", "status", status, "content", parts_json(item));
    case LP_RESPONSES_CALL:
        return call_json(item, choice, status);
    }
    return NULL;
}
