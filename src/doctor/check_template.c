// The chat template against the tokenizer: a small conversation is rendered in several ways and
// looked at as tokens. Its markers must be tokens of this vocabulary, it must begin as the family's
// texts do, keep each speaker's words, lead to an answer, and end turns with a token that ends
// answers.
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "doctor/accuse.h"
#include "doctor/token_checks.h"
#include "text/chat.h"

#define KEY "tokenizer.chat_template"
#define NAME "chat template"
#define SYSTEM "Answer in plain words about quartz."
#define FIRST "Where do alpacas sleep at night?"
#define ANSWER "Alpacas sleep on dry straw."
#define SECOND "And where do llamas graze?"
#define MAX_FOREIGN 4

enum {
    V_SHORT,    // one question
    V_SILENT,   // the same, without the lead to an answer
    V_LONG,     // system, question, answer, question
    V_TOOLS,    // the same with a tool
    V_THINKING, // one question, thinking on
    V_PLAIN,    // off
    N_VARIANTS
};

struct chat {
    struct lp_token_exam *x;
    struct lp_jinja *jinja;
    struct lp_bytes out[N_VARIANTS];
    bool done[N_VARIANTS], no_system;
    char foreign[MAX_FOREIGN][64];
    int32_t n_foreign, n_markers, n_checks, n_wrong;
};

static void accuse(struct chat *c, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void accuse(struct chat *c, const char *what, const char *format, ...) {
    char text[800];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->n_wrong++;
    lp_report_fault(c->x->exam->report, LP_STAGE_TOKENS, NAME, -1, what, "%s", text);
}

// ---- rendering ----

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"find_pasture\",\"description\":\"Finds a "
    "pasture.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"animal\":{\"type\":"
    "\"string\","
    "\"description\":\"Which animal\"}},\"required\":[\"animal\"]}}}]";

static json_t *messages_of(const struct chat *c, int variant) {
    if (variant != V_LONG && variant != V_TOOLS)
        return json_pack("[{s:s,s:s}]", "role", "user", "content", SECOND);
    if (c->no_system)
        return json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content", FIRST,
                         "role", "assistant", "content", ANSWER, "role", "user", "content", SECOND);
    return json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "system", "content",
                     SYSTEM, "role", "user", "content", FIRST, "role", "assistant", "content",
                     ANSWER, "role", "user", "content", SECOND);
}

static lp_status render(struct chat *c, int variant, struct lp_err *err) {
    const struct lp_tokenizer *tok = c->x->tok;
    json_t *messages = messages_of(c, variant);
    json_t *tools = variant == V_TOOLS ? json_loads(tools_json, 0, NULL) : NULL;
    json_t *kwargs = variant == V_THINKING || variant == V_PLAIN
                         ? json_pack("{s:b}", "enable_thinking", variant == V_THINKING)
                         : NULL;
    struct lp_chat_params params = {
        .messages = messages,
        .tools = tools,
        .kwargs = kwargs,
        .add_generation_prompt = variant != V_SILENT,
        .bos_token = lp_tokenizer_token(tok, lp_tokenizer_bos(tok)),
        .eos_token = lp_tokenizer_token(tok, lp_tokenizer_eos(tok)),
    };
    lp_bytes_clear(&c->out[variant]);
    lp_status status = messages ? lp_chat_render(c->jinja, &params, &c->out[variant], err)
                                : lp_err_memory(err, 512, "a conversation");
    c->done[variant] = !status;
    json_decref(messages);
    json_decref(tools);
    json_decref(kwargs);
    return status;
}

// One question fails. Templates of their own for tools need tools, some need a system message.
static lp_status cannot_write(struct chat *c, const struct lp_err *first, struct lp_err *err) {
    struct lp_err why = {0};
    for (int v = V_LONG; v <= V_TOOLS; v++) {
        lp_status status = first->status == LP_STATUS_LIMIT ? LP_STATUS_LIMIT : render(c, v, &why);
        if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
        if (status) continue;
        lp_report_say(c->x->exam->report, LP_STAGE_TOKENS, LP_CHECK_NOTE, NAME,
                      "the template writes only conversations with %s: %s",
                      v == V_LONG ? "a system message" : "tools", first->text);
        return LP_OK;
    }
    accuse(c, KEY,
           "The chat template cannot write a conversation of one question: %s. Take the template "
           "of the model's own repository.",
           first->text);
    return LP_OK;
}

