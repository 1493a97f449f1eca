/* The grammar of a record of magic 2, for _scan.c and _produce.c: over a buffer, without objects. Every read is bounded by
   the end of the record or of the body. */

#ifndef KAFKACOMPAT_RECORD_H
#define KAFKACOMPAT_RECORD_H

#include <stdint.h>

enum { START, TIMESTAMP, OFFSET, KEY, KEY_END, VALUE, VALUE_END, END, FIELDS };
enum { NULL_KEYS = 1, NULL_VALUES = 2 };
#define PER_UNIT 16
#define LEAST_RECORD 6
#define ANY_OFFSET (-1)
#define HEADERS_UNSEEN (-1)

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* Bits beyond the width are dropped, as Kafka does. 0 for a varint that is too long or that the end cuts off. */
static inline int
read_zigzag(Cursor *cursor, int last_shift, uint64_t mask, int64_t *value)
{
    uint64_t bits = 0;
    for (int shift = 0; shift <= last_shift; shift += 7) {
        if (cursor->at >= cursor->end)
            return 0;
        uint8_t byte = *cursor->at++;
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            bits &= mask;
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return 1;
        }
    }
    return 0;
}

static inline int
read_varint(Cursor *cursor, int64_t *value)
{
    return read_zigzag(cursor, 28, UINT32_MAX, value);
}

/* A length and as many bytes; a negative length is null and takes none. */
static inline int
skip_bytes(Cursor *cursor, int64_t *size)
{
    if (!read_varint(cursor, size))
        return 0;
    if (*size > 0) {
        if (*size > cursor->end - cursor->at)
            return 0;
        cursor->at += *size;
    }
    return 1;
}

/* To the end of the record, which the headers fill. How many they are; -1 for what is malformed or more than are taken. */
static int64_t
skip_headers(Cursor *record, int64_t most)
{
    int64_t count, size;
    if (!read_varint(record, &count) || count < 0 || count > most || count > record->end - record->at)
        return -1;
    for (int64_t i = 0; i < count; i++)
        if (!skip_bytes(record, &size) || size < 0 || !skip_bytes(record, &size))
            return -1;
    return record->at == record->end ? count : -1;
}

/* One record from body->at on: its fields, positions counted from `base`. Its headers, 0 when they are not looked at, or -1. */
static int64_t
read_record(Cursor *body, const uint8_t *base, int64_t expected, int64_t headers_most, int64_t *row)
{
    int64_t size;
    row[START] = body->at - base;
    if (!read_varint(body, &size) || size < 1 || size > body->end - body->at)
        return -1;
    Cursor record = {body->at + 1, body->at + size};
    body->at = record.end;
    row[END] = record.end - base;
    if (!read_zigzag(&record, 63, UINT64_MAX, &row[TIMESTAMP]) || !read_varint(&record, &row[OFFSET]))
        return -1;
    if (expected != ANY_OFFSET && row[OFFSET] != expected)
        return -1;
    if (!skip_bytes(&record, &size))
        return -1;
    row[KEY_END] = size < 0 ? -1 : record.at - base;
    row[KEY] = record.at - base - (size < 0 ? 0 : size);
    if (!skip_bytes(&record, &size))
        return -1;
    row[VALUE_END] = size < 0 ? -1 : record.at - base;
    row[VALUE] = record.at - base - (size < 0 ? 0 : size);
    return headers_most == HEADERS_UNSEEN ? 0 : skip_headers(&record, headers_most);
}

#endif
