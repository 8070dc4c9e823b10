#include "serve/completion.h"

#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"

static bool tokenize(struct lp_completion *c, struct lp_completion_prompt *to,
                     struct lp_prompt_param *from, struct lp_api_error *err) {
    limpid_error e;
    unsigned flags = LIMPID_SPECIAL | (c->params.add_special_tokens ? LIMPID_BOS : 0);
    if (limpid_tokenize(c->service->model, from->text, from->n_bytes, flags, &to->ids, &to->n_ids,
                        &e))
        return lp_api_from_limpid(err, &e);
    if (c->params.echo && !lp_bytes_append(&to->text, from->text, from->n_bytes))
        return lp_api_out_of_memory(err);
    return true;
}

bool lp_completion_is_hidden(const struct lp_completion *c, int32_t id) {
    limpid_error e;
    char *shown = NULL, *all = NULL;
    size_t n_shown, n_all;
    if (!c->params.skip_special_tokens) return false;
    bool hidden =
        limpid_detokenize(c->service->model, &id, 1, true, &shown, &n_shown, &e) == LIMPID_OK &&
        limpid_detokenize(c->service->model, &id, 1, false, &all, &n_all, &e) == LIMPID_OK &&
        n_shown == 0 && n_all > 0;
    limpid_free(shown);
    limpid_free(all);
    return hidden;
}

// The bytes of ids, for echo.
static bool spell(struct lp_completion *c, struct lp_completion_prompt *p,
                  struct lp_api_error *err) {
    limpid_error e;
    for (size_t i = 0; i < p->n_ids; i++) {
        char *bytes;
        size_t n;
        if (lp_completion_is_hidden(c, p->ids[i])) continue;
        if (limpid_token_bytes(c->service->model, p->ids[i], &bytes, &n, &e))
            return lp_api_from_limpid(err, &e);
        lp_bytes_append(&p->text, bytes, n);
        limpid_free(bytes);
    }
    return p->text.failed ? lp_api_out_of_memory(err) : true;
}

static bool check_prompt(const struct lp_completion *c, const struct lp_completion_prompt *p,
                         size_t i, struct lp_api_error *err) {
    int64_t context = limpid_engine_context(c->service->engine);
    int32_t n_vocab = limpid_model_get_info(c->service->model).n_vocab;
    if (p->n_ids == 0)
        return lp_api_invalid(err, "prompt", "prompt %zu is empty; it needs at least one token", i);
    for (size_t k = 0; k < p->n_ids; k++)
        if (p->ids[k] >= n_vocab)
            return lp_api_invalid(err, "prompt",
                                  "prompt %zu: token %zu has id %d, the model has %d tokens", i, k,
                                  p->ids[k], n_vocab);
    if (p->n_ids + (c->params.max_tokens > 0) > (uint64_t)context) {
        lp_api_invalid(err, "prompt", "prompt %zu has %zu tokens; the context of %lld tokens %s", i,
                       p->n_ids, (long long)context,
                       p->n_ids > (uint64_t)context ? "is shorter"
                                                    : "leaves no room for an answer");
        err->code = "context_length_exceeded";
        return false;
    }
    return true;
}

static bool admit_prompt(struct lp_completion *c, size_t i, struct lp_api_error *err) {
    struct lp_completion_prompt *p = &c->prompts[i];
    struct lp_prompt_param *from = &c->params.prompts[i];
    if (from->text) {
        if (!tokenize(c, p, from, err)) return false;
    } else {
        p->ids = from->ids;
        p->n_ids = from->n_ids;
        from->ids = NULL;
    }
    bool given_as_ids = !from->text;
    lp_free(from->text);
    from->text = NULL;
    return check_prompt(c, p, i, err) && (!given_as_ids || !c->params.echo || spell(c, p, err));
}

static uint64_t random_seed(void) {
    uint64_t seed;
    return getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed ? seed : lp_clock_ns();
}

bool lp_completion_admit(struct lp_completion *c, struct lp_service *service,
                         const struct lp_client *client, struct lp_completion_params *params,
                         struct lp_api_error *err) {
    *c = (struct lp_completion){.service = service, .client = *client, .params = *params};
    *params = (struct lp_completion_params){0};
    if (c->params.model && strcmp(c->params.model, service->model_id) != 0) {
        lp_api_fail(err, 404, "model_not_found",
                    "the model '%.200s' does not exist; this server has '%.200s'", c->params.model,
                    service->model_id);
        strcpy(err->param, "model");
        return false;
    }
    c->prompts = lp_alloc(c->params.n_prompts, sizeof *c->prompts);
    if (!c->prompts) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < c->params.n_prompts; i++)
        if (!admit_prompt(c, i, err)) return false;
    c->n_choices = c->params.n_prompts * (size_t)c->params.n;
    c->seed = c->params.has_seed ? (uint64_t)c->params.seed : random_seed();
    return true;
}

