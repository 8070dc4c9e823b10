// What somebody may have meant: the name in a list that a mistyped one is nearest to.
#ifndef LP_CLI_NEAR_NAME_H
#define LP_CLI_NEAR_NAME_H

#include <stdbool.h>
#include <stddef.h>

// Letters to insert, delete or replace to turn one into the other (Levenshtein), whatever the case
// of ASCII letters. Names past 255 bytes are as far as can be.
size_t lp_name_distance(const char *a, const char *b);

// Whether `name` may have been meant by `wanted`, and how far off it is: a quarter of the letters
// may differ, or `wanted` is the beginning of `name`.
bool lp_name_is_near(const char *wanted, const char *name, size_t *distance);

// The model file or folder in `folder` that is nearest to `wanted`, as a name from lp_alloc; NULL
// if none is near, the folder cannot be read, or without memory.
char *lp_near_model(const char *folder, const char *wanted);

#endif