// Of the variants only one question must work; what else fails is said.
static lp_status render_all(struct chat *c, struct lp_err *err) {
    struct lp_err why = {0};
    lp_status status = render(c, V_SHORT, &why);
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (status) return cannot_write(c, &why, err);
    for (int v = V_SILENT; v < N_VARIANTS; v++) {
        status = render(c, v, &why);
        if (status == LP_STATUS_INVALID && v == V_LONG) { // some take no system message
            c->no_system = true;
            status = render(c, v, &why);
        }
        if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
        if (status)
            lp_report_say(c->x->exam->report, LP_STAGE_TOKENS, LP_CHECK_NOTE, NAME,
                          "the template does not write %s: %s",
                          v == V_TOOLS  ? "tools"
                          : v == V_LONG ? "a conversation of several turns"
                                        : "one of its variants",
                          why.text);
    }
    return LP_OK;
}

// ---- markers ----

#define BAR "\xEF\xBD\x9C"

// A marker that begins at text[at]: its length, or 0.
static size_t marker_at(struct lp_str text, size_t at) {
    static const char *const words[] = {"[gMASK]", "<sop>", "[INST]", "[/INST]", "<eop>"};
    struct lp_str rest = {text.data + at, text.len - at};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (rest.len >= strlen(words[i]) && memcmp(rest.data, words[i], strlen(words[i])) == 0)
            return strlen(words[i]);
    bool plain = rest.len > 2 && memcmp(rest.data, "<|", 2) == 0;
    bool wide = rest.len > 4 && memcmp(rest.data, "<" BAR, 4) == 0;
    const char *end = plain ? "|>" : BAR ">";
    size_t n_end = strlen(end), begin = plain ? 2 : 4;
    if (!plain && !wide) return 0;
    for (size_t i = begin; i + n_end <= rest.len && i < 60; i++) {
        if (memcmp(rest.data + i, end, n_end) == 0) return i > begin ? i + n_end : 0;
        char ch = rest.data[i];
        if (ch == '<' || ch == '>' || ch == ' ' || ch == '\n' || ch == '|') return 0;
    }
    return 0;
}

static void note_foreign(struct chat *c, struct lp_str marker) {
    for (int32_t i = 0; i < c->n_foreign && i < MAX_FOREIGN; i++)
        if (lp_str_is(marker, c->foreign[i])) return;
    if (c->n_foreign < MAX_FOREIGN)
        snprintf(c->foreign[c->n_foreign], sizeof c->foreign[0], "%.*s", (int)marker.len,
                 marker.data);
    c->n_foreign++;
}

static void check_markers(struct chat *c) {
    char list[4 * 66] = "";
    for (int v = 0; v < N_VARIANTS; v++) {
        struct lp_str text = lp_bytes_view(&c->out[v]);
        for (size_t at = 0; c->done[v] && at < text.len; at++) {
            size_t n = marker_at(text, at);
            if (!n) continue;
            struct lp_str marker = {text.data + at, n};
            c->n_markers++;
            if (lp_tokenizer_find(c->x->tok, marker) < 0) note_foreign(c, marker);
            at += n - 1;
        }
    }
    c->n_checks++;
    if (!c->n_foreign) return;
    for (int32_t i = 0; i < c->n_foreign && i < MAX_FOREIGN; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                 c->foreign[i]);
    accuse(c, KEY,
           "The chat template writes %s%s, no token%s of this vocabulary%s%s: it is another "
           "model's template, or tokens are missing. The model sees markers as letters. Take the "
           "template of the model's own repository.",
           list, c->n_foreign > MAX_FOREIGN ? " and others" : "", c->n_foreign > 1 ? "s" : "",
           c->x->family ? ", which is that of " : "", c->x->family ? c->x->family->name : "");
}

// ---- what it begins with ----

