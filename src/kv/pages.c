#include "kv/pages.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fault.h"
#include "kv/kv_types.h"

struct part { // of the pool
    int64_t n_free, n_idle;
};

struct lp_kv {
    struct lp_device *dev;
    struct lp_kv_layer *layers;
    int32_t n_layers;
    lp_type type;
    void **base; // [n_layers * LP_KV_N_KINDS], NULL where the layer has no such state
    int32_t *free_pages,
        *refs;    // [n_pages]; free_pages: a stack for each part, one behind the other
    bool *cached; // [n_pages]
    int64_t part_pages, n_pages;
    int32_t n_parts;
    struct part *parts; // [n_parts]
    size_t page_bytes;  // of all layers and kinds
    struct lp_kv_others others;
};

static size_t row_bytes_of(const struct lp_kv *kv, int32_t layer, int kind) {
    return lp_kv_row_bytes(kv->type, &kv->layers[layer], (enum lp_kv_kind)kind);
}

// What the backend keeps behind the rows of a page.
static size_t layer_extra(const struct lp_device *dev, const struct lp_kv_layer *layer, int kind) {
    const int32_t width = layer->width[kind];
    if (kind != LP_KV_INDEX || width == 0 || !dev->backend->index_page_extra) return 0;
    if (layer->slot_offset) return 0; // positions of a page are those of two pages
    return dev->backend->index_page_extra(dev, width, LP_KV_PAGE_TOKENS);
}

static size_t extra_of(const struct lp_kv *kv, int32_t layer, int kind) {
    return layer_extra(kv->dev, &kv->layers[layer], kind);
}

static size_t layer_page_bytes(const struct lp_device *dev, lp_type type,
                               const struct lp_kv_layer *layer, int kind) {
    return lp_kv_row_bytes(type, layer, (enum lp_kv_kind)kind) * LP_KV_PAGE_TOKENS +
           layer_extra(dev, layer, kind);
}

static size_t page_bytes_of(const struct lp_kv *kv, int32_t layer, int kind) {
    return layer_page_bytes(kv->dev, kv->type, &kv->layers[layer], kind);
}

size_t lp_kv_layer_token_bytes(const struct lp_device *dev, lp_type type,
                               const struct lp_kv_layer *layer) {
    size_t sum = 0;
    for (int kind = 0; kind < LP_KV_N_KINDS; kind++)
        sum += layer_page_bytes(dev, type, layer, kind);
    return sum / LP_KV_PAGE_TOKENS;
}

static lp_status check_widths(const struct lp_kv *kv, struct lp_err *err) {
    lp_status status = LP_OK;
    for (int32_t l = 0; l < kv->n_layers && !status; l++)
        status = lp_kv_layer_check(kv->type, &kv->layers[l], l, err);
    return status;
}

static lp_status alloc_states(struct lp_kv *kv, struct lp_err *err) {
    for (int32_t l = 0; l < kv->n_layers; l++)
        for (int kind = 0; kind < LP_KV_N_KINDS; kind++) {
            size_t page_bytes = page_bytes_of(kv, l, kind), bytes;
            if (page_bytes == 0) continue;
            kv->page_bytes += page_bytes;
            if (!lp_mul_size(page_bytes, (size_t)kv->n_pages, &bytes))
                return lp_err_set(err, LP_STATUS_LIMIT, "the KV cache of %lld tokens is too large",
                                  (long long)kv->n_pages * LP_KV_PAGE_TOKENS);
            void *block = kv->dev->backend->alloc(kv->dev, bytes);
            if (!block)
                return lp_err_set(
                    err, LP_STATUS_MEMORY,
                    "out of memory: the KV cache of %lld tokens (layer %d needs %zu bytes); "
                    "lower --ctx%s",
                    (long long)kv->n_pages * LP_KV_PAGE_TOKENS, l, bytes,
                    kv->type == LP_TYPE_F32 ? " or choose --kv f16" : "");
            kv->base[l * LP_KV_N_KINDS + kind] = block;
        }
    return LP_OK;
}

