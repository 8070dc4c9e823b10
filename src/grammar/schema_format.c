// Formats of strings as regular expressions. Each gives a part of what the format allows that every
// reader takes: dates exist, lengths are bounded.
#include <string.h>

#include "grammar/schema.h"

#define YEAR_DAY                                                                                   \
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"                               \
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LEAP_DAY                                                                                   \
    "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29"
#define DATE "(?:" YEAR_DAY "|" LEAP_DAY ")"
#define HOUR_MINUTE "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME HOUR_MINUTE ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" HOUR_MINUTE ")"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define HEX4 "[0-9A-Fa-f]{1,4}"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,4}"
#define MAIL_ATOM "[A-Za-z0-9_+-]{1,20}"
#define URI_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"
#define URI_TAIL "(?:\\?(?:" URI_CHAR "|\\?)*)?(?:#(?:" URI_CHAR "|\\?)*)?"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:[0-9]{1,4}W|(?:[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?"
                 "|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}D)"
                 "(?:T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?"
                 "|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))?"
                 "|T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?"
                 "|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"email", MAIL_ATOM "(?:\\." MAIL_ATOM "){0,2}@" LABEL "(?:\\." LABEL "){0,3}"
                        "\\.[A-Za-z]{2,12}"},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", "(?:" HEX4 ":){7}" HEX4 "|(?:" HEX4 ":){1,7}:|(?:" HEX4 ":){1,6}:" HEX4 "|(?:" HEX4
             ":){1,5}(?::" HEX4 "){2}|(?:" HEX4 ":){1,4}(?::" HEX4 "){3}"
             "|(?:" HEX4 ":){1,3}(?::" HEX4 "){4}|(?:" HEX4 ":){1,2}(?::" HEX4 "){5}"
             "|" HEX4 ":(?::" HEX4 "){6}|:(?:(?::" HEX4 "){1,7}|:)"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]{1,15}:(?://" HOST "(?::[0-9]{1,4})?(?:/" URI_CHAR "*)?"
            "|[A-Za-z0-9]" URI_CHAR "*)" URI_TAIL},
    {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
    {"password", ""},
};

const char *lp_schema_format(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].regex;
    return NULL;
}
