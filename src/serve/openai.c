#include "serve/openai.h"

#include "serve/json_out.h"
#include "serve/sse.h"

void lp_openai_health(struct lp_service *service, bool live, struct lp_http_reply *reply) {
    double age_s;
    enum lp_health health = lp_service_health(service, &age_s);
    if (health == LP_HEALTH_FAILED)
        lp_http_reply_json(reply, 503, json_pack("{s:s}", "status", "failed"));
    else if (health == LP_HEALTH_STALLED)
        lp_http_reply_json(reply, 503,
                           json_pack("{s:s, s:f}", "status", "stalled", "last_step_age_s", age_s));
    else if (health == LP_HEALTH_DRAINING && !live)
        lp_http_reply_json(reply, 503, json_pack("{s:s}", "status", "draining"));
    else
        lp_http_reply_json(reply, 200, json_pack("{s:s}", "status", "ok"));
}

static json_t *model_json(const struct lp_service *s) {
    return json_pack("{s:o, s:s, s:I, s:s, s:I}", "id", lp_json_text(lp_str_from(s->model_id)),
                     "object", "model", "created", (json_int_t)s->created, "owned_by", "limpid",
                     "max_model_len", (json_int_t)limpid_engine_context(s->engine));
}

void lp_openai_models(const struct lp_service *s, const char *id, struct lp_http_reply *reply) {
    struct lp_api_error err;
    if (!id)
        lp_http_reply_json(reply, 200,
                           json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(s)));
    else if (lp_completion_check_model(s, id, &err))
        lp_http_reply_json(reply, 200, model_json(s));
    else
        lp_http_reply_error(reply, lp_api_error_json, &err);
}

json_t *lp_openai_usage(int64_t prompt, int64_t cached, int64_t generated, int64_t reasoning) {
    json_t *out = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)prompt,
                            "completion_tokens", (json_int_t)generated, "total_tokens",
                            (json_int_t)(prompt + generated), "prompt_tokens_details",
                            "cached_tokens", (json_int_t)cached);
    if (!out || reasoning < 0 ||
        json_object_set_new(out, "completion_tokens_details",
                            json_pack("{s:I}", "reasoning_tokens", (json_int_t)reasoning)) == 0)
        return out;
    json_decref(out);
    return NULL;
}

bool lp_openai_stream_error(struct lp_answer *a, const struct lp_api_error *err,
                            struct lp_bytes *out) {
    (void)a;
    json_t *event = lp_api_error_json(err);
    bool ok = event && lp_sse_event(out, event);
    json_decref(event);
    return ok;
}

bool lp_openai_keep_alive(struct lp_answer *a, struct lp_bytes *out) {
    (void)a;
    return lp_sse_comment(out, "keep-alive");
}
