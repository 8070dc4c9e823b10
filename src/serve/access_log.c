#include "serve/access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "serve/json_out.h"

struct lp_access_log {
    int fd;
    bool is_stderr;
    atomic_bool failed; // has been reported
};

lp_status lp_access_log_open(struct lp_access_log **out, const char *path, struct lp_err *err) {
    struct lp_access_log *log = lp_alloc(1, sizeof *log);
    if (!log) return lp_err_memory(err, sizeof *log, "the access log");
    log->is_stderr = strcmp(path, "-") == 0;
    log->fd = log->is_stderr ? STDERR_FILENO
                             : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (log->fd < 0) {
        lp_status status = lp_err_set(err, LP_STATUS_IO, "cannot open the access log '%s': %s",
                                      path, strerror(errno));
        lp_free(log);
        return status;
    }
    *out = log;
    return LP_OK;
}

void lp_access_log_close(struct lp_access_log *log) {
    if (!log) return;
    if (!log->is_stderr) close(log->fd);
    lp_free(log);
}

static double ms_between(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? (double)((to_ns - from_ns) / 1000) / 1000 : 0;
}

static json_t *generation_json(const struct lp_access *a) {
    if (!a->generates)
        return json_pack("{s:n, s:n, s:n, s:n, s:n, s:n}", "stream", "prompt_tokens",
                         "cached_tokens", "completion_tokens", "finish", "ttft_ms");
    json_t *ttft =
        a->first_token_ns ? json_real(ms_between(a->began_ns, a->first_token_ns)) : json_null();
    return json_pack("{s:b, s:I, s:I, s:I, s:s?, s:o}", "stream", a->stream, "prompt_tokens",
                     (json_int_t)a->prompt_tokens, "cached_tokens", (json_int_t)a->cached_tokens,
                     "completion_tokens", (json_int_t)a->completion_tokens, "finish", a->finish,
                     "ttft_ms", ttft);
}

bool lp_access_log_line(struct lp_bytes *out, const struct lp_access *a, int64_t unix_ms) {
    char when[64];
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(when + n, sizeof when - n, ".%03dZ", (int)(unix_ms % 1000));
    json_t *line = json_pack(
        "{s:s, s:o, s:s, s:o, s:o, s:i, s:f}", "time", when, "request_id",
        lp_json_text(lp_str_from(a->id)), "client", a->client, "method",
        lp_json_text(lp_str_from(a->method)), "path", lp_json_text(lp_str_from(a->path)), "status",
        a->status ? a->status : 499, "duration_ms", ms_between(a->began_ns, a->end_ns));
    json_t *generation = generation_json(a);
    bool ok = line && generation && json_object_update(line, generation) == 0 &&
              lp_json_dump(out, line) && lp_bytes_puts(out, "\n");
    json_decref(line);
    json_decref(generation);
    return ok;
}

void lp_access_log_write(struct lp_access_log *log, const struct lp_access *a) {
    if (!log) return;
    struct lp_bytes line = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t unix_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 -
                      (int64_t)((lp_clock_ns() - a->began_ns) / 1000000);
    bool ok = lp_access_log_line(&line, a, unix_ms) &&
              write(log->fd, line.data, line.len) == (ssize_t)line.len; // one write: whole lines
    if (!ok && !atomic_exchange(&log->failed, true))
        lp_log(LP_LOG_WARN, "a line of the access log could not be written: %s", strerror(errno));
    lp_bytes_release(&line);
}
