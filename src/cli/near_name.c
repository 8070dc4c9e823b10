// Edit distance, one row at a time.
#include "cli/near_name.h"

#include <ctype.h>
#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "cli/model_folder.h"

#define MAX_BYTES 255

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t lp_name_distance(const char *a, const char *b) {
    size_t n_a = strlen(a), n_b = strlen(b), row[MAX_BYTES + 1];
    if (n_a > MAX_BYTES || n_b > MAX_BYTES) return SIZE_MAX;
    for (size_t k = 0; k <= n_b; k++) row[k] = k;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= n_b; k++) {
            bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[k - 1]);
            size_t replaced = diagonal + !same;
            diagonal = row[k];
            row[k] = least(replaced, least(row[k], row[k - 1]) + 1);
        }
    }
    return row[n_b];
}

bool lp_name_is_near(const char *wanted, const char *name, size_t *distance) {
    size_t n = strlen(wanted);
    *distance = lp_name_distance(wanted, name);
    return *distance <= (n < 3 ? n / 2 : 1 + n / 4) ||
           (n >= 2 && strncasecmp(wanted, name, n) == 0);
}

char *lp_near_model(const char *folder, const char *wanted) {
    DIR *dir = opendir(folder);
    if (!dir) return NULL;
    char *best = NULL;
    size_t best_distance = SIZE_MAX, distance;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        bool may_be = name[0] != '.' && (entry->d_type == DT_DIR || lp_name_ends(name, ".gguf"));
        if (!may_be || !lp_name_is_near(wanted, name, &distance)) continue;
        bool nearer = !best || distance < best_distance ||
                      (distance == best_distance && strcmp(name, best) < 0);
        if (!nearer) continue;
        lp_free(best);
        best = lp_strdup(name);
        best_distance = distance;
    }
    closedir(dir);
    return best;
}