static void free_pool(struct lp_kv *kv) {
    lp_free(kv->free_pages);
    lp_free(kv->refs);
    lp_free(kv->cached);
    lp_free(kv->parts);
}

// All pages are free.
static lp_status make_pool(struct lp_kv *kv, int32_t n_parts, struct lp_err *err) {
    const size_t n = (size_t)kv->part_pages * (size_t)n_parts;
    kv->free_pages = lp_alloc(n, sizeof *kv->free_pages);
    kv->refs = lp_alloc(n, sizeof *kv->refs);
    kv->cached = lp_alloc(n, sizeof *kv->cached);
    kv->parts = lp_alloc((size_t)n_parts, sizeof *kv->parts);
    kv->n_parts = n_parts;
    kv->n_pages = (int64_t)n;
    if (!kv->free_pages || !kv->refs || !kv->cached || !kv->parts)
        return lp_err_memory(err, n * sizeof *kv->free_pages, "the page pool");
    for (int32_t i = 0; i < n_parts; i++) {
        const int64_t first = i * kv->part_pages;
        for (int64_t p = 0; p < kv->part_pages; p++) // the lowest number is handed out first
            kv->free_pages[first + p] = (int32_t)(first + kv->part_pages - 1 - p);
        kv->parts[i].n_free = kv->part_pages;
    }
    return LP_OK;
}

lp_status lp_kv_set_parts(struct lp_kv *kv, int32_t n_parts, struct lp_err *err) {
    if (kv->part_pages > INT32_MAX / n_parts)
        return lp_err_set(
            err, LP_STATUS_LIMIT,
            "%d ranks with %lld pages of the KV cache each are more pages than can be "
            "numbered; lower --kv-tokens",
            n_parts, (long long)kv->part_pages);
    free_pool(kv);
    return make_pool(kv, n_parts, err);
}

lp_status lp_kv_new(struct lp_kv **out, struct lp_device *dev, const struct lp_kv_layer *layers,
                    int32_t n_layers, lp_type type, int64_t n_tokens, struct lp_err *err) {
    if (!lp_kv_type_supported(type))
        return lp_err_set(err, LP_STATUS_INVALID,
                          "KV type %s is not supported; use " LP_KV_TYPE_NAMES,
                          lp_type_info(type) ? lp_type_info(type)->name : "(unknown)");
    if (n_tokens < 1 || n_tokens > INT32_MAX - LP_KV_PAGE_TOKENS)
        return lp_err_set(err, LP_STATUS_INVALID, "the context is %lld tokens, expected 1 to %d",
                          (long long)n_tokens, INT32_MAX - LP_KV_PAGE_TOKENS);
    struct lp_kv *kv = lp_alloc(1, sizeof *kv);
    if (!kv) return lp_err_memory(err, sizeof *kv, "the KV cache");
    kv->dev = dev;
    kv->n_layers = n_layers;
    kv->type = type;
    kv->n_pages = kv->part_pages = lp_kv_pages_of(n_tokens);
    kv->layers = lp_alloc((size_t)n_layers, sizeof *kv->layers);
    kv->base = lp_alloc((size_t)n_layers * LP_KV_N_KINDS, sizeof *kv->base);
    lp_status status = LP_OK;
    if (!kv->layers || !kv->base)
        status = lp_err_memory(err, (size_t)n_layers * sizeof *kv->layers, "the KV cache");
    if (!status) status = make_pool(kv, 1, err);
    if (!status) {
        memcpy(kv->layers, layers, (size_t)n_layers * sizeof *layers);
        status = check_widths(kv, err);
        if (!status) status = alloc_states(kv, err);
    }
    if (status) {
        lp_kv_free(kv);
        return status;
    }
    *out = kv;
    return LP_OK;
}

void lp_kv_free(struct lp_kv *kv) {
    if (!kv) return;
    for (int32_t i = 0; kv->base && i < kv->n_layers * LP_KV_N_KINDS; i++)
        if (kv->base[i]) kv->dev->backend->free(kv->dev, kv->base[i]);
    lp_free(kv->layers);
    lp_free(kv->base);
    free_pool(kv);
    lp_free(kv);
}

