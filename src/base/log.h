// Log lines on standard error: level, then one sentence.
#ifndef LP_BASE_LOG_H
#define LP_BASE_LOG_H

#include <stdbool.h>

enum lp_log_level { LP_LOG_ERROR, LP_LOG_WARN, LP_LOG_INFO, LP_LOG_DEBUG };

// Process-wide settings of the program; set before threads start. Default: WARN.
void lp_log_set_level(enum lp_log_level level);
bool lp_log_level_parse(const char *name, enum lp_log_level *out); // "error" ... "debug"
bool lp_log_enabled(enum lp_log_level level);

// While muted, what the calling thread says is dropped: for a look ahead at what is done again
// afterwards, and then tells its warnings.
void lp_log_mute(bool muted);

// From now on lines say that they are this rank's (-1: none), of several processes that write to one place.
void lp_log_set_rank(int rank);

void lp_log(enum lp_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
