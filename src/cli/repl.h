// A conversation: at a terminal with editing, commands and interrupts; from a pipe one message a
// line and nothing but answers on standard output.
#ifndef LP_CLI_REPL_H
#define LP_CLI_REPL_H

#include "cli/dialogue.h"
#include "cli/generator.h"

enum lp_thinking { LP_THINK_DEFAULT, LP_THINK_ON, LP_THINK_OFF }; // DEFAULT: the template's choice

struct lp_repl {
    struct lp_generator *generator;
    struct lp_dialogue dialogue;
    enum lp_thinking thinking;
    char *path;    // where the conversation was saved or loaded last, or NULL
    bool terminal; // a person is there
    bool ended;    // by /exit
};

// `system` may be NULL. Each returns the exit status, messages printed.
int lp_repl_run(struct lp_generator *g, const char *system, enum lp_thinking thinking);
// One message, one answer.
int lp_repl_ask(struct lp_generator *g, const char *system, enum lp_thinking thinking,
                const char *message);

// Answers the dialogue as it is, and adds the answer. At a terminal a turn that failed, or was
// interrupted before anything came, is taken back.
int lp_repl_answer(struct lp_repl *repl);
// The dialogue as the model gets it; free with limpid_free.
limpid_status lp_repl_render(const struct lp_repl *repl, char **prompt, size_t *n_bytes,
                             limpid_error *err);

// ---- repl_commands.c ----

// A line that begins with '/'. Prints on standard error.
void lp_repl_command(struct lp_repl *repl, const char *line);

#endif
