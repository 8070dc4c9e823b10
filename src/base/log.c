#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static enum lp_log_level current = LP_LOG_WARN;
static lp_log_sink current_sink;
static void *sink_user;

void lp_log_set_level(enum lp_log_level level) {
    current = level;
}

void lp_log_set_sink(lp_log_sink sink, void *user) {
    current_sink = sink;
    sink_user = user;
}

bool lp_log_level_parse(const char *name, enum lp_log_level *out) {
    for (int i = 0; i < 4; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum lp_log_level)i;
            return true;
        }
    return false;
}

bool lp_log_enabled(enum lp_log_level level) {
    return level <= current;
}

void lp_log(enum lp_log_level level, const char *format, ...) {
    if (!lp_log_enabled(level)) return;
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    if (current_sink)
        current_sink(sink_user, level, line);
    else
        fprintf(stderr, "limpid: %s: %s\n", level_names[level], line);
}