static bool drop(struct lp_completion *c, struct lp_api_error *err) {
    c->dropped = true;
    return lp_api_fail(err, 499, NULL, "the client has closed the connection");
}

static bool stopping(struct lp_api_error *err) {
    return lp_api_fail(err, 503, NULL, "the server is stopping; ask again when it is back");
}

bool lp_completion_take_turn(struct lp_completion *c, struct lp_api_error *err) {
    switch (lp_turn_take(&c->service->turn, &c->client)) {
    case LP_TURN_TAKEN:
        c->has_turn = true;
        return true;
    case LP_TURN_GONE:
        return drop(c, err);
    case LP_TURN_CLOSED:
        break;
    }
    return stopping(err);
}

static bool still_wanted(struct lp_completion *c, struct lp_api_error *err) {
    if (lp_turn_closed(&c->service->turn)) return stopping(err);
    return c->client.gone(c->client.user) ? drop(c, err) : true;
}

static void close_request(struct lp_completion *c) {
    limpid_request_free(c->request);
    limpid_sequence_free(c->sequence);
    c->request = NULL;
    c->sequence = NULL;
}

// All but the last chunk, in the steps in which the engine would run them: the result is the same,
// but a client that has gone is seen between them. What is left, at least a token, the request
// runs.
static bool run_ahead(struct lp_completion *c, const struct lp_completion_prompt *p,
                      struct lp_api_error *err) {
    limpid_error e;
    size_t chunk = (size_t)c->service->chunk;
    for (size_t done = 0; p->n_ids - done > chunk; done += chunk) {
        if (!still_wanted(c, err)) return false;
        if (limpid_sequence_append(c->sequence, p->ids + done, chunk, NULL, NULL, &e))
            return lp_api_from_limpid(err, &e);
    }
    return true;
}

static bool open_request(struct lp_completion *c, struct lp_api_error *err) {
    const struct lp_completion_prompt *p = lp_completion_prompt(c);
    const struct lp_completion_params *s = &c->params;
    int64_t room = limpid_engine_context(c->service->engine) - (int64_t)p->n_ids;
    limpid_error e;
    limpid_request_options o = limpid_request_default_options();
    o.tokens = p->ids;
    o.n_tokens = p->n_ids;
    o.max_tokens = s->max_tokens < room ? s->max_tokens : room; // ends as "length", like max_tokens
    o.temperature = (float)s->temperature;
    o.top_p = (float)s->top_p;
    o.top_k = (int32_t)s->top_k;
    o.seed = c->seed + c->choice % (size_t)s->n;
    o.stop = (const char *const *)s->stop;
    o.n_stop = s->n_stop;
    o.ignore_eos = s->ignore_eos;
    o.skip_special = s->skip_special_tokens;
    o.n_logprobs = (int32_t)s->logprobs;
    o.prompt_logprobs = s->echo && s->logprobs >= 0;
    if (limpid_sequence_new(&c->sequence, c->service->engine, &e))
        return lp_api_from_limpid(err, &e);
    o.reuse = c->sequence;
    if (!o.prompt_logprobs && !run_ahead(c, p, err)) return false;
    if (limpid_request_new(&c->request, c->service->engine, &o, &e))
        return lp_api_from_limpid(err, &e);
    return true;
}

bool lp_completion_next(struct lp_completion *c, limpid_event *event, struct lp_api_error *err) {
    limpid_error e;
    if (!still_wanted(c, err)) return false;
    if (c->choice_done) close_request(c);
    c->choice_done = false;
    if (!c->request && !open_request(c, err)) return false;
    if (limpid_request_next(c->request, event, &e)) return lp_api_from_limpid(err, &e);
    if (event->kind != LIMPID_EVENT_DONE) return true;
    if (c->choice % (size_t)c->params.n == 0) c->n_prompt_tokens += event->n_prompt;
    c->n_generated += event->n_generated;
    c->choice++;
    c->choice_done = true; // its request stays until the next call: the event points into it
    return true;
}

bool lp_completion_ended(const struct lp_completion *c) {
    return c->choice == c->n_choices;
}

void lp_completion_end(struct lp_completion *c) {
    close_request(c);
    if (c->has_turn) lp_turn_give(&c->service->turn);
    c->has_turn = false;
}

void lp_completion_release(struct lp_completion *c) {
    lp_completion_end(c);
    for (size_t i = 0; c->prompts && i < c->params.n_prompts; i++) {
        lp_free(c->prompts[i].ids);
        lp_bytes_release(&c->prompts[i].text);
    }
    lp_free(c->prompts);
    lp_completion_params_release(&c->params);
    c->prompts = NULL;
}
