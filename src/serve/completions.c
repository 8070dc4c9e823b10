#include "serve/completions.h"

#include <string.h>

#include "base/alloc.h"
#include "serve/choice.h"
#include "serve/json_out.h"
#include "serve/openai.h"
#include "serve/request_id.h"
#include "serve/sse.h"

struct completions { // a->state
    char id[8 + LP_RANDOM_ID_HEX];
    struct lp_choice *choices; // [completion.n_choices]
    json_t **done;             // [completion.n_choices], of a whole answer: as they ended
};

static struct completions *of(const struct lp_answer *a) {
    return a->state;
}

bool lp_completions_parse(struct lp_answer *a, const char *body, size_t n_bytes,
                          struct lp_api_error *err) {
    struct lp_completion_params params = {0};
    struct completions *s = lp_alloc(1, sizeof *s);
    if (!(a->state = s)) return lp_api_out_of_memory(err);
    strcpy(s->id, "cmpl-");
    lp_random_id(s->id + 5);
    bool ok = lp_completion_params_parse(&params, body, n_bytes,
                                         limpid_engine_context(a->service->engine), err) &&
              lp_completion_admit(&a->completion, a->service, &params, err);
    lp_completion_params_release(&params);
    if (!ok) return false;
    size_t n = a->completion.n_choices;
    s->choices = lp_alloc(n, sizeof *s->choices);
    s->done = lp_alloc(n, sizeof(json_t *));
    if (!s->choices || !s->done) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < n; i++) s->choices[i].index = i;
    return true;
}

static void release(struct lp_answer *a) {
    struct completions *s = of(a);
    for (size_t i = 0; s && i < a->completion.n_choices; i++) {
        if (s->choices) lp_choice_release(&s->choices[i]);
        if (s->done) json_decref(s->done[i]);
    }
    if (s) {
        lp_free(s->choices);
        lp_free(s->done);
    }
    lp_free(s);
    a->state = NULL;
}

// choices and usage are taken over; usage NULL: no such member
static json_t *completion_json(const struct lp_answer *a, json_t *choices, json_t *usage) {
    json_t *out = json_pack("{s:s, s:s, s:I, s:o, s:o}", "id", of(a)->id, "object",
                            "text_completion", "created", (json_int_t)a->created, "model",
                            lp_json_text(lp_str_from(a->service->model_id)), "choices", choices);
    if (!usage) return out;
    if (json_object_set_new(out, "usage", usage) == 0) return out; // without out it fails
    json_decref(out);
    return NULL;
}

static json_t *usage_json(const struct lp_answer *a) {
    const struct lp_generation *g = &a->generation;
    return lp_openai_usage(g->n_prompt_tokens, g->n_cached, g->n_generated, -1);
}

static bool send_choice(struct lp_answer *a, json_t *choice, struct lp_bytes *out) {
    bool want_usage = a->completion.params.include_usage;
    json_t *event = completion_json(a, json_pack("[o]", choice), want_usage ? json_null() : NULL);
    bool ok = event && lp_sse_event(out, event);
    json_decref(event);
    return ok;
}

// The prompt is computed once, and shown by each of its choices.
static bool take_event(struct lp_answer *a, const limpid_event *event, size_t choice,
                       struct lp_bytes *out) {
    struct completions *s = of(a);
    bool is_prompt = event->kind == LIMPID_EVENT_PROMPT;
    for (size_t i = 0; i < (is_prompt ? (size_t)a->completion.params.n : 1); i++)
        if (!lp_choice_add(&s->choices[choice + i], &a->completion, event)) return false;
    bool done = event->kind == LIMPID_EVENT_DONE;
    if (!done &&
        !(out && event->kind == LIMPID_EVENT_TOKEN && lp_choice_has_news(&s->choices[choice])))
        return true;
    json_t *piece = lp_choice_take(&s->choices[choice], &a->completion, event);
    if (!piece) return false;
    if (out) return send_choice(a, piece, out);
    s->done[choice] = piece;
    return true;
}

static bool end(struct lp_answer *a, struct lp_bytes *out) {
    bool ok = true;
    if (a->completion.params.include_usage) {
        json_t *usage = usage_json(a);
        json_t *event = usage ? completion_json(a, json_array(), usage) : NULL;
        ok = event && lp_sse_event(out, event);
        json_decref(event);
    }
    return ok && lp_sse_done(out);
}

// They ended in any order and are listed by index.
static json_t *whole(struct lp_answer *a) {
    struct completions *s = of(a);
    json_t *choices = json_array(), *usage = usage_json(a);
    bool ok = choices && usage;
    for (size_t i = 0; ok && i < a->completion.n_choices; i++)
        ok = json_array_append(choices, s->done[i]) == 0;
    if (ok) return completion_json(a, choices, usage);
    json_decref(choices);
    json_decref(usage);
    return NULL;
}

const struct lp_format lp_completions_format = {.event = take_event,
                                                .end = end,
                                                .whole = whole,
                                                .error = lp_api_error_json,
                                                .stream_error = lp_openai_stream_error,
                                                .keep_alive = lp_openai_keep_alive,
                                                .release = release};
