#include "lp_test.h"

#include "kv/store_file.h"

// Key, id and file from Python: struct.pack by the offsets in store_file.h, sums by the package
// "xxhash". A file that a little-endian machine wrote must stay readable.
static const char golden_name[] = "432d4c86d4e097bf03702de3e09c63bc.page";
static const char golden_hex[] =
    "4c504b565041474501000000040000000500000000000000887766554433221100ffeeddccbbaa99"
    "d25200cab5fd38e89b361934b90dbc16e531e515f586d0d026f05e201c8c2e7effffffffffffff7f"
    "0000000007000000ae6d701df0e4346168656c6c6f6d5d3dddbcaaf2b5";
enum { HEADER = 72 + 4 * 4 + 8, FILE_BYTES = HEADER + 5 + 8 };

static const int32_t first_tokens[] = {1, 2, 3, 4}, tokens[] = {-1, INT32_MAX, 0, 7};
static const struct lp_store_format format = {
    {0x1122334455667788, 0x99aabbccddeeff00}, .page_bytes = 5, .page_tokens = 4};

static struct lp_store_page golden_page(void) {
    struct lp_store_page page = {.tokens = tokens};
    page.parent = lp_page_key_make((struct lp_page_key){0, 0}, first_tokens, 4);
    page.key = lp_page_key_make(page.parent, tokens, 4);
    return page;
}