size_t lp_kv_token_bytes(const struct lp_kv *kv) {
    return kv->page_bytes / LP_KV_PAGE_TOKENS;
}
size_t lp_kv_bytes(const struct lp_kv *kv) {
    return kv->page_bytes * (size_t)kv->part_pages;
}
int64_t lp_kv_capacity_tokens(const struct lp_kv *kv) {
    return kv->n_pages * LP_KV_PAGE_TOKENS;
}
int64_t lp_kv_free_tokens(const struct lp_kv *kv) {
    return lp_kv_n_free(kv) * LP_KV_PAGE_TOKENS;
}

lp_type lp_kv_type(const struct lp_kv *kv) {
    return kv->type;
}
int64_t lp_kv_n_pages(const struct lp_kv *kv) {
    return kv->n_pages;
}
int32_t lp_kv_n_parts(const struct lp_kv *kv) {
    return kv->n_parts;
}
int64_t lp_kv_part_pages(const struct lp_kv *kv) {
    return kv->part_pages;
}
int32_t lp_kv_part_of(const struct lp_kv *kv, int32_t page) {
    return (int32_t)(page / kv->part_pages);
}
int64_t lp_kv_n_free_in(const struct lp_kv *kv, int32_t part) {
    return kv->parts[part].n_free;
}
int64_t lp_kv_n_free(const struct lp_kv *kv) {
    int64_t sum = 0;
    for (int32_t i = 0; i < kv->n_parts; i++) sum += kv->parts[i].n_free;
    return sum;
}
int32_t lp_kv_page_refs(const struct lp_kv *kv, int32_t page) {
    return kv->refs[page];
}

int32_t lp_kv_page_take_in(struct lp_kv *kv, int32_t part) {
    struct part *p = &kv->parts[part];
    if (p->n_free == 0) return -1;
    int32_t page = kv->free_pages[part * kv->part_pages + --p->n_free];
    kv->refs[page] = 1;
    return page;
}

int32_t lp_kv_page_take(struct lp_kv *kv) {
    return lp_kv_page_take_in(kv, 0);
}

static struct part *part_of(const struct lp_kv *kv, int32_t page) {
    return &kv->parts[lp_kv_part_of(kv, page)];
}

void lp_kv_page_share(struct lp_kv *kv, int32_t page) {
    if (++kv->refs[page] == 2) part_of(kv, page)->n_idle -= kv->cached[page];
}

void lp_kv_page_put(struct lp_kv *kv, int32_t page) {
    const int32_t part = lp_kv_part_of(kv, page);
    struct part *p = &kv->parts[part];
    if (--kv->refs[page] == 1) p->n_idle += kv->cached[page];
    if (kv->refs[page] == 0) kv->free_pages[part * kv->part_pages + p->n_free++] = page;
}

void lp_kv_page_set_cached(struct lp_kv *kv, int32_t page, bool cached) {
    if (kv->refs[page] == 1) part_of(kv, page)->n_idle += cached - kv->cached[page];
    kv->cached[page] = cached;
}

int64_t lp_kv_n_idle_in(const struct lp_kv *kv, int32_t part) {
    return kv->parts[part].n_idle;
}

int64_t lp_kv_n_idle(const struct lp_kv *kv) {
    int64_t sum = 0;
    for (int32_t i = 0; i < kv->n_parts; i++) sum += kv->parts[i].n_idle;
    return sum;
}

void lp_kv_set_others(struct lp_kv *kv, const struct lp_kv_others *others) {
    kv->others = *others;
}
size_t lp_kv_own_page_bytes(const struct lp_kv *kv) {
    return kv->page_bytes;
}
size_t lp_kv_page_bytes(const struct lp_kv *kv) {
    return kv->page_bytes + kv->others.page_bytes;
}
size_t lp_kv_index_extra(const struct lp_kv *kv) {
    for (int32_t l = 0; l < kv->n_layers; l++)
        if (kv->layers[l].width[LP_KV_INDEX]) return extra_of(kv, l, LP_KV_INDEX);
    return 0;
}

