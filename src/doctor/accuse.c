// What an error's sentence is about, and counts for people.
#include "doctor/accuse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

// The word at `at`, without dots at its end, if it has a dot inside: names of keys and tensors do.
static bool take_name(const char *at, char out[LP_WHAT_BYTES]) {
    size_t n = 0;
    while (is_word(at[n])) n++;
    while (n && (at[n - 1] == '.' || at[n - 1] == '-')) n--;
    if (n == 0 || n >= LP_WHAT_BYTES || !memchr(at, '.', n)) return false;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}

bool lp_accuse_what(const char *sentence, char out[LP_WHAT_BYTES]) {
    static const char *const before[] = {"metadata key ", "tensor ", "key "};
    out[0] = 0;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        for (const char *at = strstr(sentence, before[i]); at; at = strstr(at + 1, before[i]))
            if ((at == sentence || !is_word(at[-1])) && take_name(at + strlen(before[i]), out))
                return true;
    const char *at = strstr(sentence, "tokenizer.");
    return at && take_name(at, out);
}

struct lp_number lp_accuse_number(uint64_t n) {
    char digits[24];
    struct lp_number out;
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), used = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) out.text[used++] = ',';
        out.text[used++] = digits[i];
    }
    out.text[used] = 0;
    return out;
}

void lp_accuse_counted(struct lp_report *report, enum lp_stage stage, const char *name,
                       uint64_t n_right, uint64_t n_wrong, const char *format, ...) {
    char text[1024], figure[80];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(figure, sizeof figure, "%s of %s", lp_accuse_number(n_right).text,
             lp_accuse_number(n_right + n_wrong).text);
    struct lp_check_note note = {.stage = stage,
                                 .outcome = n_wrong ? LP_CHECK_FAULT : LP_CHECK_OK,
                                 .name = name,
                                 .figure = figure,
                                 .bound = "all",
                                 .value = (double)n_right,
                                 .limit = (double)(n_right + n_wrong)};
    lp_report_check(report, &note, "%s", text);
}