static void golden_file(uint8_t *out) {
    assert_int_equal(strlen(golden_hex), 2 * FILE_BYTES);
    for (int i = 0; i < FILE_BYTES; i++) {
        unsigned byte;
        assert_int_equal(sscanf(golden_hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
}

static enum lp_store_file_state check(const struct lp_store_page *page, const uint8_t *file) {
    uint64_t sum;
    memcpy(&sum, file + HEADER + 5, sizeof sum);
    return lp_store_file_check(&format, page, file, file + HEADER, sum);
}

static struct lp_page_key id_of(const char *name) {
    struct lp_page_key id;
    const char *rest;
    assert_true(lp_store_file_parse_name(name, &id, &rest));
    assert_string_equal(rest, ".page");
    return id;
}

static enum lp_store_file_state recognise(const uint8_t *file, size_t n) {
    return lp_store_file_recognise(&format, id_of(golden_name), file, n < HEADER ? n : HEADER, n);
}

static void keys_and_files_are_as_written_down(void **state) {
    (void)state;
    struct lp_store_page page = golden_page();
    uint8_t expected[FILE_BYTES], file[FILE_BYTES];
    char name[LP_STORE_FILE_NAME_BYTES];
    size_t bytes;
    golden_file(expected);
    assert_true(page.parent.lo == 0xd0d086f515e531e5 && page.parent.hi == 0x7e2e8c1c205ef026);
    assert_true(page.key.lo == 0xe838fdb5ca0052d2 && page.key.hi == 0x16bc0db93419369b);
    lp_store_file_name(lp_store_file_id(&format, page.key), name);
    assert_string_equal(name, golden_name);
    assert_int_equal(lp_store_file_header_bytes(&format), HEADER);
    assert_true(lp_store_file_bytes(&format, &bytes));
    assert_int_equal(bytes, FILE_BYTES);
    lp_store_file_encode_header(&format, &page, file);
    memcpy(file + HEADER, "hello", 5);
    uint64_t sum = lp_store_file_payload_sum(&format, file, file + HEADER);
    memcpy(file + HEADER + 5, &sum, sizeof sum);
    assert_memory_equal(file, expected, FILE_BYTES);
    assert_int_equal(check(&page, expected), LP_STORE_FILE_OURS);
    assert_int_equal(recognise(expected, FILE_BYTES), LP_STORE_FILE_OURS);
}

static void a_key_depends_on_all_of_the_text(void **state) {
    (void)state;
    enum { N = 8 };
    const struct lp_page_key none = {0, 0};
    const int32_t swapped[] = {2, 1, 3, 4};
    struct lp_page_key keys[N];
    keys[0] = lp_page_key_make(none, first_tokens, 4);
    keys[1] = lp_page_key_make(none, first_tokens, 3);
    keys[2] = lp_page_key_make(none, swapped, 4);
    keys[3] = lp_page_key_make(keys[0], first_tokens, 4);
    keys[4] = lp_page_key_make(keys[1], first_tokens, 4);
    keys[5] = lp_page_key_make((struct lp_page_key){keys[0].hi, keys[0].lo}, first_tokens, 4);
    keys[6] = lp_page_key_make((struct lp_page_key){0, 1}, first_tokens, 4);
    keys[7] = lp_page_key_make((struct lp_page_key){1, 0}, first_tokens, 4);
    for (int a = 0; a < N; a++)
        for (int b = 0; b < a; b++) assert_false(lp_page_key_equal(keys[a], keys[b]));
}

static void every_damaged_bit_is_found(void **state) {
    (void)state;
    struct lp_store_page page = golden_page();
    uint8_t file[FILE_BYTES];
    golden_file(file);
    for (int bit = 0; bit < 8 * FILE_BYTES; bit++) {
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(check(&page, file), LP_STORE_FILE_DAMAGED);
        bool in_version = bit / 8 >= 8 && bit / 8 < 12, in_payload = bit / 8 >= HEADER;
        assert_int_equal(recognise(file, FILE_BYTES), in_version   ? LP_STORE_FILE_OTHERS
                                                      : in_payload ? LP_STORE_FILE_OURS
                                                                   : LP_STORE_FILE_DAMAGED);
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t n = 0; n < FILE_BYTES; n++)
        assert_int_equal(recognise(file, n), LP_STORE_FILE_DAMAGED);
    assert_int_equal(recognise(file, FILE_BYTES + 1), LP_STORE_FILE_DAMAGED);
}

// A crash of a file system may leave new blocks in front of old ones.
static void halves_of_two_files_are_no_file(void **state) {
    (void)state;
    struct lp_store_page page = golden_page();
    struct lp_store_page other = {page.parent, {0, 0}, first_tokens};
    uint8_t file[FILE_BYTES], other_header[HEADER];
    golden_file(file);
    lp_store_file_encode_header(&format, &other, other_header);
    assert_int_equal(check(&page, file), LP_STORE_FILE_OURS);
    memcpy(file, other_header, HEADER);
    assert_int_equal(check(&other, file), LP_STORE_FILE_DAMAGED);
}

static void files_of_other_formats_are_foreign(void **state) {
    (void)state;
    struct lp_store_page page = golden_page();
    const struct lp_store_format others[] = {
        {{1, 2}, 5, 4}, {format.fingerprint, 6, 4}, {format.fingerprint, 5, 3}};
    uint8_t header[HEADER] = {0};
    for (int i = 0; i < 3; i++) {
        struct lp_page_key id = lp_store_file_id(&others[i], page.key);
        assert_false(lp_page_key_equal(id, id_of(golden_name)));
        lp_store_file_encode_header(&others[i], &page, header);
        assert_int_equal(lp_store_file_recognise(&format, id, header, HEADER, FILE_BYTES),
                         LP_STORE_FILE_OTHERS);
        assert_int_equal(recognise(header, FILE_BYTES), LP_STORE_FILE_DAMAGED); // not in its place
    }
}

static void another_text_with_the_same_key_is_no_hit(void **state) {
    (void)state;
    struct lp_store_page page = golden_page();
    uint8_t file[FILE_BYTES];
    golden_file(file);
    for (int i = 0; i < 4; i++) {
        int32_t changed[4];
        memcpy(changed, tokens, sizeof changed);
        changed[i] ^= 1;
        struct lp_store_page other = {page.key, page.parent, changed};
        assert_int_equal(check(&other, file), LP_STORE_FILE_OTHERS);
    }
    struct lp_store_page other = {page.key, {page.parent.lo, page.parent.hi ^ 1}, tokens};
    assert_int_equal(check(&other, file), LP_STORE_FILE_OTHERS);
}

static void names(void **state) {
    (void)state;
    struct lp_page_key id;
    const char *rest;
    assert_false(lp_store_file_parse_name("", &id, &rest));
    assert_false(lp_store_file_parse_name("432d4c86d4e097bf03702de3e09c63b.page", &id, &rest));
    assert_false(lp_store_file_parse_name("432D4C86D4E097BF03702DE3E09C63BC.page", &id, &rest));
    assert_false(lp_store_file_parse_name("432d4c86d4e097bf03702de3e09c63bg.page", &id, &rest));
    assert_true(lp_store_file_parse_name("00000000000000010000000000000002", &id, &rest));
    assert_true(id.hi == 1 && id.lo == 2);
    assert_string_equal(rest, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_files_are_as_written_down),
        cmocka_unit_test(a_key_depends_on_all_of_the_text),
        cmocka_unit_test(every_damaged_bit_is_found),
        cmocka_unit_test(halves_of_two_files_are_no_file),
        cmocka_unit_test(files_of_other_formats_are_foreign),
        cmocka_unit_test(another_text_with_the_same_key_is_no_hit),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
