// A name that is no file here but may be a model elsewhere: an address, or ORG/NAME of a hub.
// limpid downloads nothing itself; it says what does.
#ifndef LP_CLI_REMOTE_NAME_H
#define LP_CLI_REMOTE_NAME_H

#include "cli/next_command.h"

// Appends what to do to get it and to run the command with it. False, with nothing appended, if the
// name is nothing of the kind.
bool lp_remote_advice(struct lp_bytes *text, const char *name, const struct lp_model_wish *wish);

#endif
