// Strips of 8-bit weights as tiles of bfloat16 (cpu_wide.h): w = scale q - min, rounded to nearest.
// For strips of 16 rows, whose bytes are not signed (STRIP_MIN, or STRIP_OFFSET with the offset 128).
// A column of a strip, four values of each row, becomes two rows of a tile, a pair of values each.
#ifndef LP_BACKEND_CPU_CPU_Q8_WIDE_H
#define LP_BACKEND_CPU_CPU_Q8_WIDE_H

// Bytes of each lane as scale * byte + add, to be cut off below bfloat16's last bit.
LP_INLINE vint wide_weights(vint bytes, vfloat scale, vfloat add) {
    const vfloat w = _mm512_fmadd_ps(_mm512_cvtepi32_ps(bytes), scale, add);
    return _mm512_add_epi32(_mm512_castps_si512(w), _mm512_set1_epi32(0x8000));
}

// The upper halves of two floats: of `first` to the lower half of each lane.
LP_INLINE void put_pairs(vint first, vint second, uint16_t *to) {
    const vint from_above = _mm512_set1_epi32(0x00000302); // bytes 2 and 3 of a lane, moved by
    const vint lanes =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    _mm512_store_si512(to, _mm512_mask_shuffle_epi8(second, 0x3333333333333333ull, first,
                                                    _mm512_add_epi8(from_above, lanes)));
}

// Half a group: four columns, eight rows of the tile.
LP_INLINE void widen_half(const vint *q, vfloat scale, vfloat add, uint16_t *to) {
    const vint byte = _mm512_set1_epi32(0xff);
    UNROLL
    for (int k = 0; k < 4; k++, to += 64) {
        vint w[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            w[i] =
                wide_weights(v_and(_mm512_srli_epi32(q[k], (unsigned)(8 * i)), byte), scale, add);
        put_pairs(w[0], w[1], to);
        put_pairs(w[2], w[3], to + 32);
    }
}

// Group g of a strip: a tile.
LP_INLINE void widen_group(const struct strip *s, int g, enum strip_kind kind, bool halves,
                           uint16_t *to) {
    UNROLL
    for (int h = 0; h < 2; h++, to += 256) {
        const int at = halves ? g + 4 * h : g;
        const float unit = kind == STRIP_MIN && !halves ? -1.0f : -128.0f;
        const vfloat less = kind == STRIP_MIN ? s->min[at] : s->scale[at];
        widen_half(s->q + 8 * g + 4 * h, s->scale[at], _mm512_mul_ps(less, _mm512_set1_ps(unit)),
                   to);
    }
}

// The kernel's `widen`.
LP_INLINE void widen_q8(const struct q8_format *f, enum source_form form, const uint8_t *w,
                        size_t row_bytes, int n_rows, int64_t first, int64_t n, size_t ahead,
                        uint16_t *tiles) {
    const size_t step = bytes_of(f, first);
    struct source source = {.form = form, .lines = LANES / 4}; // all that is read
    source.packed = w + LANES * step;
    source.ahead.at = w + LANES * step + ahead;
    for (int l = 0; l < LANES && form == FROM_ROWS; l++)
        source.rows[l] = w + (size_t)clamped(l, n_rows) * row_bytes + step;
    for (int64_t at = 0; at < n; at += unit_values(f)) {
        struct strip strips[2];
        if (form == FROM_PACKED || n - at >= unit_values(f))
            strip_unit_q8(f, &source, strips);
        else
            last_unit_q8(f, &source, bytes_of(f, n - at), strips);
        for (int g = 0; g < 4 * f->quads && at + 32 * g < n; g++, tiles += 512)
            widen_group(strips + g / 4, g % 4, f->kind, f->halves, tiles);
    }
}

#endif
