// A line typed at a terminal, with editing and history (libedit). What is pasted arrives as one
// text, whatever its lines; Alt-Enter begins a new line.
//
// Signals are cli/interrupt.h's, which must watch while a line is read.
#ifndef LP_CLI_LINE_EDITOR_H
#define LP_CLI_LINE_EDITOR_H

#include <stdio.h>

#include "base/status.h"

struct lp_editor;

// `to`: the terminal that shows what is typed. history_path: cli/history_file.h's, copied; NULL:
// nothing is kept beyond this program. Errors: MEMORY, IO (no terminal).
lp_status lp_editor_new(struct lp_editor **out, FILE *to, const char *history_path,
                        struct lp_err *err);
void lp_editor_free(struct lp_editor *editor); // NULL is allowed

enum lp_typed { LP_TYPED_LINE, LP_TYPED_INTERRUPT, LP_TYPED_END };

// Waits for a line. *line: without the line end behind it (there may be some inside), valid until
// the next call. INTERRUPT: Ctrl-C; *line is "" if nothing had been typed, or what had been. END:
// Ctrl-D at the beginning, or the terminal is gone.
enum lp_typed lp_editor_read(struct lp_editor *editor, const char *prompt, const char **line);

// Puts a text into the history, and into its file.
void lp_editor_remember(struct lp_editor *editor, const char *text);

#endif
