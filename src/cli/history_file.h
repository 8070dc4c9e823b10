// What was typed in earlier conversations: a file with one JSON string a line, newest last. Entries
// are appended one by one, so that several programs may use the file and none loses what another
// wrote. Private to its owner.
#ifndef LP_CLI_HISTORY_FILE_H
#define LP_CLI_HISTORY_FILE_H

#include <stdbool.h>

// $XDG_STATE_HOME/limpid/history or ~/.local/state/limpid/history, from lp_alloc; its folders are
// made. NULL: there is no such place.
char *lp_history_path(void);

// Gives the newest `most` entries to `add`, oldest first; a file that has grown far beyond that is
// written anew. A missing or damaged file, or a damaged line, is no error: there is less then.
void lp_history_load(const char *path, int most, void (*add)(void *user, const char *text),
                     void *user);
// False if it was not written; a very long text never is.
bool lp_history_append(const char *path, const char *text);

#endif