// The place of a page's state of one kind and layer; NULL where there is none.
static char *page_at(const struct lp_kv *kv, int32_t index, int32_t page, size_t *bytes) {
    *bytes = page_bytes_of(kv, index / LP_KV_N_KINDS, index % LP_KV_N_KINDS);
    return kv->base[index] ? (char *)kv->base[index] + (size_t)page * *bytes : NULL;
}

// Whether a page's bytes are here, and whether any are on other ranks.
static bool is_here(const struct lp_kv *kv, int32_t page) {
    return lp_kv_part_of(kv, page) == 0;
}
static bool is_elsewhere(const struct lp_kv *kv, int32_t page) {
    return kv->others.copy && (kv->n_parts == 1 || !is_here(kv, page));
}

void lp_kv_page_copy(struct lp_kv *kv, int32_t to, int32_t from) {
    size_t bytes;
    for (int32_t i = 0; i < kv->n_layers * LP_KV_N_KINDS && is_here(kv, to); i++) {
        char *source = page_at(kv, i, from, &bytes);
        if (LP_FAULT("copy-loses-index") && i % LP_KV_N_KINDS == LP_KV_INDEX) continue;
        if (source) kv->dev->backend->copy(kv->dev, page_at(kv, i, to, &bytes), source, bytes);
    }
    if (is_elsewhere(kv, to)) kv->others.copy(kv->others.user, to, from);
}

bool lp_kv_page_read(const struct lp_kv *kv, int32_t page, void *out) {
    size_t bytes;
    char *at = out;
    for (int32_t i = 0; i < kv->n_layers * LP_KV_N_KINDS && is_here(kv, page); i++) {
        const char *source = page_at(kv, i, page, &bytes);
        if (!source) continue;
        kv->dev->backend->read(kv->dev, at, source, bytes);
        at += bytes;
    }
    return !is_elsewhere(kv, page) || kv->others.read(kv->others.user, page, at);
}

void lp_kv_page_write(struct lp_kv *kv, int32_t page, const void *in) {
    size_t bytes;
    const char *at = in;
    for (int32_t i = 0; i < kv->n_layers * LP_KV_N_KINDS && is_here(kv, page); i++) {
        char *to = page_at(kv, i, page, &bytes);
        if (!to) continue;
        bool lost = (LP_FAULT("disk-loses-index") && i % LP_KV_N_KINDS == LP_KV_INDEX) ||
                    (LP_FAULT("disk-loses-latents") && i / LP_KV_N_KINDS == kv->n_layers - 1);
        if (!lost) kv->dev->backend->write(kv->dev, to, at, bytes);
        at += bytes;
    }
    if (is_elsewhere(kv, page)) kv->others.write(kv->others.user, page, in);
}

// Room for n page numbers on the host and on the device.
static lp_status reserve(struct lp_page_table *table, struct lp_kv *kv, int64_t n,
                         struct lp_err *err) {
    if (n <= table->capacity) return LP_OK;
    int64_t capacity = table->capacity ? table->capacity : 16;
    while (capacity < n) capacity *= 2;
    size_t bytes = (size_t)capacity * sizeof(int32_t);
    int32_t *pages = lp_realloc(table->pages, (size_t)capacity, sizeof *pages);
    if (!pages) return lp_err_memory(err, bytes, "a page table");
    table->pages = pages;
    int32_t *device_pages = kv->dev->backend->alloc(kv->dev, bytes);
    if (!device_pages) return lp_err_memory(err, bytes, "a page table on the device");
    if (table->device_pages) kv->dev->backend->free(kv->dev, table->device_pages);
    table->device_pages = device_pages;
    table->capacity = capacity;
    kv->dev->backend->write(kv->dev, device_pages, pages, (size_t)table->n_pages * sizeof *pages);
    return LP_OK;
}

static void upload_from(struct lp_page_table *table, struct lp_kv *kv, int64_t first) {
    kv->dev->backend->write(kv->dev, table->device_pages + first, table->pages + first,
                            (size_t)(table->n_pages - first) * sizeof *table->pages);
}

