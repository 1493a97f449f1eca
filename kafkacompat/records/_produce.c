/* The compiled gait of records/plain_produce.py: a whole Produce request in one call, over the bytes of its frame, and its answer.

   It tells about plain requests only, and never what is wrong with another one: for whatever is unusual it returns None, and the
   Python way decides. Nothing is kept between two calls but the place of lz4's function. Every read is bounded by the end of the
   frame, of the batch or of the record; sizes are compared with the bytes that are left before they are added to a position. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_record.h"
#ifndef _WIN32
#include <dlfcn.h>
#endif

#define BYTES_MOST (2 * 1024 * 1024)
#define PARTITIONS_MOST 128
#define NAME_MOST 249
#define FIRST_FLEXIBLE 9
#define FIRST_WITH_ZSTD 7
#define FIRST_WITH_TOPIC_IDS 13
#define OLDEST 3
#define NEWEST 13
#define HEADER_SIZE 61
#define LOG_OVERHEAD 12
#define CHECKED_FROM 21
#define CODECS 7
#define LZ4 3
#define ZSTD 4
#define UUID_SIZE 16
#define AFTER_CORRELATION_ID 8

/* CRC-32C: by the processor's instruction where it has one, otherwise by tables. */

static uint32_t by_byte[8][256];

static void
fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
        by_byte[0][i] = value;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int i = 0; i < 256; i++)
            by_byte[slice][i] = by_byte[slice - 1][i] >> 8 ^ by_byte[0][by_byte[slice - 1][i] & 0xFF];
}

