#include "serve/completion.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"

bool lp_completion_check_length(const struct lp_service *service, size_t n_bytes, const char *param,
                                struct lp_api_error *err) {
    int64_t context = limpid_engine_context(service->engine);
    size_t least = service->longest_token ? n_bytes / service->longest_token : 0;
    if (least <= (uint64_t)context) return true;
    lp_api_invalid(
        err, param,
        "the prompt has %zu bytes, which are more than %zu tokens; this server's maximum "
        "context length is %lld tokens",
        n_bytes, least, (long long)context);
    err->code = "context_length_exceeded";
    return false;
}

static bool tokenize(struct lp_completion *c, struct lp_completion_prompt *to,
                     struct lp_prompt_param *from, struct lp_api_error *err) {
    limpid_error e;
    if (!lp_completion_check_length(c->service, from->n_bytes, "prompt", err)) return false;
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
        char which[40] = "the prompt";
        if (c->params.n_prompts > 1) snprintf(which, sizeof which, "prompt %zu", i);
        lp_api_invalid(err, "prompt",
                       "%s has %zu tokens%s; this server's maximum context length is %lld tokens",
                       which, p->n_ids,
                       p->n_ids > (uint64_t)context ? "" : ", which leaves no room for an answer",
                       (long long)context);
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

static bool check_ids(const struct lp_completion *c, const char *param, const int32_t *ids,
                      size_t n, struct lp_api_error *err) {
    int32_t n_vocab = limpid_model_get_info(c->service->model).n_vocab;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= n_vocab)
            return lp_api_invalid(err, param, "%s names token %d, the model has %d tokens", param,
                                  ids[i], n_vocab);
    return true;
}

static bool is_alias(const char *list, const char *name) {
    size_t n = strlen(name);
    while (*list) {
        size_t len = strcspn(list, ",");
        if ((len == n && memcmp(list, name, n) == 0) || (len == 1 && *list == '*')) return true;
        list += len + (list[len] == ',');
    }
    return false;
}

bool lp_completion_check_model(const struct lp_service *service, const char *model,
                               struct lp_api_error *err) {
    if (!model || strcmp(model, service->model_id) == 0 || is_alias(service->aliases, model))
        return true;
    lp_api_fail(err, 404, "model_not_found",
                "the model '%.200s' does not exist; this server has '%.200s'%s%.200s (limpid serve "
                "--alias gives it further names)",
                model, service->model_id, service->aliases[0] ? ", also called " : "",
                service->aliases);
    strcpy(err->param, "model");
    return false;
}

static void set_defaults(struct lp_completion_params *p, const struct lp_sampling_defaults *d) {
    if (!p->has_temperature) p->temperature = d->temperature;
    if (!p->has_top_p) p->top_p = d->top_p;
    if (!p->has_top_k) p->top_k = d->top_k;
    if (!p->has_min_p) p->min_p = d->min_p;
    if (!p->has_repetition_penalty) p->repetition_penalty = d->repetition_penalty;
}

bool lp_completion_admit(struct lp_completion *c, struct lp_service *service,
                         struct lp_completion_params *params, struct lp_api_error *err) {
    *c = (struct lp_completion){.service = service, .params = *params};
    *params = (struct lp_completion_params){0};
    const struct lp_completion_params *p = &c->params;
    set_defaults(&c->params, &service->sampling);
    if (!lp_completion_check_model(service, p->model, err) ||
        !check_ids(c, "stop_token_ids", p->stop_ids, p->n_stop_ids, err) ||
        !check_ids(c, "logit_bias", p->bias_ids, p->n_bias, err))
        return false;
    c->prompts = lp_alloc(p->n_prompts, sizeof *c->prompts);
    if (!c->prompts) return lp_api_out_of_memory(err);
    for (size_t i = 0; i < p->n_prompts; i++)
        if (!admit_prompt(c, i, err)) return false;
    c->n_choices = p->n_prompts * (size_t)p->n;
    c->seed = p->has_seed ? (uint64_t)p->seed : random_seed();
    return true;
}

void lp_completion_release(struct lp_completion *c) {
    for (size_t i = 0; c->prompts && i < c->params.n_prompts; i++) {
        lp_free(c->prompts[i].ids);
        lp_bytes_release(&c->prompts[i].text);
    }
    lp_free(c->prompts);
    lp_completion_params_release(&c->params);
    c->prompts = NULL;
}
