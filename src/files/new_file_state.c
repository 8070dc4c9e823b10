// The state file beside a partial file: five lines of fixed width, then the job.
//
//   limpid partial file 1
//   synced  00000000001073741824
//   written 00000000001207959552
//   inode   00000000000000131077
//   boot    4f0d3c1e-....
//   JOB
//
// The lines are written in one piece, in place.
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "files/new_file_parts.h"

#define FIRST_LINE "limpid partial file 1\n"
#define HEAD_BYTES (sizeof FIRST_LINE - 1 + 3 * 29 + 45)
#define MOST_BYTES (1u << 20)

void lp_new_file_boot(char boot[LP_BOOT_BYTES]) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, LP_BOOT_BYTES - 1);
    if (fd >= 0) close(fd);
    boot[n == LP_BOOT_BYTES - 1 ? n : 0] = 0;
}

static void print_head(char head[HEAD_BYTES + 1], const struct lp_new_file_state *s) {
    snprintf(head, HEAD_BYTES + 1,
             FIRST_LINE "synced  %020" PRIu64 "\nwritten %020" PRIu64 "\ninode   %020" PRIu64
                        "\nboot    %-36.36s\n",
             s->synced, s->written, s->inode, s->boot);
}

enum lp_state_found lp_new_file_state_read(struct lp_new_file_state *s, const char *path,
                                           const char *job) {
    char *text, again[HEAD_BYTES + 1];
    size_t n;
    *s = (struct lp_new_file_state){0};
    if (lp_file_read(path, MOST_BYTES, &text, &n, NULL)) return LP_STATE_NONE;
    enum lp_state_found found = LP_STATE_NONE;
    if (n >= HEAD_BYTES && sscanf(text + sizeof FIRST_LINE - 1,
                                  "synced %20" SCNu64 " written %20" SCNu64 " inode %20" SCNu64,
                                  &s->synced, &s->written, &s->inode) == 3) {
        size_t boot = LP_BOOT_BYTES - 1;
        memcpy(s->boot, text + HEAD_BYTES - 1 - boot, boot);
        while (boot > 0 && s->boot[boot - 1] == ' ') boot--;
        s->boot[boot] = 0;
        print_head(again, s); // all that was not read must be as it is written
        if (memcmp(text, again, HEAD_BYTES) == 0 && s->synced <= s->written)
            found = job && strlen(job) == n - HEAD_BYTES &&
                            memcmp(text + HEAD_BYTES, job, n - HEAD_BYTES) == 0
                        ? LP_STATE_SAME
                        : LP_STATE_OTHER;
    }
    lp_free(text);
    return found;
}

bool lp_new_file_state_put(int fd, const struct lp_new_file_state *state) {
    char head[HEAD_BYTES + 1];
    print_head(head, state);
    return pwrite(fd, head, HEAD_BYTES, 0) == (ssize_t)HEAD_BYTES;
}

bool lp_new_file_state_open(int *fd, const char *path, const char *job, bool go_on) {
    static const struct lp_new_file_state nothing;
    int flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (go_on ? 0 : O_CREAT | O_TRUNC);
    *fd = open(path, flags, 0666);
    if (*fd < 0 || go_on) return *fd >= 0;
    size_t n = job ? strlen(job) : 0;
    return lp_new_file_state_put(*fd, &nothing) &&
           pwrite(*fd, job ? job : "", n, HEAD_BYTES) == (ssize_t)n;
}
