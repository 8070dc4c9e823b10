#include "trace/trace_json.h"

#include <string.h>

#include "base/clean.h"

#define STR_BYTES 512 // of a str field are printed; an event has at most four of them

// ---- what each event consists of: one function per event, since its table needs its struct

#define FIELD(kind, name) {#name, LP_TRACE_FIELD_##kind, offsetof(this_event, name)},
#define EVENT(level, name, meaning, fields)                                                        \
    static const struct lp_trace_event_info *name##_info(void) {                                   \
        typedef struct lp_trace_##name this_event;                                                 \
        static const struct lp_trace_field list[] = {fields};                                      \
        static const struct lp_trace_event_info info = {#name, meaning, LP_TRACE_##level, list,    \
                                                        sizeof list / sizeof list[0]};             \
        return &info;                                                                              \
    }
#include "trace/trace_events.def"
#undef EVENT
#undef FIELD

const struct lp_trace_event_info *lp_trace_info(enum lp_trace_kind kind) {
    static const struct lp_trace_event_info *(*const infos[])(void) = {
#define EVENT(level, name, meaning, fields) name##_info,
#include "trace/trace_events.def"
#undef EVENT
    };
    return infos[kind]();
}

// ---- values

struct out { // what does not fit is left out; LP_TRACE_JSON_BYTES is enough for every event
    char *at, *end;
};

static void put_char(struct out *o, char c) {
    if (o->at < o->end) *o->at++ = c;
}

static void put_raw(struct out *o, const char *text) {
    while (*text) put_char(o, *text++);
}

static void put_str(struct out *o, const char *text, size_t n_bytes) {
    char clean[STR_BYTES];
    lp_clean_text(clean, sizeof clean, (struct lp_str){text ? text : "", text ? n_bytes : 0});
    put_char(o, '"');
    for (const char *p = clean; *p; p++) {
        if (*p == '"' || *p == '\\') put_char(o, '\\');
        put_char(o, *p);
    }
    put_char(o, '"');
}

static void put_u64(struct out *o, uint64_t value) {
    char digits[20];
    int n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n > 0) put_char(o, digits[--n]);
}

static void put_i64(struct out *o, int64_t value) {
    if (value < 0) put_char(o, '-');
    put_u64(o, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

// Nine decimals, of numbers from 1e9 on nine behind the first digit. JSON has no infinity.
static void put_f64(struct out *o, double value) {
    int exponent = 0;
    if (value - value != 0) {
        put_raw(o, "null");
        return;
    }
    if (value < 0) put_char(o, '-');
    if (value < 0) value = -value;
    if (value >= 1e9)
        for (; value >= 10; exponent++) value /= 10;
    uint64_t whole = (uint64_t)value, part = (uint64_t)((value - (double)whole) * 1e9 + 0.5);
    if (part >= 1000000000) whole++, part -= 1000000000;
    put_u64(o, whole);
    if (part) put_char(o, '.');
    for (uint64_t digit = 100000000; part; digit /= 10) {
        put_char(o, (char)('0' + part / digit));
        part %= digit;
    }
    if (exponent) put_char(o, 'e');
    if (exponent) put_u64(o, (uint64_t)exponent);
}

static void put_ids(struct out *o, const struct lp_trace_ids *ids) {
    put_char(o, '"');
    for (int16_t i = 0; i < ids->n && i < LP_TRACE_MAX_IDS; i++) {
        if (i) put_char(o, ' ');
        put_i64(o, ids->id[i]);
    }
    put_char(o, '"');
}

static void put_value(struct out *o, const struct lp_trace_field *field, const char *event) {
    const void *at = event + field->offset;
    switch (field->kind) {
    case LP_TRACE_FIELD_i64:
        put_i64(o, *(const int64_t *)at);
        break;
    case LP_TRACE_FIELD_i32:
        put_i64(o, *(const int32_t *)at);
        break;
    case LP_TRACE_FIELD_f64:
        put_f64(o, *(const double *)at);
        break;
    case LP_TRACE_FIELD_str: {
        const char *text = *(const char *const *)at;
        put_str(o, text, text ? strlen(text) : 0);
        break;
    }
    case LP_TRACE_FIELD_text:
        put_str(o, at, strnlen(at, LP_TRACE_TEXT_BYTES));
        break;
    case LP_TRACE_FIELD_line:
        put_str(o, at, strnlen(at, LP_TRACE_LINE_BYTES));
        break;
    case LP_TRACE_FIELD_ids:
        put_ids(o, at);
        break;
    }
}

size_t lp_trace_json(const struct lp_trace_record *record, uint64_t start_ns, char *out) {
    const struct lp_trace_event_info *info = lp_trace_info((enum lp_trace_kind)record->kind);
    struct out o = {out, out + LP_TRACE_JSON_BYTES};
    put_raw(&o, "{\"event\":\"");
    put_raw(&o, info->name);
    put_raw(&o, "\",\"time_us\":");
    put_u64(&o, record->time_ns > start_ns ? (record->time_ns - start_ns) / 1000 : 0);
    put_raw(&o, ",\"thread\":");
    put_u64(&o, record->thread);
    for (size_t i = 0; i < info->n_fields; i++) {
        put_raw(&o, ",\"");
        put_raw(&o, info->fields[i].name);
        put_raw(&o, "\":");
        put_value(&o, &info->fields[i], (const char *)record->payload);
    }
    put_raw(&o, "}\n");
    return (size_t)(o.at - out);
}