static lp_status check_prefix(struct chat *c, struct lp_err *err) {
    const struct lp_tokenizer *tok = c->x->tok;
    struct lp_token_list list = {0};
    const char *const *prefix = c->x->family ? c->x->family->prefix : NULL;
    int32_t bos = lp_tokenizer_bos(tok);
    lp_status status =
        lp_token_encode(c->x, lp_bytes_view(&c->out[V_SHORT]), LP_ENCODE_SPECIAL, &list, err);
    c->n_checks++;
    bool right = true;
    for (size_t i = 0; prefix && i < 3 && prefix[i] && !status; i++)
        right =
            right && i < list.n && list.ids[i] == lp_tokenizer_find(tok, lp_str_from(prefix[i]));
    if (!right && !c->x->wrong_types)
        accuse(c, KEY,
               "The chat template does not begin a prompt with %s%s, with which all texts of %s "
               "began in training. Take the template of the model's own repository.",
               prefix[0], prefix[1] ? prefix[1] : "", c->x->family->name);
    else if (bos >= 0 && list.n > 1 && list.ids[0] == bos && list.ids[1] == bos)
        accuse(c, KEY, "The chat template writes the beginning of a text, %.*s, twice.",
               LP_STR_ARGS(lp_tokenizer_token(tok, bos)));
    else if (!status && !prefix && lp_tokenizer_adds_bos(tok) && (!list.n || list.ids[0] != bos))
        lp_report_say(c->x->exam->report, LP_STAGE_TOKENS, LP_CHECK_NOTE, NAME,
                      "the vocabulary begins texts with %.*s, the template does not write it",
                      LP_STR_ARGS(lp_tokenizer_token(tok, bos)));
    lp_free(list.ids);
    return status;
}

// ---- who speaks, who answers, what ends ----

static const char *find(const struct chat *c, int variant, const char *words) {
    struct lp_str text = lp_bytes_view(&c->out[variant]);
    return c->done[variant] ? memmem(text.data, text.len, words, strlen(words)) : NULL;
}

// What the template writes between two speakers' words; empty if they are not in that order.
static struct lp_str between(const struct chat *c, const char *first, const char *then) {
    const char *a = find(c, V_LONG, first), *b = find(c, V_LONG, then);
    if (!a || !b || a + strlen(first) > b) return (struct lp_str){"", 0};
    return (struct lp_str){a + strlen(first), (size_t)(b - a) - strlen(first)};
}

static void check_words(struct chat *c) {
    const char *const words[] = {SYSTEM, FIRST, ANSWER, SECOND};
    c->n_checks++;
    for (int i = c->no_system ? 1 : 0; i < 4 && c->done[V_LONG]; i++) {
        if (find(c, V_LONG, words[i])) continue;
        if (i == 1 || i == 3) {
            accuse(c, KEY,
                   "The chat template leaves out what the user says. Take the template of the "
                   "model's own repository.");
            return;
        }
        lp_report_say(c->x->exam->report, LP_STAGE_TOKENS, LP_CHECK_NOTE, NAME,
                      "the template leaves out what the %s says",
                      i == 0 ? "system message" : "assistant");
    }
    if (!c->done[V_LONG] || !find(c, V_LONG, ANSWER)) return;
    struct lp_str user = between(c, ANSWER, SECOND), answer = between(c, FIRST, ANSWER);
    const char *assistant = c->x->family ? c->x->family->assistant : NULL;
    bool swapped =
        assistant && user.len && memmem(user.data, user.len, assistant, strlen(assistant));
    if (swapped || (user.len && lp_str_equal(user, answer)))
        accuse(c, KEY,
               "The chat template writes the user's words %s: the model cannot tell who speaks. "
               "Take the template of the model's own repository.",
               swapped ? "behind the assistant's marker" : "behind the same marker as the answers");
}

static void check_lead(struct chat *c) {
    const char *assistant = c->x->family ? c->x->family->assistant : NULL;
    const char *last = find(c, V_SHORT, SECOND), *history = find(c, V_LONG, ANSWER);
    c->n_checks++;
    if (!assistant || !last || !history) return;
    struct lp_str text = lp_bytes_view(&c->out[V_SHORT]), all = lp_bytes_view(&c->out[V_LONG]);
    size_t n_rest = text.len - (size_t)(last - text.data);
    // only of a template that writes answers that way
    if (!memmem(all.data, (size_t)(history - all.data), assistant, strlen(assistant))) return;
    if (memmem(last, n_rest, assistant, strlen(assistant))) return;
    accuse(c, KEY,
           "The chat template does not lead to an answer: %s does not follow the last question "
           "when a generation prompt is asked for, so the model goes on as the user. Take the "
           "template of the model's own repository.",
           assistant);
}

