#include "serve/request_id.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

void lp_random_id(char out[LP_RANDOM_ID_HEX + 1]) {
    unsigned char random[LP_RANDOM_ID_HEX / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        uint64_t now = lp_clock_ns();
        memset(random, 0, sizeof random);
        memcpy(random, &now, sizeof now);
    }
    for (size_t i = 0; i < sizeof random; i++) sprintf(out + 2 * i, "%02x", random[i]);
}

// Whatever it holds goes into a header and a log line.
static bool may_be_kept(const char *given) {
    size_t n = 0;
    for (; given[n]; n++)
        if (n == LP_REQUEST_ID_BYTES - 1 || given[n] < '!' || given[n] > '~') return false;
    return n > 0;
}

void lp_request_id(char out[LP_REQUEST_ID_BYTES], const char *given) {
    if (given && may_be_kept(given)) {
        strcpy(out, given);
        return;
    }
    strcpy(out, "req-");
    lp_random_id(out + 4);
}
