// From what stands on the command line to the file or folder that is opened: a file, a Hugging Face
// folder (or its config.json), a folder with one model in it, or nothing at all. Everything else is
// a mistake, and its message ends with the command that comes next.
#ifndef LP_CLI_FIND_MODEL_H
#define LP_CLI_FIND_MODEL_H

#include "cli/next_command.h"

// *path: free with lp_free. Otherwise prints what is wrong and returns LP_EXIT_FAILURE, or
// LP_EXIT_USAGE where a folder holds several models. Says on standard error what it chose.
int lp_find_model(char **path, const char *given, const struct lp_command *command);
// The same for a command that needs more than a model to run, or a model of some kind. Where the
// kind is not ANY, a folder with a config.json is itself the model, whatever else is in it; a file
// is taken whatever the kind.
int lp_find_model_for(char **path, const struct lp_model_wish *wish);

// The model that comes with limpid, where none was named. `doing`: "serving", "running".
int lp_find_builtin(char **path, const struct lp_command *command, const char *doing);

#endif
