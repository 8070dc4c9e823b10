#include "serve/logprobs.h"

#include <string.h>

#include "serve/json_out.h"
#include "base/utf8_step.h"

// NUL is not: it would end the keys of top_logprobs.
static bool is_whole(struct lp_str text) {
    if (text.len && memchr(text.data, 0, text.len)) return false;
    for (size_t at = 0, len; at < text.len; at += len)
        if (lp_utf8_step((const unsigned char *)text.data + at, text.len - at, &len) !=
            LP_UTF8_WHOLE)
            return false;
    return true;
}

bool lp_logprobs_show(struct lp_bytes *out, struct lp_str token) {
    if (is_whole(token)) return lp_bytes_append(out, token.data, token.len);
    lp_bytes_puts(out, "bytes:");
    for (size_t i = 0; i < token.len; i++)
        lp_bytes_printf(out, "\\x%02x", (unsigned char)token.data[i]);
    return !out->failed;
}

// Takes what is decided of held: whole characters and what can never become one.
static void settle(struct lp_char_count *count) {
    size_t len;
    while (count->n_held && lp_utf8_step(count->held, count->n_held, &len) != LP_UTF8_CUT) {
        count->n++;
        count->n_held -= len;
        memmove(count->held, count->held + len, count->n_held);
    }
}

void lp_char_count_add(struct lp_char_count *count, struct lp_str piece) {
    for (size_t i = 0; i < piece.len; i++) {
        count->held[count->n_held++] =
            (unsigned char)piece.data[i]; // a cut character has at most 3 bytes
        settle(count);
    }
}

static bool append(json_t **array, json_t *value) {
    if (!*array) *array = json_array();
    return json_array_append_new(*array, value) ==
           0; // NULL is an error, and value is taken either way
}

bool lp_logprobs_add(struct lp_logprobs *l, const struct lp_token_logprob *one) {
    bool ok = append(&l->tokens, one->text);
    ok = append(&l->token_logprobs,
                one->has_logprob ? lp_json_logprob(one->logprob) : json_null()) &&
         ok;
    ok = append(&l->top_logprobs, one->top ? one->top : json_null()) && ok;
    return append(&l->text_offset, json_integer(one->offset)) && ok;
}

json_t *lp_logprobs_take(struct lp_logprobs *l) {
    json_t **arrays[] = {&l->tokens, &l->token_logprobs, &l->top_logprobs, &l->text_offset};
    for (size_t i = 0; i < 4; i++)
        if (!*arrays[i]) *arrays[i] = json_array();
    json_t *out =
        json_pack("{s:o, s:o, s:o, s:o}", "tokens", l->tokens, "token_logprobs", l->token_logprobs,
                  "top_logprobs", l->top_logprobs, "text_offset", l->text_offset);
    *l = (struct lp_logprobs){0};
    return out;
}

void lp_logprobs_release(struct lp_logprobs *l) {
    json_decref(l->tokens);
    json_decref(l->token_logprobs);
    json_decref(l->top_logprobs);
    json_decref(l->text_offset);
    *l = (struct lp_logprobs){0};
}
