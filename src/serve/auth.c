#include "serve/auth.h"

#include <string.h>
#include <strings.h>

bool lp_auth_ok(const char *key, const char *header) {
    static const char scheme[] = "Bearer ";
    const size_t n_scheme = sizeof scheme - 1;
    if (!header || strncasecmp(header, scheme, n_scheme) != 0) return false;
    const char *given = header + n_scheme;
    return lp_auth_key_ok(key, given + strspn(given, " "));
}

bool lp_auth_key_ok(const char *key, const char *given) {
    if (!given) return false;
    size_t n_given = strlen(given), n_key = strlen(key);
    volatile unsigned char differ = n_given != n_key || n_key == 0;
    for (size_t i = 0; i < n_given; i++)
        differ |= (unsigned char)given[i] ^ (unsigned char)key[n_key ? i % n_key : 0];
    return differ == 0;
}
