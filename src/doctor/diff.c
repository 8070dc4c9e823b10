// How far apart two arrays are, and the pattern of where.
#include "doctor/diff.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define ROUNDING 3e-7 // relative: what two float32 sums of the same terms may differ by
#define ROW_FLOOR 0.01

// The difference at i beyond the rounding of a sum; infinite where only one side is finite.
static double difference(const float *got, const float *want, const float *before, int64_t i) {
    if (!isfinite(got[i]) || !isfinite(want[i]))
        return isfinite(got[i]) == isfinite(want[i]) ? 0 : INFINITY;
    double d = fabs((double)got[i] - want[i]);
    if (!before) return d;
    d -= ROUNDING * (fabs((double)want[i]) + fabs((double)before[i]));
    return d > 0 ? d : 0;
}

static double expected(const float *want, const float *before, int64_t i) {
    double e = (double)want[i] - (before ? before[i] : 0);
    return isfinite(e) ? e : 0;
}

static double rms_of(const float *want, const float *before, int64_t first, int64_t n) {
    double sum = 0;
    for (int64_t i = first; i < first + n; i++)
        sum += expected(want, before, i) * expected(want, before, i);
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

static double cell_error(const float *got, const float *want, const float *before, int64_t first,
                         int64_t n) {
    double sum = 0;
    for (int64_t i = first; i < first + n; i++) {
        double d = difference(got, want, before, i);
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

// What an error of this row is measured against.
static double row_scale(const float *want, const float *before, struct lp_diff_shape s, int64_t row,
                        double all) {
    int64_t n = s.n_groups * s.width;
    double scale = rms_of(want, before, row * n, n);
    return fmax(fmax(scale, ROW_FLOOR * all), 1e-30);
}

struct lp_diff lp_diff_measure(const float *got, const float *want, const float *before,
                               struct lp_diff_shape s) {
    struct lp_diff out = {0};
    double all = rms_of(want, before, 0, s.n_rows * s.n_groups * s.width);
    for (int64_t r = 0; r < s.n_rows; r++) {
        double scale = row_scale(want, before, s, r, all);
        for (int64_t g = 0; g < s.n_groups && s.width > 0; g++) {
            int64_t first = (r * s.n_groups + g) * s.width;
            double error = cell_error(got, want, before, first, s.width) / scale;
            if (error > out.error) {
                out.error = error;
                out.row = r;
                out.group = g;
            }
        }
    }
    double worst = -1;
    int64_t first = (out.row * s.n_groups + out.group) * s.width;
    for (int64_t i = 0; i < s.width && s.n_rows > 0; i++) {
        double d = difference(got, want, before, first + i);
        if (d <= worst) continue;
        worst = d;
        out.column = i;
        out.got = got[first + i];
        out.want = want[first + i];
    }
    return out;
}

int64_t lp_diff_count(const float *got, const float *want, const float *before,
                      struct lp_diff_shape s, double bound) {
    double all = rms_of(want, before, 0, s.n_rows * s.n_groups * s.width);
    int64_t n = 0;
    for (int64_t r = 0; r < s.n_rows; r++) {
        double scale = row_scale(want, before, s, r, all);
        for (int64_t g = 0; g < s.n_groups; g++)
            n += cell_error(got, want, before, (r * s.n_groups + g) * s.width, s.width) >
                 bound * scale;
    }
    return n;
}

// ---- patterns

static void put(char *out, size_t n_bytes, const char *format, const char *name, int64_t a,
                int64_t b, int64_t c) {
    snprintf(out, n_bytes, format, name, (long long)a, (long long)b, (long long)c);
}

// The distance at which exactly the flags first, first + step, ... are set; 0: there is none.
static int64_t step_of(const bool *flags, int64_t n, int64_t first, int64_t second) {
    int64_t step = second - first;
    if (step < 2 || first >= step) return 0;
    for (int64_t i = 0; i < n; i++)
        if (flags[i] != (i >= first && (i - first) % step == 0)) return 0;
    return step;
}

void lp_diff_pattern(char *out, size_t n_bytes, const bool *flags, int64_t n, const char *name,
                     int64_t first) {
    int64_t low = -1, high = -1, second = -1, count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!flags[i]) continue;
        if (low < 0)
            low = i;
        else if (second < 0)
            second = i;
        high = i;
        count++;
    }
    if (n_bytes) out[0] = 0;
    if (count == 0 || count == n) return;
    int64_t step = count > 2 ? step_of(flags, n, low, second) : 0;
    bool run = high - low + 1 == count;
    if (count == 1)
        put(out, n_bytes, "only %s %lld", name, first + low, 0, 0);
    else if (run && high == n - 1)
        put(out, n_bytes, "only %ss from %lld on", name, first + low, 0, 0);
    else if (run)
        put(out, n_bytes, "only %ss %lld to %lld", name, first + low, first + high, 0);
    else if (step)
        snprintf(out, n_bytes, "only every %lld%s %s from %lld on", (long long)step,
                 step == 2   ? "nd"
                 : step == 3 ? "rd"
                             : "th",
                 name, (long long)(first + low));
    else if (count * 10 < n * 6)
        snprintf(out, n_bytes, "%lld of %lld %ss, %lld to %lld", (long long)count, (long long)n,
                 name, (long long)(first + low), (long long)(first + high));
}

struct marks {
    bool *rows, *groups, *columns;
};

// Marks the rows and groups of the cells above the bound.
static void mark_cells(struct marks *m, const float *got, const float *want, const float *before,
                       struct lp_diff_shape s, double bound, double all) {
    for (int64_t r = 0; r < s.n_rows; r++)
        for (int64_t g = 0; g < s.n_groups; g++) {
            int64_t first = (r * s.n_groups + g) * s.width;
            double scale = row_scale(want, before, s, r, all);
            if (cell_error(got, want, before, first, s.width) <= bound * scale) continue;
            m->rows[r] = m->groups[g] = true;
            for (int64_t i = 0; i < s.width; i++)
                if (difference(got, want, before, first + i) > 4 * bound * scale)
                    m->columns[i] = true;
        }
}

static void append(char *out, size_t n_bytes, const char *text) {
    size_t used = strlen(out);
    if (text[0]) snprintf(out + used, n_bytes - used, "%s%s", used ? "; " : "", text);
}

void lp_diff_where(char *out, size_t n_bytes, const float *got, const float *want,
                   const float *before, struct lp_diff_shape s, double bound, const char *row_name,
                   int64_t first_row) {
    if (n_bytes == 0) return;
    out[0] = 0;
    bool *flags = lp_alloc((size_t)(s.n_rows + s.n_groups + s.width), sizeof *flags);
    if (!flags) return;
    struct marks m = {flags, flags + s.n_rows, flags + s.n_rows + s.n_groups};
    char text[96];
    mark_cells(&m, got, want, before, s, bound,
               rms_of(want, before, 0, s.n_rows * s.n_groups * s.width));
    lp_diff_pattern(text, sizeof text, m.rows, s.n_rows, row_name, first_row);
    append(out, n_bytes, text);
    lp_diff_pattern(text, sizeof text, m.groups, s.n_groups, "head", 0);
    append(out, n_bytes, text);
    lp_diff_pattern(text, sizeof text, m.columns, s.width, "output", 0);
    append(out, n_bytes, text);
    lp_free(flags);
}
