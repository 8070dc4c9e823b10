// The command that a message about a model ends with: the user's own line with another word where
// the model was named, so that it can be copied and run.
#ifndef LP_CLI_NEXT_COMMAND_H
#define LP_CLI_NEXT_COMMAND_H

#include "base/bytes.h"
#include "cli/args.h"

enum lp_model_kind {
    LP_MODEL_ANY,
    LP_MODEL_PRECISE, // of any kind, but quantised weights would be a poor source
    LP_MODEL_FOLDER   // a Hugging Face folder
};

// A command that is looking for its model.
struct lp_model_wish {
    const struct lp_command *command;
    const char *given; // one of argv's, the very pointer, where there is an argv
    int argc;
    char *const *argv; // [argc] of the command; NULL: the line is the command and the model alone
    enum lp_model_kind kind;
};

// Appends "\n    limpid COMMAND ..." with the path, quoted for a shell, in place of what was given.
void lp_next_command_add(struct lp_bytes *text, const struct lp_model_wish *wish, const char *path);
// The same with FILE.gguf or FOLDER, for the user to fill in.
void lp_next_command_add_open(struct lp_bytes *text, const struct lp_model_wish *wish);

#endif