// The token that the template puts behind an answer must be one that ends answers.
static lp_status check_end(struct chat *c, struct lp_err *err) {
    struct lp_str text = lp_bytes_view(&c->out[V_LONG]);
    const char *answer = find(c, V_LONG, ANSWER);
    struct lp_token_list list = {0};
    c->n_checks++;
    if (!answer) return LP_OK;
    size_t at = (size_t)(answer - text.data) + strlen(ANSWER);
    while (at < text.len && (text.data[at] == ' ' || text.data[at] == '\n')) at++;
    size_t n = at < text.len ? marker_at(text, at) : 0;
    lp_status status = LP_OK;
    if (n) {
        status = lp_token_encode(c->x, (struct lp_str){text.data + at, n}, LP_ENCODE_SPECIAL, &list,
                                 err);
        if (!status && list.n == 1 && !lp_tokenizer_is_stop(c->x->tok, list.ids[0]) &&
            !c->x->wrong_pre) {
            char what[64];
            snprintf(what, sizeof what, "%.*s", (int)n, text.data + at);
            accuse(
                c, what,
                "The chat template ends answers with %s (token %d), but no key of the file makes "
                "it an end: answers run on. Set tokenizer.ggml.eot_token_id to %d.",
                what, list.ids[0], list.ids[0]);
        }
    }
    lp_free(list.ids);
    return status;
}

// ---- the check ----

static lp_status examine(struct chat *c, struct lp_err *err) {
    lp_status status = render_all(c, err);
    if (status || !c->done[V_SHORT]) return status;
    check_markers(c);
    if (c->n_foreign) return LP_OK; // what follows would follow
    status = check_prefix(c, err);
    check_words(c);
    if (c->n_wrong) return status;
    check_lead(c);
    return status ? status : check_end(c, err);
}

static void conclude(struct chat *c) {
    bool thinks =
        c->done[V_THINKING] && c->done[V_PLAIN] &&
        !lp_str_equal(lp_bytes_view(&c->out[V_THINKING]), lp_bytes_view(&c->out[V_PLAIN]));
    bool tools = find(c, V_TOOLS, "find_pasture") != NULL;
    char figure[64];
    snprintf(figure, sizeof figure, "%d of %d markers", c->n_markers - c->n_foreign, c->n_markers);
    struct lp_check_note note = {.stage = LP_STAGE_TOKENS,
                                 .outcome = c->n_wrong ? LP_CHECK_FAULT : LP_CHECK_OK,
                                 .name = NAME,
                                 .figure = c->n_foreign ? "foreign markers" : figure,
                                 .bound = "all tokens",
                                 .value = c->n_foreign,
                                 .limit = 0};
    lp_report_check(c->x->exam->report, &note,
                    "markers that are tokens of the vocabulary, in a conversation written %d ways; "
                    "%s, %s",
                    N_VARIANTS, tools ? "with tools" : "tools are not written",
                    thinks ? "thinking can be switched" : "no switch for thinking");
}

lp_status lp_check_template(struct lp_token_exam *x, struct lp_err *err) {
    struct chat c = {.x = x};
    struct lp_err why = {0};
    const struct lp_gguf_kv *kv = lp_gguf_find(x->exam->gguf, KEY);
    struct lp_report *r = x->exam->report;
    if (!kv || kv->type != LP_GGUF_STRING) {
        lp_report_say(
            r, LP_STAGE_TOKENS, LP_CHECK_NOTE, NAME,
            x->family && x->family->assistant
                ? "the file has no chat template, though its vocabulary is one for chats: "
                  "conversations cannot be asked of it"
                : "the file has no chat template");
        return LP_OK;
    }
    lp_status status = lp_jinja_parse(&c.jinja, kv->strings[0], &why);
    if (status == LP_STATUS_MEMORY) return lp_err_set(err, status, "%s", why.text);
    if (status == LP_STATUS_UNSUPPORTED) {
        lp_report_say(r, LP_STAGE_TOKENS, LP_CHECK_NOTE, NAME,
                      "limpid does not take this template: %s", why.text);
        return LP_OK;
    }
    if (status)
        accuse(&c, KEY,
               "The chat template cannot be read: %s. Take the template of the model's "
               "own repository.",
               why.text);
    else
        status = examine(&c, err);
    if (status != LP_STATUS_MEMORY) status = LP_OK;
    conclude(&c);
    lp_jinja_free(c.jinja);
    for (int v = 0; v < N_VARIANTS; v++) lp_bytes_release(&c.out[v]);
    return status;
}
