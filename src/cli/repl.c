// Read a message, answer it, again.
#include "cli/repl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/history_file.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/reply_view.h"

#define QUOTES "\"\"\""

// ---- an answer ----

limpid_status lp_repl_render(const struct lp_repl *repl, char **prompt, size_t *n_bytes,
                             limpid_error *err) {
    static const char *const options[] = {
        [LP_THINK_DEFAULT] = NULL,
        [LP_THINK_ON] = "{\"enable_thinking\": true, \"thinking\": true}",
        [LP_THINK_OFF] = "{\"enable_thinking\": false, \"thinking\": false}"};
    char *json = json_dumps(repl->dialogue.messages, 0);
    if (!json) {
        *err = (limpid_error){LIMPID_MEMORY, "out of memory: the conversation"};
        return err->status;
    }
    limpid_status status = limpid_chat_prompt(repl->generator->model, json, options[repl->thinking],
                                              prompt, n_bytes, err);
    free(json);
    return status;
}

// The markers that the parser must see, where they are control tokens.
static void show_markers(struct lp_generator *g) {
    const char *const *markers =
        lp_reply_markers(lp_reply_detect(limpid_model_chat_template(g->model)));
    g->n_shown_ids = 0;
    for (; *markers && g->n_shown_ids < LP_MAX_SHOWN; markers++) {
        int32_t id = limpid_token_find(g->model, *markers, strlen(*markers));
        if (id >= 0) g->shown_ids[g->n_shown_ids++] = id;
    }
}

// A grammar is for the answer, so it waits for the end of the reasoning.
static int hold_grammar(struct lp_generator *g, bool in_reasoning) {
    static const char tag[] = LP_REPLY_END_THINK;
    g->grammar_after = -1;
    if (!g->grammar_kind || !in_reasoning) return LP_EXIT_OK;
    g->grammar_after = limpid_token_find(g->model, tag, sizeof tag - 1);
    if (g->grammar_after >= 0) return LP_EXIT_OK;
    return lp_fail_text("the answer must match a %s, but this model's reasoning ends without a "
                        "token of its own; --no-think asks for an answer without reasoning",
                        g->grammar_kind);
}

static bool ends_in_reasoning(const char *prompt, size_t n) {
    static const char tag[] = LP_REPLY_THINK;
    const size_t n_tag = sizeof tag - 1;
    while (n > 0 && strchr(" \t\r\n", prompt[n - 1])) n--;
    return n >= n_tag && memcmp(prompt + n - n_tag, tag, n_tag) == 0;
}

// The rendered prompt to an answer in the view.
static int generate(struct lp_repl *repl, const char *prompt, size_t n_bytes,
                    struct lp_reply_view *view) {
    struct lp_err err;
    bool in_reasoning = ends_in_reasoning(prompt, n_bytes);
    if (hold_grammar(repl->generator, in_reasoning)) return LP_EXIT_FAILURE;
    if (lp_reply_view_init(view, repl->generator->model, in_reasoning, stdout, &err))
        return lp_fail_text("%s", err.text);
    int status = lp_generator_run(repl->generator, prompt, n_bytes, LIMPID_SPECIAL,
                                  lp_reply_view_push, view);
    bool shown = lp_reply_view_finish(view);
    putchar('\n');
    fflush(stdout); // who reads a pipe by lines waits for this one
    if (status || (shown && !ferror(stdout))) return status;
    return view->failed ? lp_fail_text("out of memory: the answer")
                        : lp_fail_text("cannot write to standard output: %s", strerror(errno));
}

static int keep(struct lp_repl *repl, const struct lp_reply_view *view) {
    struct lp_err err;
    struct lp_str content = lp_bytes_view(&view->content),
                  reasoning = lp_bytes_view(&view->reasoning);
    const struct lp_generator *g = repl->generator;
    if (repl->terminal && g->ending == LP_ENDED_INTERRUPT && !content.len && !reasoning.len) {
        lp_dialogue_drop_turn(&repl->dialogue);
        fprintf(stderr, "(nothing had come; the message is taken back)\n");
        return LP_EXIT_OK;
    }
    if (repl->terminal && g->ending == LP_ENDED_LENGTH)
        fprintf(stderr, "(cut after %lld tokens: max_tokens is reached or the context is full)\n",
                (long long)g->last.n_generated);
    return lp_dialogue_add_answer(&repl->dialogue, content, reasoning, &err)
               ? lp_fail_text("%s", err.text)
               : LP_EXIT_OK;
}

int lp_repl_answer(struct lp_repl *repl) {
    limpid_error err;
    struct lp_reply_view view = {0};
    char *prompt;
    size_t n_bytes;
    lp_interrupt_clear();
    int status = lp_repl_render(repl, &prompt, &n_bytes, &err) ? lp_fail(&err) : LP_EXIT_OK;
    if (!status) {
        status = generate(repl, prompt, n_bytes, &view);
        limpid_free(prompt);
        if (!status) status = keep(repl, &view);
        lp_reply_view_release(&view);
    }
    if (status && repl->terminal) {
        lp_dialogue_drop_turn(&repl->dialogue);
        fprintf(stderr, "(the message is taken back; /clear begins anew)\n");
    }
    return status;
}

static int say(struct lp_repl *repl, const char *message) {
    struct lp_err err;
    if (lp_dialogue_add_user(&repl->dialogue, message, &err)) return lp_fail_text("%s", err.text);
    return lp_repl_answer(repl);
}

// ---- a terminal ----

