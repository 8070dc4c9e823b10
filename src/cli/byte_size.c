#include "cli/byte_size.h"

#include <stdlib.h>
#include <string.h>

bool lp_byte_size_parse(const char *text, uint64_t *bytes) {
    static const char letters[] = "KMGT";
    char *end;
    size_t n = strspn(text, "0123456789.");
    if (n == 0 || text[0] == '.') return false;
    double value = strtod(text, &end), unit = 1;
    if (end != text + n) return false;
    const char *letter = *end ? strchr(letters, *end) : NULL;
    if (letter) {
        double step = end[1] == 'i' ? 1024 : 1000;
        for (const char *l = letters; l <= letter; l++) unit *= step;
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end == 'B') end++;
    value *= unit;
    if (*end || value < 1 || value >= 0x1p62) return false;
    *bytes = (uint64_t)value;
    return true;
}
