#include "trace/view_words.h"

void lp_view_put_time(int64_t time_us, FILE *out) {
    fprintf(out, "%11.6f s  ", (double)time_us * 1e-6);
}

void lp_view_put_ms(double us, FILE *out) {
    if (us < 1000)
        fprintf(out, "%.2f ms", us * 1e-3);
    else if (us < 1e6)
        fprintf(out, "%.1f ms", us * 1e-3);
    else
        fprintf(out, "%.2f s", us * 1e-6);
}

void lp_view_put_n(int64_t n, const char *noun, FILE *out) {
    fprintf(out, "%lld %s%s", (long long)n, noun, n == 1 ? "" : "s");
}
