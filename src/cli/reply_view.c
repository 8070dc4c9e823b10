// Pieces of text/reply.h to a stream. No tools are offered, so what looks like a tool call is
// content, as it was written.
#include "cli/reply_view.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIM "\033[2m"
#define NORMAL "\033[0m"

// A terminal that is not "dumb", and NO_COLOR is not set.
static bool may_dim(FILE *to) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(fileno(to)) == 1 && !(no_color && *no_color) && terminal && *terminal &&
           strcmp(terminal, "dumb") != 0;
}

static bool is_control(const unsigned char *c, size_t n) {
    bool c1 = n > 1 && c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
    return (c[0] < 0x20 && c[0] != '\n' && c[0] != '\t') || c[0] == 0x7f || c1;
}

static void print(const struct lp_reply_view *view, const char *text, size_t n) {
    const unsigned char *c = (const unsigned char *)text;
    if (!view->terminal) {
        fwrite(text, 1, n, view->to);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        bool control = is_control(c + i, n - i);
        fputc(control ? '?' : c[i], view->to);
        if (control && c[i] == 0xc2) i++;
    }
}

// White space before a part is the space between tags and text.
static void print_part(struct lp_reply_view *view, const struct lp_reply_piece *piece) {
    bool reasoning = piece->kind == LP_REPLY_REASONING;
    struct lp_str text = piece->text;
    if (!reasoning && view->is_dim) view->started = false;
    while (!view->started && text.len && strchr(" \t\r\n", text.data[0])) {
        text.data++;
        text.len--;
    }
    if (!text.len) return;
    if (reasoning && !view->is_dim) fputs(DIM, view->to);
    if (!reasoning && view->is_dim) fputs(NORMAL "\n", view->to);
    view->is_dim = reasoning;
    view->started = true;
    print(view, text.data, text.len);
}

static bool take_piece(void *user, const struct lp_reply_piece *piece) {
    struct lp_reply_view *view = user;
    bool reasoning = piece->kind == LP_REPLY_REASONING;
    if (!reasoning && piece->kind != LP_REPLY_CONTENT) return true;
    if (view->dims) print_part(view, piece);
    return lp_bytes_append(reasoning ? &view->reasoning : &view->content, piece->text.data,
                           piece->text.len);
}

lp_status lp_reply_view_init(struct lp_reply_view *view, const limpid_model *model,
                             bool in_reasoning, FILE *to, struct lp_err *err) {
    *view =
        (struct lp_reply_view){.to = to, .dims = may_dim(to), .terminal = isatty(fileno(to)) == 1};
    struct lp_reply_params params = {.syntax = lp_reply_detect(limpid_model_chat_template(model)),
                                     .in_reasoning = in_reasoning,
                                     .sink = take_piece,
                                     .user = view};
    return lp_reply_new(&view->reply, &params, err);
}

bool lp_reply_view_push(void *user, const char *text, size_t n_bytes) {
    struct lp_reply_view *view = user;
    if (!view->dims) print(view, text, n_bytes);
    if (!lp_reply_push(view->reply, (struct lp_str){text, n_bytes})) view->failed = true;
    fflush(view->to);
    return !view->failed && !ferror(view->to);
}

bool lp_reply_view_finish(struct lp_reply_view *view) {
    if (!lp_reply_finish(view->reply)) view->failed = true;
    if (view->is_dim) fputs(NORMAL, view->to);
    view->is_dim = false;
    return !view->failed && !ferror(view->to);
}

void lp_reply_view_release(struct lp_reply_view *view) {
    lp_reply_free(view->reply);
    lp_bytes_release(&view->reasoning);
    lp_bytes_release(&view->content);
}
