#include "serve/chat_logprobs.h"

#include "serve/json_out.h"

// A part of a character is shown as U+FFFD; "bytes" has what it is.
static json_t *token_json(const struct lp_completion *c, int32_t id, double logprob) {
    limpid_error e;
    char *data;
    size_t n;
    if (limpid_token_bytes(c->service->model, id, &data, &n, &e)) return NULL;
    json_t *bytes = json_array();
    for (size_t i = 0; bytes && i < n; i++) {
        if (json_array_append_new(bytes, json_integer((unsigned char)data[i])) == 0) continue;
        json_decref(bytes);
        bytes = NULL;
    }
    json_t *out = json_pack("{s:o, s:o, s:o}", "token", lp_json_text((struct lp_str){data, n}),
                            "logprob", lp_json_logprob(logprob), "bytes", bytes);
    limpid_free(data);
    return out;
}

bool lp_chat_logprobs_add(json_t **entries, const struct lp_completion *c,
                          const limpid_event *event) {
    if (!*entries && !(*entries = json_array())) return false;
    json_t *one = token_json(c, event->token, (double)event->logprob), *top = json_array();
    bool ok = one && top;
    for (int32_t i = 0; ok && i < event->n_top; i++)
        ok = json_array_append_new(
                 top, token_json(c, event->top_ids[i], (double)event->top_logprobs[i])) == 0;
    ok = ok && json_object_set(one, "top_logprobs", top) == 0 &&
         json_array_append(*entries, one) == 0;
    json_decref(one);
    json_decref(top);
    return ok;
}
