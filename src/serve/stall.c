#include "serve/stall.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static bool write_all(int fd, const char *text, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t wrote = write(fd, text + done, n - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        done += (size_t)wrote;
    }
    return true;
}

// Prompts and answers are in it: for its owner alone.
static bool write_file(const char *name, const char *text, size_t n) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool ok = write_all(fd, text, n);
    int saved = errno;
    if (close(fd) && ok) return false;
    errno = saved;
    return ok;
}

static void *dump(void *user) {
    const struct lp_stall_dump *d = user;
    char name[64], folder[PATH_MAX] = "", *text = NULL;
    size_t n;
    limpid_error err;
    snprintf(name, sizeof name, "limpid-stall-%ld.jsonl", (long)getpid());
    if (!getcwd(folder, sizeof folder)) folder[0] = 0;
    if (limpid_engine_trace(d->engine, NULL, &text, &n, &err))
        lp_log(LP_LOG_ERROR, "what the engine did last could not be read: %s", err.text);
    else if (!write_file(name, text, n))
        lp_log(LP_LOG_ERROR, "what the engine did last could not be written to %s/%s: %s", folder,
               name, strerror(errno));
    else
        lp_log(LP_LOG_ERROR,
               "what the engine did last is in %s/%s (limpid trace %s reads it); the server has to "
               "be started again unless the engine goes on by itself",
               folder, name, name);
    limpid_free(text);
    return NULL;
}

void lp_stall_dump_begin(struct lp_stall_dump *d, const limpid_engine *engine) {
    if (atomic_exchange(&d->begun, true)) return;
    d->engine = engine;
    d->has_thread = pthread_create(&d->thread, NULL, dump, d) == 0;
    if (!d->has_thread) lp_log(LP_LOG_ERROR, "no thread to write what the engine did last");
}

void lp_stall_dump_end(struct lp_stall_dump *d) {
    if (d->has_thread) pthread_join(d->thread, NULL);
    d->has_thread = false;
}
