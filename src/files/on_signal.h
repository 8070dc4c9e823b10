// What is done when a signal ends the program: files to remove, a sentence to print. For SIGINT,
// SIGTERM and SIGHUP where they have their default action, which then takes place.
//
// Process-wide, as signals are; handlers are set while something is added.
#ifndef LP_FILES_ON_SIGNAL_H
#define LP_FILES_ON_SIGNAL_H

struct lp_on_signal {
    const char *remove[2]; // or NULL
    const char *note;      // for standard error, or NULL
};

// `what` and its texts stay as they are until dropped. Any thread. Returns a slot, or -1 where all
// are taken: then nothing is done.
int lp_on_signal_add(const struct lp_on_signal *what);
void lp_on_signal_drop(int slot); // -1 is allowed

#endif