static bool ends_with(const struct lp_bytes *b, const char *ending) {
    size_t n = strlen(ending);
    return b->len >= n && memcmp(b->data + b->len - n, ending, n) == 0;
}

static void cut(struct lp_bytes *b, size_t n) {
    b->len -= n;
    b->data[b->len] = 0;
}

// One message of one or more lines: """ opens a block that """ closes, a backslash at the end of a
// line goes on with the next one.
static enum lp_typed read_message(struct lp_editor *editor, struct lp_bytes *message) {
    const char *line;
    bool block = false, more;
    lp_bytes_clear(message);
    enum lp_typed typed = lp_editor_read(editor, ">>> ", &line);
    if (typed == LP_TYPED_LINE && strncmp(line, QUOTES, 3) == 0) {
        block = true;
        line += 3;
    }
    do {
        if (typed != LP_TYPED_LINE || !lp_bytes_puts(message, line)) break;
        bool closed = block && ends_with(message, QUOTES);
        bool goes_on = !block && ends_with(message, "\\");
        if (closed) cut(message, 3);
        if (goes_on) cut(message, 1);
        more = block ? !closed : goes_on;
        if (!more) break;
        lp_bytes_puts(message, "\n");
        typed = lp_editor_read(editor, "... ", &line);
    } while (true);
    while (ends_with(message, "\n")) cut(message, 1);
    if (typed == LP_TYPED_INTERRUPT && *line) lp_bytes_puts(message, line);
    return typed;
}

static bool is_blank(const char *text) {
    return text[strspn(text, " \t\r\n")] == 0;
}

static void take_message(struct lp_repl *repl, struct lp_editor *editor, const char *text) {
    if (is_blank(text)) return;
    lp_editor_remember(editor, text);
    if (text[0] == '/' && !strchr(text, '\n'))
        lp_repl_command(repl, text);
    else
        say(repl, text);
}

static int talk(struct lp_repl *repl, struct lp_editor *editor) {
    struct lp_bytes message = {0};
    bool asked_to_leave = false;
    while (!repl->ended) {
        enum lp_typed typed = read_message(editor, &message);
        if (message.failed) break;
        if (typed == LP_TYPED_END) break;
        if (typed == LP_TYPED_INTERRUPT) {
            bool at_empty = !message.len;
            if (at_empty && asked_to_leave) break;
            if (at_empty) fprintf(stderr, "Ctrl-C again, Ctrl-D or /exit leaves.\n");
            asked_to_leave = at_empty;
            continue;
        }
        asked_to_leave = false;
        if (message.data) take_message(repl, editor, message.data);
    }
    int status = message.failed ? lp_fail_text("out of memory: the message") : LP_EXIT_OK;
    lp_bytes_release(&message);
    return status;
}

static int talk_at_terminal(struct lp_repl *repl, FILE *to) {
    struct lp_err err;
    struct lp_editor *editor;
    if (!lp_interrupt_watch(STDIN_FILENO))
        return lp_fail_text("cannot watch the terminal: %s", strerror(errno));
    char *history = lp_history_path();
    int status =
        lp_editor_new(&editor, to, history, &err) ? lp_fail_text("%s", err.text) : LP_EXIT_OK;
    lp_free(history);
    if (!status) {
        fprintf(stderr, "Type a message; /help lists the commands, Ctrl-C stops an answer, Ctrl-D "
                        "leaves.\n");
        status = talk(repl, editor);
        lp_editor_free(editor);
    }
    lp_interrupt_unwatch();
    return status;
}

// ---- a pipe ----

static int answer_lines(struct lp_repl *repl) {
    char *line = NULL;
    size_t capacity = 0;
    int status = LP_EXIT_OK;
    while (!status) {
        ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0) break;
        if (n > 0 && line[n - 1] == '\n') line[--n] = 0;
        if (strlen(line) != (size_t)n)
            status = lp_fail_text("the message holds a NUL byte");
        else if (strcmp(line, "/exit") == 0)
            break;
        else if (n > 0)
            status = say(repl, line);
    }
    free(line);
    return status;
}

// ---- both ----

static int init(struct lp_repl *repl, struct lp_generator *g, const char *system,
                enum lp_thinking thinking) {
    struct lp_err err;
    *repl = (struct lp_repl){.generator = g, .thinking = thinking};
    show_markers(g);
    if (lp_dialogue_init(&repl->dialogue, &err)) return lp_fail_text("%s", err.text);
    if (system && lp_dialogue_set_system(&repl->dialogue, system, &err))
        return lp_fail_text("%s", err.text);
    return LP_EXIT_OK;
}

static void release(struct lp_repl *repl) {
    lp_dialogue_release(&repl->dialogue);
    lp_free(repl->path);
}

int lp_repl_run(struct lp_generator *g, const char *system, enum lp_thinking thinking) {
    struct lp_repl repl;
    FILE *to = isatty(STDOUT_FILENO) == 1 ? stdout : isatty(STDERR_FILENO) == 1 ? stderr : NULL;
    int status = init(&repl, g, system, thinking);
    repl.terminal = isatty(STDIN_FILENO) == 1 && to;
    if (!status) status = repl.terminal ? talk_at_terminal(&repl, to) : answer_lines(&repl);
    release(&repl);
    return status;
}

int lp_repl_ask(struct lp_generator *g, const char *system, enum lp_thinking thinking,
                const char *message) {
    struct lp_repl repl;
    int status = init(&repl, g, system, thinking);
    if (!status) status = say(&repl, message);
    release(&repl);
    return status;
}
