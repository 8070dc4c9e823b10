#include "serve/page.h"

#include <stdio.h>
#include <string.h>

#include "serve/request_id.h"

#define NONCE "@NONCE@"

// The file's bytes, between two symbols.
__asm__(".section .rodata\n"
        "lp_page_html:\n"
        ".incbin \"" LP_PAGE_PATH "\"\n"
        "lp_page_html_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char lp_page_html[], lp_page_html_end[];

bool lp_page_write(struct lp_bytes *out, char policy[LP_PAGE_POLICY_BYTES]) {
    char nonce[LP_RANDOM_ID_HEX + 1];
    lp_random_id(nonce);
    snprintf(policy, LP_PAGE_POLICY_BYTES,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
             "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
    const char *at = lp_page_html, *end = lp_page_html_end;
    for (;;) {
        const char *mark = memmem(at, (size_t)(end - at), NONCE, sizeof NONCE - 1);
        if (!mark) return lp_bytes_append(out, at, (size_t)(end - at));
        if (!lp_bytes_append(out, at, (size_t)(mark - at)) || !lp_bytes_puts(out, nonce))
            return false;
        at = mark + sizeof NONCE - 1;
    }
}