static uint32_t
crc_by_tables(uint32_t crc, const uint8_t *at, size_t size)
{
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = by_byte[7][low & 0xFF] ^ by_byte[6][low >> 8 & 0xFF] ^ by_byte[5][low >> 16 & 0xFF] ^ by_byte[4][low >> 24]
              ^ by_byte[3][at[4]] ^ by_byte[2][at[5]] ^ by_byte[1][at[6]] ^ by_byte[0][at[7]];
    }
    for (; size; size--, at++)
        crc = crc >> 8 ^ by_byte[0][(crc ^ *at) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_INSTRUCTION 1

/* The instruction takes three cycles and may start in each, so three parts of this many bytes are read at a time. */
#define PART 1024

static uint32_t shift_by_part[4][256];
static int processor_has_it;

static inline uint64_t
read_8(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

__attribute__((target("sse4.2"))) static uint32_t
crc_of_rest(uint32_t crc, const uint8_t *at, size_t size)
{
    uint64_t value = crc;
    for (; size >= 8; size -= 8, at += 8)
        value = __builtin_ia32_crc32di(value, read_8(at));
    crc = (uint32_t)value;
    for (; size; size--, at++)
        crc = __builtin_ia32_crc32qi(crc, *at);
    return crc;
}

static inline uint32_t
shifted(uint32_t crc)
{
    return shift_by_part[0][crc & 0xFF] ^ shift_by_part[1][crc >> 8 & 0xFF] ^ shift_by_part[2][crc >> 16 & 0xFF]
           ^ shift_by_part[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
    for (; size >= 3 * PART; size -= 3 * PART, at += 3 * PART) {
        uint64_t first = crc, second = 0, third = 0;
        for (size_t i = 0; i < PART; i += 8) {
            first = __builtin_ia32_crc32di(first, read_8(at + i));
            second = __builtin_ia32_crc32di(second, read_8(at + PART + i));
            third = __builtin_ia32_crc32di(third, read_8(at + 2 * PART + i));
        }
        crc = shifted(shifted((uint32_t)first) ^ (uint32_t)second) ^ (uint32_t)third;
    }
    return crc_of_rest(crc, at, size);
}

/* What PART zero bytes make of a checksum is linear in it, so what they make of each bit tells it. */
static void
fill_shifts(void)
{
    static const uint8_t zeros[PART];
    for (int byte = 0; byte < 4; byte++)
        for (int i = 0; i < 256; i++)
            shift_by_part[byte][i] = crc_of_rest((uint32_t)i << 8 * byte, zeros, PART);
}
#else
#define HAS_INSTRUCTION 0
#endif

static uint32_t
crc32c(const uint8_t *at, size_t size)
{
#if HAS_INSTRUCTION
    if (processor_has_it)
        return ~crc_by_instruction(~0u, at, size);
#endif
    return ~crc_by_tables(~0u, at, size);
}

/* LZ4, by the library that the package lz4 brings for its own module: its functions are found there by name, so nothing is linked.
   Where they are not found no batch with a codec is opened here. A batch is unpacked to no more than UNPACKED_MOST bytes, and those
   of a call together to no more than UNPACKED_A_CALL, which takes some milliseconds at worst. */

#define UNPACKED_MOST (1024 * 1024)
#define UNPACKED_A_CALL (4 * 1024 * 1024)
#define LZ4_MAGIC 0x184D2204u
#define LZ4_VERSION 0x40
#define LZ4_INDEPENDENT 0x20
#define LZ4_CONTENT_SIZE 0x08
#define LZ4_LEAST_SIZE_ID 4
#define LZ4_NOT_PACKED 0x80000000u
#define LZ4_WINDOW (64 * 1024)

/* LZ4_decompress_safe_usingDict: source, destination, size, room, dictionary, its size. The bytes written, or a negative number. */
typedef int (*UnpackBlock)(const char *, char *, int, int, const char *, int);

static UnpackBlock unpack_block;

/* Of the batch that is looked at. Memory that is asked for anew would be cleared by the system page by page. */
static uint8_t unpacked[UNPACKED_MOST];

static inline uint64_t
little_endian(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static inline uint32_t
rotated(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

/* XXH32 of less than 16 bytes, with the seed 0. */
static uint32_t
short_xxh32(const uint8_t *at, int size)
{
    uint32_t hash = 374761393u + (uint32_t)size;
    for (; size >= 4; size -= 4, at += 4)
        hash = rotated(hash + (uint32_t)little_endian(at, 4) * 3266489917u, 17) * 668265263u;
    for (; size; size--, at++)
        hash = rotated(hash + *at * 374761393u, 11) * 2654435761u;
    hash = (hash ^ hash >> 15) * 2246822519u;
    hash = (hash ^ hash >> 13) * 3266489917u;
    return hash ^ hash >> 16;
}

/* The bytes of a frame, in `unpacked`: how many they are. -1 if they are more than `most`, for whatever is wrong, for checksums
   besides that of the header, and for a dictionary. */
static int64_t
unpack_frame(Cursor packed, int64_t most)
{
    if (packed.end - packed.at < 7 || little_endian(packed.at, 4) != LZ4_MAGIC)
        return -1;
    const uint8_t *header = packed.at + 4;
    int flags = header[0], size_id = header[1] >> 4, header_size = flags & LZ4_CONTENT_SIZE ? 10 : 2;
    if ((flags & ~(LZ4_INDEPENDENT | LZ4_CONTENT_SIZE)) != LZ4_VERSION || header[1] & 0x8F || size_id < LZ4_LEAST_SIZE_ID
        || packed.end - header <= header_size || header[header_size] != (short_xxh32(header, header_size) >> 8 & 0xFF))
        return -1;
    int64_t block_most = (int64_t)1 << (8 + 2 * size_id), done = 0;
    for (packed.at = header + header_size + 1; packed.end - packed.at >= 4;) {
        uint32_t size = (uint32_t)little_endian(packed.at, 4);
        packed.at += 4;
        if (!size) {
            int64_t told = flags & LZ4_CONTENT_SIZE ? (int64_t)little_endian(header + 2, 8) : done;
            return packed.at == packed.end && told == done ? done : -1;
        }
        int is_packed = !(size & LZ4_NOT_PACKED);
        int64_t room = most - done < block_most ? most - done : block_most;
        int64_t made = size &= ~LZ4_NOT_PACKED;
        if (!size || size > block_most || size > packed.end - packed.at)
            return -1;
        if (is_packed) {
            int64_t window = flags & LZ4_INDEPENDENT ? 0 : done < LZ4_WINDOW ? done : LZ4_WINDOW;
            made = unpack_block((const char *)packed.at, (char *)unpacked + done, (int)size, (int)room,
                                (const char *)unpacked + done - window, (int)window);
            if (made <= 0)
                return -1;
        } else if (made > room)
            return -1;
        else
            memcpy(unpacked + done, packed.at, made);
        done += made;
        packed.at += size;
    }
    return -1;
}

/* Fields of the request. Each reader returns 0 if the end cuts the field off, or if it is unusual. */

static inline uint64_t
big_endian(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | at[i];
    return value;
}

static inline int
read_int16(Cursor *cursor, int16_t *value)
{
    if (cursor->end - cursor->at < 2)
        return 0;
    *value = (int16_t)big_endian(cursor->at, 2);
    cursor->at += 2;
    return 1;
}

static inline int
read_int32(Cursor *cursor, int32_t *value)
{
    if (cursor->end - cursor->at < 4)
        return 0;
    *value = (int32_t)big_endian(cursor->at, 4);
    cursor->at += 4;
    return 1;
}

/* A length or count plus one, in its shortest form. 28 bits are plenty for the bytes of a frame. */
static inline int
read_compact(Cursor *cursor, int32_t *value)
{
    uint32_t bits = 0;
    for (int shift = 0; shift <= 21; shift += 7) {
        if (cursor->at >= cursor->end)
            return 0;
        uint8_t byte = *cursor->at++;
        bits |= (uint32_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int32_t)bits - 1;
            return byte != 0 || shift == 0;
        }
    }
    return 0;
}

static inline int
read_size(Cursor *cursor, int is_flexible, int32_t *value)
{
    return is_flexible ? read_compact(cursor, value) : read_int32(cursor, value);
}

static inline int
has_no_tags(Cursor *cursor, int is_flexible)
{
    if (!is_flexible)
        return 1;
    return cursor->at < cursor->end && *cursor->at++ == 0;
}

/* The header of the request, with a client id in ASCII: any other one is for the usual way to check. */
static int
skip_header(Cursor *frame, int is_flexible)
{
    int16_t size;
    if (frame->end - frame->at < AFTER_CORRELATION_ID)
        return 0;
    frame->at += AFTER_CORRELATION_ID;
    if (!read_int16(frame, &size) || size < -1 || size > frame->end - frame->at)
        return 0;
    for (; size > 0; size--)
        if (*frame->at++ & 0x80)
            return 0;
    return has_no_tags(frame, is_flexible);
}

typedef struct {
    const uint8_t *name;
    int32_t size;
    int first;
    int end;
} Topic;

typedef struct {
    const uint8_t *batch;
    int32_t size;
    int32_t index;
    int codec;
    int32_t count;
    int64_t base_ms;
    int64_t earliest_ms;
    int64_t max_ms;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t sequence;
    int64_t nulls;
    int is_read;
} Batch;

typedef struct {
    int64_t units;
    int64_t partition_units;
    int64_t records_most;
    int64_t headers_most;
    int64_t headers_a_record;
    int64_t unpacked_most;
    int64_t unpacked_left;
} Bounds;

/* The header of the only batch of a partition: complete, of a client, and nothing in it to refuse or to change. */
static int
read_header(Batch *batch, int zstd_allowed, int64_t records_most)
{
    const uint8_t *at = batch->batch;
    if (batch->size < HEADER_SIZE || big_endian(at, 8) != 0 || at[16] != 2)
        return 0;
    if ((int64_t)(int32_t)big_endian(at + 8, 4) + LOG_OVERHEAD != batch->size)
        return 0;
    int attributes = (int)big_endian(at + 21, 2);
    batch->codec = attributes;
    if (attributes & ~CODECS || attributes > ZSTD || (attributes == ZSTD && !zstd_allowed))
        return 0;
    int64_t last_offset_delta = (int32_t)big_endian(at + 23, 4);
    batch->base_ms = batch->earliest_ms = (int64_t)big_endian(at + 27, 8);
    batch->max_ms = (int64_t)big_endian(at + 35, 8);
    batch->producer_id = (int64_t)big_endian(at + 43, 8);
    batch->producer_epoch = (int16_t)big_endian(at + 51, 2);
    batch->sequence = (int32_t)big_endian(at + 53, 4);
    batch->count = (int32_t)big_endian(at + 57, 4);
    batch->nulls = batch->is_read = 0;
    if (batch->count <= 0 || batch->count > records_most || last_offset_delta + 1 != batch->count)
        return 0;
    return batch->producer_id < 0 || batch->sequence >= 0;
}

/* All records of a batch. */
static int
read_records(Batch *batch, Cursor body, Bounds *bounds)
{
    const uint8_t *base = body.at;
    int64_t row[FIELDS], least = 0, greatest = INT64_MIN, headers = 0;
    if (batch->count > (body.end - body.at) / LEAST_RECORD)
        return 0;
    for (int32_t i = 0; i < batch->count; i++) {
        int64_t found = read_record(&body, base, i, bounds->headers_a_record, row);
        if (found < 0)
            return 0;
        headers += found;
        if (headers > bounds->headers_most || (i + headers) / PER_UNIT >= bounds->units)
            return 0;
        if (row[TIMESTAMP] < least)
            least = row[TIMESTAMP];
        if (row[TIMESTAMP] > greatest)
            greatest = row[TIMESTAMP];
        if (row[KEY_END] < 0)
            batch->nulls = NULL_KEYS;
    }
    int64_t latest_ms;
    if (body.at != body.end || __builtin_add_overflow(batch->base_ms, greatest, &latest_ms) || latest_ms != batch->max_ms
        || __builtin_add_overflow(batch->base_ms, least, &batch->earliest_ms))
        return 0;
    bounds->units -= (batch->count + headers) / PER_UNIT;
    batch->is_read = 1;
    return 1;
}

/* The records of a batch with a codec, if it can be opened here. The others are left unread. 0 if they cannot be plain. */
static int
read_packed(Batch *batch, Cursor packed, Bounds *bounds)
{
    if (batch->codec != LZ4 || unpack_block == NULL || bounds->unpacked_most <= 0)
        return 1;
    int64_t most = bounds->unpacked_most < bounds->unpacked_left ? bounds->unpacked_most : bounds->unpacked_left;
    int64_t size = unpack_frame(packed, most);
    if (size < 0) {
        int had_room = most == bounds->unpacked_most;
        bounds->unpacked_most = 0; /* it took time too, so no further batch is tried */
        return had_room;
    }
    bounds->unpacked_left -= size;
    return read_records(batch, (Cursor){unpacked, unpacked + size}, bounds);
}

/* Topics, partitions and headers of batches. 0 if anything is unusual. */
static int
read_topics(Cursor *body, int version, int32_t topics, Topic *topic, Batch *batches, Bounds *bounds)
{
    int is_flexible = version >= FIRST_FLEXIBLE, count = 0;
    for (int t = 0; t < topics; t++, topic++) {
        topic->size = UUID_SIZE;
        if (version < FIRST_WITH_TOPIC_IDS) {
            int16_t size = 0;
            if (is_flexible ? !read_compact(body, &topic->size) : !read_int16(body, &size))
                return 0;
            if (!is_flexible)
                topic->size = size;
        }
        if (topic->size < 0 || topic->size > NAME_MOST || topic->size > body->end - body->at)
            return 0;
        topic->name = body->at;
        body->at += topic->size;
        for (Topic *earlier = topic - t; earlier < topic; earlier++)
            if (earlier->size == topic->size && !memcmp(earlier->name, topic->name, topic->size))
                return 0;
        int32_t partitions;
        if (!read_size(body, is_flexible, &partitions) || partitions <= 0 || partitions > PARTITIONS_MOST - count)
            return 0;
        topic->first = count;
        topic->end = count + partitions;
        for (; count < topic->end; count++) {
            Batch *batch = batches + count;
            if (!read_int32(body, &batch->index) || !read_size(body, is_flexible, &batch->size))
                return 0;
            for (int i = topic->first; i < count; i++)
                if (batches[i].index == batch->index)
                    return 0;
            if (batch->size < HEADER_SIZE || batch->size > body->end - body->at)
                return 0;
            batch->batch = body->at;
            body->at += batch->size;
            if (!read_header(batch, version >= FIRST_WITH_ZSTD, bounds->records_most) || !has_no_tags(body, is_flexible))
                return 0;
            bounds->units -= bounds->partition_units;
        }
        if (!has_no_tags(body, is_flexible))
            return 0;
    }
    return has_no_tags(body, is_flexible) && body->at == body->end && bounds->units > 0;
}

/* Py_BuildValue takes three times as long. */
static PyObject *
numbers(const int64_t *values, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        if (value == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, value);
    }
    return tuple;
}

static PyObject *
facts_of(const Topic *topic, const Batch *batches, const uint8_t *base, int version)
{
    int64_t size_most = 0, codecs = 0, earliest_ms = INT64_MAX, latest_ms = INT64_MIN, nulls = 0;
    PyObject *list = PyList_New(topic->end - topic->first);
    for (int i = topic->first; list != NULL && i < topic->end; i++) {
        const Batch *batch = batches + i;
        int64_t start = batch->batch - base;
        int64_t row[] = {batch->index, start, start + batch->size, batch->size, batch->codec, batch->count, batch->base_ms,
                         batch->max_ms, batch->producer_id, batch->producer_epoch, batch->sequence, batch->is_read};
        PyObject *facts = numbers(row, sizeof row / sizeof *row);
        if (facts == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i - topic->first, facts);
        size_most = batch->size > size_most ? batch->size : size_most;
        codecs |= 1 << batch->codec;
        earliest_ms = batch->earliest_ms < earliest_ms ? batch->earliest_ms : earliest_ms;
        latest_ms = batch->max_ms > latest_ms ? batch->max_ms : latest_ms;
        nulls |= batch->nulls;
    }
    if (list == NULL)
        return NULL;
    int64_t row[] = {size_most, codecs, earliest_ms, latest_ms, nulls};
    PyObject *summary = numbers(row, sizeof row / sizeof *row);
    if (summary == NULL) {
        Py_DECREF(list);
        return NULL;
    }
    const char *format = version >= FIRST_WITH_TOPIC_IDS ? "y#NN" : "s#NN";
    return Py_BuildValue(format, (const char *)topic->name, (Py_ssize_t)topic->size, list, summary);
}

/* The fields of the request before its topics. */
typedef struct {
    int64_t position;
    int16_t acks;
    int32_t timeout_ms;
} Request;

/* None, also in the place of a name that is not UTF-8. NULL only when memory has ended. */
static PyObject *
result_of(const Request *request, int64_t units, int32_t topics, const Topic *topic, const Batch *batches, const uint8_t *base,
          int version)
{
    PyObject *list = PyList_New(topics);
    for (int t = 0; list != NULL && t < topics; t++) {
        PyObject *facts = facts_of(topic + t, batches, base, version);
        if (facts == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, t, facts);
    }
    if (list != NULL) {
        int all_read = 1;
        for (int i = 0; i < topic[topics - 1].end; i++)
            all_read &= batches[i].is_read;
        return Py_BuildValue("LiiLNN", (long long)request->position, (int)request->acks, (int)request->timeout_ms,
                             (long long)units, PyBool_FromLong(all_read), list);
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* The fields before the topics, and how many topics there are. 0 if anything is unusual, such as a transaction. */
static int
read_start(Cursor *frame, const uint8_t *base, int is_flexible, Request *request, int32_t *topics)
{
    int16_t null_id;
    if (!skip_header(frame, is_flexible))
        return 0;
    request->position = frame->at - base;
    if (is_flexible ? frame->at == frame->end || *frame->at++ != 0 : !read_int16(frame, &null_id) || null_id != -1)
        return 0;
    return read_int16(frame, &request->acks) && request->acks >= -1 && request->acks <= 1
           && read_int32(frame, &request->timeout_ms) && read_size(frame, is_flexible, topics) && *topics > 0
           && *topics <= PARTITIONS_MOST;
}

/* Checksums and records. 0 if anything is unusual. */
static int
read_batches(Batch *batch, int count, Bounds *bounds)
{
    for (; count; count--, batch++) {
        const uint8_t *at = batch->batch;
        if (crc32c(at + CHECKED_FROM, batch->size - CHECKED_FROM) != (uint32_t)big_endian(at + 17, 4))
            return 0;
        Cursor rest = {at + HEADER_SIZE, at + batch->size};
        if (batch->codec ? !read_packed(batch, rest, bounds) : !read_records(batch, rest, bounds))
            return 0;
    }
    return 1;
}

#define BOUNDS 6

PyDoc_STRVAR(read_frame_doc,
"read_frame(frame, version, (units, partition_units, records_most, headers_most, headers_a_record, unpacked_most))\n\
The facts of a plain Produce request (see plain_produce.py), or None.");

static PyObject *
read_frame(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    long long given[BOUNDS];
    if (nargs != 3 || !PyTuple_Check(args[2]) || PyTuple_GET_SIZE(args[2]) != BOUNDS) {
        PyErr_SetString(PyExc_TypeError, "read_frame takes a frame, a version and a tuple of six bounds");
        return NULL;
    }
    long long version = PyLong_AsLongLong(args[1]);
    if (version == -1 && PyErr_Occurred())
        return NULL;
    for (int i = 0; i < BOUNDS; i++) {
        given[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(args[2], i));
        if (given[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    int64_t unpacked_most = given[5] < UNPACKED_MOST ? given[5] : UNPACKED_MOST;
    Bounds bounds = {given[0], given[1], given[2], given[3], given[4], unpacked_most, UNPACKED_A_CALL};
    Py_buffer buffer;
    if (PyObject_GetBuffer(args[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *base = buffer.buf;
    PyObject *result = Py_None;
    Topic topics[PARTITIONS_MOST];
    Batch batches[PARTITIONS_MOST];
    Request request;
    int32_t count;
    Cursor frame = {base, base + buffer.len};
    if (buffer.len <= BYTES_MOST && version >= OLDEST && version <= NEWEST && bounds.partition_units >= 1
        && bounds.headers_a_record >= 0 && read_start(&frame, base, version >= FIRST_FLEXIBLE, &request, &count)
        && read_topics(&frame, (int)version, count, topics, batches, &bounds)
        && read_batches(batches, topics[count - 1].end, &bounds))
        result = result_of(&request, bounds.units, count, topics, batches, base, (int)version);
    else
        Py_INCREF(result);
    PyBuffer_Release(&buffer);
    return result;
}

/* The answer. Its objects are those of the interpreter, so only types are checked, and nothing is bounded but the bytes. */

#define PARTITION_MOST (30 + 6)
#define TOPIC_MOST (NAME_MOST + 12)
#define FIRST_WITH_MESSAGES 8
#define FIRST_PACKED 5

static inline uint8_t *
put(uint8_t *at, uint64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
    return at + size;
}

static inline uint8_t *
put_compact(uint8_t *at, uint32_t value)
{
    for (value++; value > 0x7F; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static inline uint8_t *
put_count(uint8_t *at, int is_flexible, Py_ssize_t count)
{
    return is_flexible ? put_compact(at, (uint32_t)count) : put(at, (uint64_t)count, 4);
}

/* Name or id. NULL with or without an exception if it is something else. */
static uint8_t *
put_name(uint8_t *at, PyObject *name, int version)
{
    Py_ssize_t size;
    const char *bytes;
    if (version >= FIRST_WITH_TOPIC_IDS) {
        if (!PyBytes_Check(name) || PyBytes_GET_SIZE(name) != UUID_SIZE)
            return NULL;
        memcpy(at, PyBytes_AS_STRING(name), UUID_SIZE);
        return at + UUID_SIZE;
    }
    if (!PyUnicode_Check(name) || (bytes = PyUnicode_AsUTF8AndSize(name, &size)) == NULL || size > NAME_MOST)
        return NULL;
    at = version >= FIRST_FLEXIBLE ? put_compact(at, (uint32_t)size) : put(at, (uint64_t)size, 2);
    memcpy(at, bytes, size);
    return at + size;
}

/* Index, no error, base offset, no time of the append, log start, and that there are no messages. */
static uint8_t *
put_partition(uint8_t *at, PyObject *facts, PyObject *result, int version)
{
    if (!PyTuple_Check(facts) || PyTuple_GET_SIZE(facts) == 0 || !PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != 2)
        return NULL;
    long long index = PyLong_AsLongLong(PyTuple_GET_ITEM(facts, 0));
    long long base_offset = PyLong_AsLongLong(PyTuple_GET_ITEM(result, 0));
    long long log_start = PyLong_AsLongLong(PyTuple_GET_ITEM(result, 1));
    if (PyErr_Occurred())
        return NULL;
    at = put(at, (uint64_t)index, 4);
    at = put(at, 0, 2);
    at = put(at, (uint64_t)base_offset, 8);
    at = put(at, UINT64_MAX, 8);
    at = put(at, (uint64_t)log_start, 8);
    if (version >= FIRST_FLEXIBLE)
        return put(at, 0x010000, 3);
    return version >= FIRST_WITH_MESSAGES ? put(at, 0xFFFF, 6) : at;
}

static uint8_t *
put_topics(uint8_t *at, PyObject *topics, PyObject *results, int version)
{
    int is_flexible = version >= FIRST_FLEXIBLE;
    Py_ssize_t done = 0;
    at = put_count(at, is_flexible, PyList_GET_SIZE(topics));
    for (Py_ssize_t t = 0; t < PyList_GET_SIZE(topics); t++) {
        PyObject *topic = PyList_GET_ITEM(topics, t);
        if (!PyTuple_Check(topic) || PyTuple_GET_SIZE(topic) < 2 || !PyList_Check(PyTuple_GET_ITEM(topic, 1)))
            return NULL;
        PyObject *partitions = PyTuple_GET_ITEM(topic, 1);
        Py_ssize_t count = PyList_GET_SIZE(partitions);
        if (count > PyList_GET_SIZE(results) - done || (at = put_name(at, PyTuple_GET_ITEM(topic, 0), version)) == NULL)
            return NULL;
        at = put_count(at, is_flexible, count);
        for (Py_ssize_t p = 0; p < count; p++, done++) {
            at = put_partition(at, PyList_GET_ITEM(partitions, p), PyList_GET_ITEM(results, done), version);
            if (at == NULL)
                return NULL;
        }
        if (is_flexible)
            *at++ = 0;
    }
    at = put(at, 0, 4);
    if (is_flexible)
        *at++ = 0;
    return done == PyList_GET_SIZE(results) ? at : NULL;
}

PyDoc_STRVAR(pack_answer_doc,
"pack_answer(version, topics, results, correlation_id)\n\
The bytes of a response without errors (see packed_in_python of plain_produce.py), or None.");

static PyObject *
pack_answer(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !PyList_Check(args[1]) || !PyList_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "pack_answer takes a version, two lists and a correlation id");
        return NULL;
    }
    int has_header = args[3] != Py_None;
    long version = PyLong_AsLong(args[0]), correlation_id = has_header ? PyLong_AsLong(args[3]) : 0;
    if ((version == -1 || correlation_id == -1) && PyErr_Occurred())
        return NULL;
    Py_ssize_t topics = PyList_GET_SIZE(args[1]), partitions = PyList_GET_SIZE(args[2]);
    if (version < FIRST_PACKED || version > NEWEST || topics > PARTITIONS_MOST || partitions > PARTITIONS_MOST)
        Py_RETURN_NONE;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, 32 + topics * TOPIC_MOST + partitions * PARTITION_MOST);
    if (bytes == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AS_STRING(bytes), *body = begin;
    if (has_header) {
        body = put(begin + 4, (uint64_t)correlation_id, 4);
        if (version >= FIRST_FLEXIBLE)
            *body++ = 0;
    }
    uint8_t *end = put_topics(body, args[1], args[2], (int)version);
    if (end != NULL) {
        if (has_header)
            put(begin, (uint64_t)(end - begin - 4), 4);
        _PyBytes_Resize(&bytes, end - begin);
        return bytes;
    }
    Py_DECREF(bytes);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(checksum_doc, "checksum(data, by_instruction)\nCRC-32C by one of the two ways, for the tests.");

static PyObject *
checksum(PyObject *module, PyObject *args)
{
    Py_buffer data;
    int by_instruction;
    if (!PyArg_ParseTuple(args, "y*p", &data, &by_instruction))
        return NULL;
    uint32_t crc;
    if (by_instruction)
        crc = crc32c(data.buf, (size_t)data.len);
    else
        crc = ~crc_by_tables(~0u, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

PyDoc_STRVAR(use_lz4_doc,
"use_lz4(path)\n\
Unpack lz4 by the library in the extension module at this path, from now on. Whether its functions are found there.");

static PyObject *
use_lz4(PyObject *module, PyObject *path)
{
    PyObject *bytes;
    UnpackBlock found = NULL;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
#ifndef _WIN32
    /* It stays loaded as long as the process. */
    void *opened = dlopen(PyBytes_AS_STRING(bytes), RTLD_NOW | RTLD_LOCAL);
    if (opened != NULL)
        found = (UnpackBlock)dlsym(opened, "LZ4_decompress_safe_usingDict");
    if (found != NULL)
        unpack_block = found;
    else if (opened != NULL)
        dlclose(opened);
#endif
    Py_DECREF(bytes);
    return PyBool_FromLong(found != NULL);
}

static PyMethodDef methods[] = {
    {"read_frame", (PyCFunction)(void (*)(void))read_frame, METH_FASTCALL, read_frame_doc},
    {"use_lz4", use_lz4, METH_O, use_lz4_doc},
    {"pack_answer", (PyCFunction)(void (*)(void))pack_answer, METH_FASTCALL, pack_answer_doc},
    {"checksum", checksum, METH_VARARGS, checksum_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_produce", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__produce(void)
{
    fill_tables();
#if HAS_INSTRUCTION
    __builtin_cpu_init();
    processor_has_it = __builtin_cpu_supports("sse4.2");
    if (processor_has_it)
        fill_shifts();
#endif
    return PyModuleDef_Init(&module);
}
