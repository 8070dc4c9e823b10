// A word as a shell must be given it, so that a printed command can be copied as it stands.
#ifndef LP_CLI_SHELL_QUOTE_H
#define LP_CLI_SHELL_QUOTE_H

#include "base/bytes.h"

// Appends the word: as it is where no shell would mind, in '...' otherwise, and as $'...' (bash,
// zsh, ksh) where it holds control bytes, which then cannot reach the terminal either.
void lp_shell_quote(struct lp_bytes *out, const char *word);
// The same for a path: one that begins with '-' gets "./" in front, or it would be an option.
void lp_shell_quote_path(struct lp_bytes *out, const char *path);

#endif
