#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clean.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static enum lp_log_level current = LP_LOG_WARN;
static _Thread_local bool is_muted;
static int own_rank = -1;

void lp_log_set_rank(int rank) {
    own_rank = rank;
}

void lp_log_set_level(enum lp_log_level level) {
    current = level;
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
    return level <= current && !is_muted;
}

void lp_log_mute(bool muted) {
    is_muted = muted;
}

void lp_log(enum lp_log_level level, const char *format, ...) {
    if (!lp_log_enabled(level)) return;
    char raw[2048], line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    lp_clean_text(line, sizeof line, lp_str_from(raw));
    if (own_rank >= 0)
        fprintf(stderr, "limpid: rank %d: %s: %s\n", own_rank, level_names[level], line);
    else
        fprintf(stderr, "limpid: %s: %s\n", level_names[level], line);
}
