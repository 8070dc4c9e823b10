#include "cli/wrap.h"

#include <string.h>

// Bytes up to the next space outside of brackets.
static size_t piece(const char *text) {
    size_t n = 0;
    int depth = 0;
    for (; text[n] && (depth > 0 || text[n] != ' '); n++) {
        if (strchr("([", text[n])) depth++;
        if (strchr(")]", text[n])) depth--;
    }
    return n;
}

void lp_wrap(FILE *to, const char *head, const char *text, size_t indent) {
    size_t column = strlen(head);
    fputs(head, to);
    while (*text) {
        size_t n = piece(text);
        if (column + 1 + n > LP_WRAP_COLUMNS) {
            fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > 0) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, n, to);
        column += n;
        text += n;
        while (*text == ' ') text++;
    }
    fputc('\n', to);
}