lp_status lp_page_table_grow(struct lp_page_table *table, struct lp_kv *kv, int64_t n_tokens,
                             struct lp_err *err) {
    int64_t need = lp_kv_pages_of(n_tokens), first = table->n_pages;
    if (need > first) {
        const int64_t n_free = lp_kv_n_free_in(kv, table->part);
        if (need - first > n_free)
            return lp_err_set(err, LP_STATUS_LIMIT,
                              "the KV cache is full: %lld tokens need %lld pages, %lld are free",
                              (long long)n_tokens, (long long)(need - first), (long long)n_free);
        lp_status status = reserve(table, kv, need, err);
        if (status) return status;
        while (table->n_pages < need)
            table->pages[table->n_pages++] = lp_kv_page_take_in(kv, table->part);
        if (LP_FAULT("page-table-swap") && first == 2) {
            int32_t page = table->pages[0];
            table->pages[0] = table->pages[1];
            table->pages[1] = page;
            upload_from(table, kv, 0);
        }
        upload_from(table, kv, first);
    }
    if (n_tokens > table->n_tokens) table->n_tokens = n_tokens;
    return LP_OK;
}

lp_status lp_page_table_append(struct lp_page_table *table, struct lp_kv *kv, int32_t page,
                               int64_t n_tokens, struct lp_err *err) {
    lp_status status = reserve(table, kv, table->n_pages + 1, err);
    if (status) return status;
    table->pages[table->n_pages++] = page;
    table->n_tokens += n_tokens;
    upload_from(table, kv, table->n_pages - 1);
    return LP_OK;
}

void lp_page_table_truncate(struct lp_page_table *table, struct lp_kv *kv, int64_t n_tokens) {
    int64_t keep = lp_kv_pages_of(n_tokens);
    while (table->n_pages > keep) lp_kv_page_put(kv, table->pages[--table->n_pages]);
    if (n_tokens < table->n_tokens) table->n_tokens = n_tokens;
}

void lp_page_table_release(struct lp_page_table *table, struct lp_kv *kv) {
    lp_page_table_truncate(table, kv, 0);
    lp_free(table->pages);
    if (table->device_pages) kv->dev->backend->free(kv->dev, table->device_pages);
    *table = (struct lp_page_table){0};
}

lp_status lp_page_table_mirror(struct lp_page_table *table, struct lp_kv *kv, const int32_t *pages,
                               int64_t n_pages, int64_t n_tokens, struct lp_err *err) {
    lp_status status = reserve(table, kv, n_pages, err);
    if (status) return status;
    table->n_pages = n_pages;
    table->n_tokens = n_tokens;
    if (n_pages == 0) return LP_OK;
    memcpy(table->pages, pages, (size_t)n_pages * sizeof *pages);
    upload_from(table, kv, 0);
    return LP_OK;
}

void lp_page_table_unmirror(struct lp_page_table *table, struct lp_kv *kv) {
    lp_free(table->pages);
    if (table->device_pages) kv->dev->backend->free(kv->dev, table->device_pages);
    *table = (struct lp_page_table){0};
}

struct lp_cache_view lp_kv_view(const struct lp_kv *kv, int32_t layer, enum lp_kv_kind kind,
                                const struct lp_page_table *table) {
    int32_t width = kv->layers[layer].width[kind];
    size_t row_bytes = row_bytes_of(kv, layer, kind);
    return (struct lp_cache_view){
        .base = kv->base[layer * LP_KV_N_KINDS + kind],
        .type = kv->type,
        .width = width,
        .n_tail = lp_kv_row_tail(kv->type, &kv->layers[layer], kind),
        .page_tokens = LP_KV_PAGE_TOKENS,
        .slot_offset = kv->layers[layer].slot_offset,
        .row_bytes = row_bytes,
        .page_bytes = page_bytes_of(kv, layer, kind),
        .extra_offset = extra_of(kv, layer, kind) ? row_bytes * LP_KV_PAGE_TOKENS : 0,
        .pages = table->device_pages,
    };
}
