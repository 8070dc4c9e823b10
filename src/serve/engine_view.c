#include "serve/engine_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "serve/json_out.h"

static json_t *step_json(const limpid_step_info *s) {
    return json_pack(
        "{s:I, s:f, s:f, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I}}", "step",
        (json_int_t)s->step, "end_s", s->end_s, "duration_s", s->duration_s, "prompt_tokens",
        (int)s->prompt_tokens, "answer_tokens", (int)s->answer_tokens, "draft_tokens",
        (int)s->draft_tokens, "sequences", (int)s->sequences, "running", (json_int_t)s->n_running,
        "waiting", (json_int_t)s->n_waiting, "pages_free", (json_int_t)s->pages_free, "routes",
        "expanded", (json_int_t)s->route_expanded, "absorbed", (json_int_t)s->route_absorbed,
        "sparse", (json_int_t)s->route_sparse, "dense", (json_int_t)s->route_dense, "gqa",
        (json_int_t)s->route_gqa);
}

static json_t *steps_json(const struct lp_service *service, uint64_t since, double *now_s) {
    limpid_step_info *steps = lp_alloc(LIMPID_STEP_LOG, sizeof *steps);
    json_t *out = steps ? json_array() : NULL;
    size_t n =
        out ? limpid_engine_get_steps(service->engine, since, steps, LIMPID_STEP_LOG, now_s) : 0;
    for (size_t i = 0; i < n && out; i++) {
        if (json_array_append_new(out, step_json(&steps[i])) == 0) continue;
        json_decref(out);
        out = NULL;
    }
    lp_free(steps);
    return out;
}

static bool set(json_t *to, const char *name, uint64_t value) {
    return json_object_set_new(to, name, json_integer((json_int_t)value)) == 0;
}

void lp_engine_view(const struct lp_service *service, const char *since,
                    struct lp_http_reply *reply) {
    struct lp_api_error err;
    double now_s = 0;
    size_t n_digits = since ? strspn(since, "0123456789") : 0;
    if (since && (n_digits == 0 || n_digits > 18 || since[n_digits])) {
        lp_api_invalid(&err, "since", "since is '%.40s', expected the number of a step", since);
        lp_http_reply_error(reply, lp_api_error_json, &err);
        return;
    }
    limpid_engine_stats s = limpid_engine_get_stats(service->engine);
    json_t *recent = steps_json(service, since ? strtoull(since, NULL, 10) : 0, &now_s);
    json_t *out =
        json_pack("{s:o, s:f, s:o}", "model", lp_json_text(lp_str_from(service->model_id)),
                  "uptime_s", now_s, "recent", recent);
    bool ok =
        out && set(out, "running", (uint64_t)s.n_running) &&
        set(out, "waiting", (uint64_t)s.n_waiting) && set(out, "pages", (uint64_t)s.pages) &&
        set(out, "pages_free", (uint64_t)s.pages_free) &&
        set(out, "pages_cached", (uint64_t)s.pages_cached) &&
        set(out, "page_tokens", (uint64_t)s.page_tokens) &&
        set(out, "prompt_tokens", s.prompt_tokens) && set(out, "cached_tokens", s.cached_tokens) &&
        set(out, "generated_tokens", s.generated_tokens) &&
        set(out, "draft_tokens", s.draft_tokens) &&
        set(out, "accepted_tokens", s.accepted_tokens) && set(out, "steps", s.steps) &&
        set(out, "expert_slots", s.expert_slots) && set(out, "expert_hits", s.expert_hits) &&
        set(out, "expert_ahead", s.expert_ahead) && set(out, "expert_misses", s.expert_misses) &&
        set(out, "expert_read_bytes", s.expert_read_bytes) &&
        json_object_set_new(out, "expert_wait_s", json_real(s.expert_wait_s)) == 0;
    if (!ok) {
        json_decref(out);
        out = NULL;
    }
    lp_http_reply_json(reply, 200, out);
}

// ---- the last prompt ----

void lp_last_prompt_release(struct lp_service *service) {
    lp_free(service->last_prompt.ids);
    service->last_prompt.ids = NULL;
}

void lp_last_prompt_keep(struct lp_service *service, const struct lp_completion *c,
                         const char *request_id) {
    if (!service->keep_last_prompt) return;
    const struct lp_completion_prompt *p = &c->prompts[c->params.n_prompts - 1];
    int32_t *ids = lp_alloc(p->n_ids, sizeof *ids);
    if (!ids) return;
    memcpy(ids, p->ids, p->n_ids * sizeof *ids);
    pthread_mutex_lock(&service->last_prompt.lock);
    lp_last_prompt_release(service);
    service->last_prompt.ids = ids;
    service->last_prompt.n_ids = p->n_ids;
    snprintf(service->last_prompt.request_id, sizeof service->last_prompt.request_id, "%s",
             request_id);
    pthread_mutex_unlock(&service->last_prompt.lock);
}

static json_t *last_prompt_json(struct lp_service *service) {
    limpid_error e;
    char *text = NULL;
    size_t n_text = 0;
    struct lp_last_prompt *last = &service->last_prompt;
    if (limpid_detokenize(service->model, last->ids, last->n_ids, false, &text, &n_text, &e))
        return NULL;
    json_t *out = json_pack(
        "{s:o, s:I, s:o, s:o}", "request_id", lp_json_text(lp_str_from(last->request_id)), "count",
        (json_int_t)last->n_ids, "prompt", lp_json_text((struct lp_str){text, n_text}), "tokens",
        lp_json_ids(last->ids, last->n_ids));
    limpid_free(text);
    return out;
}

void lp_last_prompt_view(struct lp_service *service, struct lp_http_reply *reply) {
    struct lp_api_error err;
    if (!service->keep_last_prompt) {
        lp_api_fail(&err, 404, NULL,
                    "this server keeps no prompts; start it with --debug-prompts to see the last "
                    "one here");
        lp_http_reply_error(reply, lp_api_error_json, &err);
        return;
    }
    pthread_mutex_lock(&service->last_prompt.lock);
    bool none = !service->last_prompt.ids;
    json_t *out = none ? NULL : last_prompt_json(service);
    pthread_mutex_unlock(&service->last_prompt.lock);
    if (none) {
        lp_api_fail(&err, 404, NULL, "no request has come yet");
        lp_http_reply_error(reply, lp_api_error_json, &err);
    } else {
        lp_http_reply_json(reply, 200, out);
    }
}
