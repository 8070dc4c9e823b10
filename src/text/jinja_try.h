// Inside the template engine: failures are already written down where they happen, so the way up is
// one word.
#ifndef LP_TEXT_JINJA_TRY_H
#define LP_TEXT_JINJA_TRY_H

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if (!(call)) return false;                                                                 \
    } while (0)

#endif
