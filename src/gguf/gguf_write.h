// Building the header of a GGUF file (1 to 7 of the list in gguf.h): metadata in the order in which
// keys are first set, then descriptors in the order of lp_gguf_writer_add, whose data will lie one
// after the other, each padded to the alignment. The data itself is written by the caller, at
// lp_gguf_writer_offset. A header made here is one that gguf_read.c accepts.
//
// Setters keep the first failure (out of memory, a key that cannot be) and do nothing afterwards;
// lp_gguf_writer_finish reports it.
#ifndef LP_GGUF_GGUF_WRITE_H
#define LP_GGUF_GGUF_WRITE_H

#include "gguf/gguf.h"

struct lp_gguf_writer;

// version 2 or 3. NULL without memory. The alignment is 32 until "general.alignment" is set.
struct lp_gguf_writer *lp_gguf_writer_new(uint32_t version);
void lp_gguf_writer_free(struct lp_gguf_writer *w); // NULL is allowed

// Sets a key; one that is there keeps its place and gets the new type and value. Bytes are copied.
void lp_gguf_writer_u16(struct lp_gguf_writer *w, const char *key, uint16_t value);
void lp_gguf_writer_u32(struct lp_gguf_writer *w, const char *key, uint32_t value);
void lp_gguf_writer_i32(struct lp_gguf_writer *w, const char *key, int32_t value);
void lp_gguf_writer_f32(struct lp_gguf_writer *w, const char *key, float value);
void lp_gguf_writer_bool(struct lp_gguf_writer *w, const char *key, bool value);
void lp_gguf_writer_str(struct lp_gguf_writer *w, const char *key, struct lp_str value);
// `data`: count elements of a type of fixed size, as in memory.
void lp_gguf_writer_array(struct lp_gguf_writer *w, const char *key, enum lp_gguf_value_type type,
                          const void *data, uint64_t count);
void lp_gguf_writer_strings(struct lp_gguf_writer *w, const char *key, const struct lp_str *values,
                            uint64_t count);
void lp_gguf_writer_copy(struct lp_gguf_writer *w, const struct lp_gguf_kv *kv); // as it is
void lp_gguf_writer_remove(struct lp_gguf_writer *w, const char *key);           // or nothing
bool lp_gguf_writer_has(const struct lp_gguf_writer *w, const char *key);

// Adds a descriptor; ne: [n_dims], fastest axis first. Errors: FORMAT (a name that is empty, too
// long or there already; a row that is no multiple of the type's block; a size past 2^63), LIMIT,
// MEMORY.
lp_status lp_gguf_writer_add(struct lp_gguf_writer *w, struct lp_str name, lp_type type,
                             uint32_t n_dims, const uint64_t *ne, struct lp_err *err);
uint64_t lp_gguf_writer_n_tensors(const struct lp_gguf_writer *w);

// Encodes the header, once; nothing may be set or added afterwards. Errors: the first of a setter;
// INVALID (general.alignment); FORMAT (tensors of 2^62 bytes or more together); MEMORY.
lp_status lp_gguf_writer_finish(struct lp_gguf_writer *w, struct lp_err *err);

// After finish. The header, with the padding before the data (none in a file without tensors), and
// where data lies in the file. The file has lp_gguf_writer_total bytes, the last tensor's padding
// included.
struct lp_str lp_gguf_writer_header(const struct lp_gguf_writer *w);
uint64_t lp_gguf_writer_offset(const struct lp_gguf_writer *w, uint64_t tensor);
uint64_t lp_gguf_writer_bytes(const struct lp_gguf_writer *w, uint64_t tensor); // without padding
uint64_t lp_gguf_writer_total(const struct lp_gguf_writer *w);

#endif
