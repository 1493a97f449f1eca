/* The compiled gait of UnifiedLog.append_next (log/unified_log.py): what that method does, in one call; and of set_high_watermark.

   All state stays in the slots of the log's own objects, and nothing is kept between two calls but the places of these slots. So
   whatever else changes a log, such as a truncation, a roll or a failed write, finds here no second owner. Where anything is
   unusual it returns -1 before any effect, and append_as_leader decides. A batch that the disk takes whole is written here, in the
   place where the file's own write_now would write it. Anything else is for write_now, whose error passes through. Whatever may
   be refused memory is made before the write, as far as that can be. */

#include "_slots.h"
#ifndef _WIN32
#include <unistd.h>
#endif

#define MAX_INT32 0x7FFFFFFF
#define NO_TRANSACTION (-1)
#define OFFSET_ENTRY_SIZE 8
#define TIME_ENTRY_SIZE 12
#define STAMP_SIZE 16
#define LOG_OVERHEAD 12

enum {
    LOG_END_OFFSET, LOG_SEGMENTS, LOG_STATE, LOG_EPOCHS, LOG_LATEST_EPOCH, LOG_BOUNDED, LOG_ROOM,
    LOG_LATEST_MS, LOG_LAST_OFFSET, LOG_HIGH_WATERMARK, LOG_IS_DURABLE,
    LIST_ITEMS,
    EPOCHS_CHANGED,
    SEGMENT_FILE, SEGMENT_LEFT_BYTES, SEGMENT_BASE_OFFSET, SEGMENT_SIZE, SEGMENT_SINCE_ENTRY,
    SEGMENT_INTERVAL, SEGMENT_MAX_MS, SEGMENT_MAX_OFFSET, SEGMENT_INDEXES, SEGMENT_TAIL_OFFSETS, SEGMENT_TAIL_POSITIONS,
    INDEXES_PAIR,
    INDEX_TAIL, INDEX_TAIL_AT, INDEX_SIZE, INDEX_BASE_OFFSET,
    STATE_END_OFFSET, STATE_PRODUCERS, STATE_SNAPSHOT, STATE_VERIFICATIONS, STATE_UNSTABLE,
    VERIFICATIONS_BY_PRODUCER,
    PRODUCER_EPOCH, PRODUCER_BATCHES, PRODUCER_TRANSACTION, PRODUCER_LAST_MS,
    FILE_DESCRIPTOR, FILE_SIZE,
    SLOTS
};

enum { LOG, LIST, EPOCHS, SEGMENT, INDEXES, INDEX, STATE, VERIFICATIONS, PRODUCER, FILE_, OWNERS };

static const struct {
    int owner;
    const char *name;
} slot_names[SLOTS] = {
    {LOG, "log_end_offset"}, {LOG, "_segments"}, {LOG, "_state"}, {LOG, "_epochs"}, {LOG, "_latest_epoch"},
    {LOG, "_bounded"}, {LOG, "_room"}, {LOG, "_latest_ms"}, {LOG, "_last_offset"},
    {LOG, "high_watermark"}, {LOG, "is_durable"},
    {LIST, "items"},
    {EPOCHS, "changed"},
    {SEGMENT, "_file"}, {SEGMENT, "_may_have_left_bytes"}, {SEGMENT, "base_offset"}, {SEGMENT, "size"},
    {SEGMENT, "bytes_since_index_entry"}, {SEGMENT, "index_interval_bytes"},
    {SEGMENT, "max_timestamp_ms"}, {SEGMENT, "max_timestamp_offset"}, {SEGMENT, "indexes"}, {SEGMENT, "_tail_offsets"},
    {SEGMENT, "_tail_positions"},
    {INDEXES, "_pair"},
    {INDEX, "_tail"}, {INDEX, "_tail_at"}, {INDEX, "size"}, {INDEX, "base_offset"},
    {STATE, "end_offset"}, {STATE, "producers"}, {STATE, "snapshot"}, {STATE, "_verifications"},
    {STATE, "first_unstable_offset"},
    {VERIFICATIONS, "by_producer"},
    {PRODUCER, "epoch"}, {PRODUCER, "batches"}, {PRODUCER, "transaction_first_offset"}, {PRODUCER, "last_timestamp_ms"},
    {FILE_, "_fd"}, {FILE_, "_size"},
};

/* What `method` was told. */
static PyTypeObject *owners[OWNERS], *batch_type;
static Py_ssize_t places[SLOTS];
static Py_ssize_t tail_batches, retained_batches, offset_page, time_page;
static PyObject *set_high_watermark_in_python;
static PyObject *write_name, *append_name, *note_name, *minus_one;

/* Borrowed. NULL if the slot is empty, or the object is another one than expected. */
static inline PyObject *
found(PyObject *object, int slot)
{
    PyTypeObject *owner = owners[slot_names[slot].owner];
    if (object == NULL || (Py_TYPE(object) != owner && !PyType_IsSubtype(Py_TYPE(object), owner)))
        return NULL;
    return *slot_at(object, places[slot]);
}

static inline int
number(PyObject *object, int slot, int64_t *value)
{
    return as_number(found(object, slot), value);
}

/* Takes over the reference to the value. */
static inline void
put(PyObject *object, int slot, PyObject *value)
{
    put_at(object, places[slot], value);
}

static inline void
big_endian(char *at, uint64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--, value >>= 8)
        at[i] = (char)value;
}

/* What an append needs and changes. References are borrowed; those in `held` are held. */
typedef struct {
    PyObject *log, *segment, *state, *producer, *file, *offsets, *times, *tail_offsets, *tail_positions;
    PyObject *held[8];
    int holds;
    int64_t first_offset, end, size, count, position, timestamp_ms, sequence;
    int64_t max_ms, max_offset, since_entry, interval, base_offset, offsets_size, times_size;
    int is_latest, adds_entry, adds_time;
} Append;

/* Made before the write. */
typedef struct {
    PyObject *end, *last_offset, *position, *size, *since_entry, *offsets_size, *times_size, *batch;
} Made;

static void
hold(Append *append, PyObject *object)
{
    Py_INCREF(object);
    append->held[append->holds++] = object;
}

/* Whether the batch fits the active segment and its epoch. */
static int
fits(Append *append, int64_t leader_epoch)
{
    PyObject *log = append->log;
    int64_t room, latest_ms, last_offset, latest_epoch;
    PyObject *items = found(found(log, LOG_SEGMENTS), LIST_ITEMS);
    if (items == NULL || !PyList_CheckExact(items) || PyList_GET_SIZE(items) == 0)
        return 0;
    PyObject *segment = append->segment = PyList_GET_ITEM(items, PyList_GET_SIZE(items) - 1);
    if (!number(log, LOG_END_OFFSET, &append->first_offset) || !number(log, LOG_ROOM, &room)
        || !number(log, LOG_LATEST_MS, &latest_ms) || !number(log, LOG_LAST_OFFSET, &last_offset)
        || !number(log, LOG_LATEST_EPOCH, &latest_epoch) || found(log, LOG_BOUNDED) != segment
        || !number(segment, SEGMENT_SIZE, &append->position) || !number(segment, SEGMENT_BASE_OFFSET, &append->base_offset)
        || found(found(log, LOG_EPOCHS), EPOCHS_CHANGED) != Py_False)
        return 0;
    return !__builtin_add_overflow(append->first_offset, append->count, &append->end) && append->timestamp_ms <= latest_ms
           && append->position > 0 && append->position <= room - append->size && append->position <= MAX_INT32
           && append->end <= last_offset && append->base_offset >= 0 && append->end - append->base_offset <= MAX_INT32
           && leader_epoch == latest_epoch;
}

static int
takes_entry(PyObject *index, Py_ssize_t page, int64_t *size, int64_t base_offset)
{
    int64_t tail_at, base;
    PyObject *tail = found(index, INDEX_TAIL);
    return tail != NULL && PyByteArray_CheckExact(tail) && PyByteArray_GET_SIZE(tail) < page
           && number(index, INDEX_TAIL_AT, &tail_at) && tail_at % page == 0 && number(index, INDEX_SIZE, size)
           && number(index, INDEX_BASE_OFFSET, &base) && base == base_offset;
}

/* The last timestamp of a time index, which is in memory. */
static int
last_time(Append *append, int64_t *timestamp_ms)
{
    PyObject *tail = found(append->times, INDEX_TAIL);
    Py_ssize_t size = PyByteArray_GET_SIZE(tail);
    *timestamp_ms = -1;
    if (!size)
        return !append->times_size;
    if (size < TIME_ENTRY_SIZE)
        return 0;
    const uint8_t *at = (const uint8_t *)PyByteArray_AS_STRING(tail) + size - TIME_ENTRY_SIZE;
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    *timestamp_ms = (int64_t)value;
    return 1;
}

/* What the segment needs for its memory of batches and for its indexes. */
static int
reads_segment(Append *append)
{
    PyObject *segment = append->segment;
    append->file = found(segment, SEGMENT_FILE);
    append->tail_offsets = found(segment, SEGMENT_TAIL_OFFSETS);
    append->tail_positions = found(segment, SEGMENT_TAIL_POSITIONS);
    if (append->file == NULL || append->file == Py_None || append->tail_offsets == NULL || append->tail_positions == NULL
        || !number(segment, SEGMENT_MAX_MS, &append->max_ms) || !number(segment, SEGMENT_MAX_OFFSET, &append->max_offset)
        || !number(segment, SEGMENT_SINCE_ENTRY, &append->since_entry)
        || !number(segment, SEGMENT_INTERVAL, &append->interval))
        return 0;
    Py_ssize_t tail = PyObject_Size(append->tail_offsets);
    if (tail <= 0 || tail >= tail_batches)
        return 0;
    append->is_latest = append->timestamp_ms > append->max_ms;
    if (append->is_latest) {
        append->max_ms = append->timestamp_ms;
        append->max_offset = append->end - 1;
    }
    append->adds_entry = append->since_entry > append->interval;
    append->adds_time = 0;
    append->since_entry = append->adds_entry ? append->size : append->since_entry + append->size;
    if (!append->adds_entry)
        return 1;
    PyObject *pair = found(found(segment, SEGMENT_INDEXES), INDEXES_PAIR);
    if (pair == NULL || !PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2)
        return 0;
    append->offsets = PyTuple_GET_ITEM(pair, 0);
    append->times = PyTuple_GET_ITEM(pair, 1);
    int64_t last_ms;
    if (!takes_entry(append->offsets, offset_page, &append->offsets_size, append->base_offset)
        || !takes_entry(append->times, time_page, &append->times_size, append->base_offset) || !last_time(append, &last_ms))
        return 0;
    append->adds_time = append->max_ms > last_ms;
    return append->max_offset >= append->base_offset;
}

/* Whether the batch follows that of its producer, if it has one. See ProducerStateManager.continued. */
static int
follows(Append *append, PyObject *producer_id, int64_t producer_epoch)
{
    PyObject *log = append->log, *state = append->state = found(log, LOG_STATE);
    int64_t id, epoch, transaction, last_sequence;
    if (found(state, STATE_END_OFFSET) == NULL || !as_number(producer_id, &id))
        return 0;
    append->producer = NULL;
    if (id < 0)
        return 1;
    PyObject *producers = found(state, STATE_PRODUCERS);
    PyObject *by_producer = found(found(state, STATE_VERIFICATIONS), VERIFICATIONS_BY_PRODUCER);
    if (producers == NULL || !PyDict_CheckExact(producers) || by_producer == NULL || !PyDict_CheckExact(by_producer)
        || PyDict_GET_SIZE(by_producer) || found(state, STATE_SNAPSHOT) == NULL)
        return 0;
    PyObject *producer = append->producer = PyDict_GetItemWithError(producers, producer_id);
    PyObject *batches = found(producer, PRODUCER_BATCHES);
    if (batches == NULL || !PyList_CheckExact(batches) || PyList_GET_SIZE(batches) == 0
        || PyList_GET_SIZE(batches) > retained_batches || found(producer, PRODUCER_LAST_MS) == NULL
        || !number(producer, PRODUCER_EPOCH, &epoch) || !number(producer, PRODUCER_TRANSACTION, &transaction))
        return 0;
    PyObject *last = PyList_GET_ITEM(batches, PyList_GET_SIZE(batches) - 1);
    return Py_TYPE(last) == batch_type && as_number(PyTuple_GET_ITEM(last, 0), &last_sequence) && epoch == producer_epoch
           && transaction == NO_TRANSACTION && append->sequence >= 0 && append->sequence == last_sequence + 1;
}

static PyObject *
new_batch(Append *append)
{
    int64_t delta = append->count - 1;
    PyObject *fields[4] = {PyLong_FromLongLong((append->sequence + delta) & MAX_INT32), PyLong_FromLongLong(append->end - 1),
                           PyLong_FromLongLong(delta), PyLong_FromLongLong(append->timestamp_ms)};
    PyObject *batch = NULL;
    if (fields[0] != NULL && fields[1] != NULL && fields[2] != NULL && fields[3] != NULL)
        batch = batch_type->tp_alloc(batch_type, 4);
    for (int i = 0; i < 4; i++) {
        if (batch != NULL)
            PyTuple_SET_ITEM(batch, i, fields[i]);
        else
            Py_XDECREF(fields[i]);
    }
    return batch;
}

static int
make(Append *append, Made *made)
{
    made->end = PyLong_FromLongLong(append->end);
    made->last_offset = PyLong_FromLongLong(append->end - 1);
    made->position = PyLong_FromLongLong(append->position);
    made->size = PyLong_FromLongLong(append->position + append->size);
    made->since_entry = PyLong_FromLongLong(append->since_entry);
    if (made->end == NULL || made->last_offset == NULL || made->position == NULL || made->size == NULL
        || made->since_entry == NULL)
        return 0;
    if (append->adds_entry
        && (made->offsets_size = PyLong_FromLongLong(append->offsets_size + OFFSET_ENTRY_SIZE)) == NULL)
        return 0;
    if (append->adds_time && (made->times_size = PyLong_FromLongLong(append->times_size + TIME_ENTRY_SIZE)) == NULL)
        return 0;
    return append->producer == NULL || (made->batch = new_batch(append)) != NULL;
}

static char *
longer(PyObject *tail, Py_ssize_t more)
{
    Py_ssize_t size = PyByteArray_GET_SIZE(tail);
    return PyByteArray_Resize(tail, size + more) < 0 ? NULL : PyByteArray_AS_STRING(tail) + size;
}

static int
add_entries(Append *append, Made *made)
{
    char *at = longer(found(append->offsets, INDEX_TAIL), OFFSET_ENTRY_SIZE);
    if (at == NULL)
        return 0;
    big_endian(at, (uint64_t)(append->end - 1 - append->base_offset), 4);
    big_endian(at + 4, (uint64_t)append->position, 4);
    put(append->offsets, INDEX_SIZE, Py_NewRef(made->offsets_size));
    if (!append->adds_time)
        return 1;
    at = longer(found(append->times, INDEX_TAIL), TIME_ENTRY_SIZE);
    if (at == NULL)
        return 0;
    big_endian(at, (uint64_t)append->max_ms, 8);
    big_endian(at + 8, (uint64_t)(append->max_offset - append->base_offset), 4);
    put(append->times, INDEX_SIZE, Py_NewRef(made->times_size));
    return 1;
}

static int
call(PyObject *object, PyObject *name, PyObject *argument)
{
    PyObject *result = PyObject_CallMethodOneArg(object, name, argument);
    Py_XDECREF(result);
    return result != NULL;
}

/* LogSegment._note */
static int
note(Append *append, Made *made, PyObject *timestamp_ms)
{
    PyObject *segment = append->segment;
    if (append->is_latest) {
        put(segment, SEGMENT_MAX_MS, Py_NewRef(timestamp_ms));
        put(segment, SEGMENT_MAX_OFFSET, Py_NewRef(made->last_offset));
    }
    if (append->adds_entry && !add_entries(append, made))
        return 0;
    put(segment, SEGMENT_SINCE_ENTRY, Py_NewRef(made->since_entry));
    put(segment, SEGMENT_SIZE, Py_NewRef(made->size));
    return call(append->tail_offsets, append_name, made->last_offset)
           && call(append->tail_positions, append_name, made->position);
}

/* ProducerStateManager.go_on */
static int
go_on(Append *append, Made *made, PyObject *producer_id, PyObject *timestamp_ms)
{
    PyObject *batches = found(append->producer, PRODUCER_BATCHES), *snapshot = found(append->state, STATE_SNAPSHOT);
    if (snapshot != Py_None && !call(snapshot, note_name, producer_id))
        return 0;
    if (PyList_GET_SIZE(batches) == retained_batches && PyList_SetSlice(batches, 0, 1, NULL) < 0)
        return 0;
    if (PyList_Append(batches, made->batch) < 0)
        return 0;
    put(append->producer, PRODUCER_LAST_MS, Py_NewRef(timestamp_ms));
    return 1;
}

static void
stamp(char *at, Append *append, int64_t leader_epoch)
{
    big_endian(at, (uint64_t)append->first_offset, 8);
    big_endian(at + 8, (uint64_t)(append->size - LOG_OVERHEAD), 4);
    big_endian(at + 12, (uint64_t)leader_epoch, 4);
}

/* Whether the file has taken the whole batch at its end. Otherwise nothing has changed but bytes beyond the end, where write_now
   writes the same. */
static int
is_written(PyObject *file, Py_buffer *batch)
{
#ifndef _WIN32
    int64_t descriptor, size;
    if (Py_TYPE(file) != owners[FILE_] || !number(file, FILE_DESCRIPTOR, &descriptor) || !number(file, FILE_SIZE, &size)
        || descriptor < 0 || descriptor > MAX_INT32 || size < 0)
        return 0;
    PyObject *size_after = PyLong_FromLongLong(size + batch->len);
    if (size_after == NULL) {
        PyErr_Clear();
        return 0;
    }
    ssize_t written;
    Py_BEGIN_ALLOW_THREADS
    written = pwrite((int)descriptor, batch->buf, (size_t)batch->len, (off_t)size);
    Py_END_ALLOW_THREADS
    if (written == batch->len) {
        put(file, FILE_SIZE, size_after);
        return 1;
    }
    Py_DECREF(size_after);
#endif
    return 0;
}

static PyObject *
write_and_note(Append *append, Made *made, PyObject *const *args, Py_buffer *view)
{
    PyObject *batch = args[0], *timestamp_ms = args[3], *producer_id = args[4];
    PyObject *first_offset = Py_NewRef(found(append->log, LOG_END_OFFSET));
    if (!is_written(append->file, view) && !call(append->file, write_name, batch)) {
        if (PyErr_ExceptionMatches(PyExc_OSError))
            put(append->segment, SEGMENT_LEFT_BYTES, Py_NewRef(Py_True));
        Py_DECREF(first_offset);
        return NULL;
    }
    if (!note(append, made, timestamp_ms) || (append->producer != NULL && !go_on(append, made, producer_id, timestamp_ms))) {
        Py_DECREF(first_offset);
        return NULL;
    }
    put(append->log, LOG_END_OFFSET, Py_NewRef(made->end));
    put(append->state, STATE_END_OFFSET, Py_NewRef(made->end));
    return first_offset;
}

PyDoc_STRVAR(append_next_doc,
"append_next(batch, size, record_count, max_timestamp_ms, producer_id, producer_epoch, base_sequence, leader_epoch)\n\
See Log.append_next in ports/logs.py.");

static PyObject *
append_next(PyObject *log, PyObject *const *args, Py_ssize_t nargs)
{
    Append append = {.log = log};
    Made made = {NULL};
    int64_t producer_epoch, leader_epoch;
    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "append_next takes 8 arguments");
        return NULL;
    }
    if (!as_number(args[1], &append.size) || !as_number(args[2], &append.count) || !as_number(args[3], &append.timestamp_ms)
        || !as_number(args[5], &producer_epoch) || !as_number(args[6], &append.sequence) || !as_number(args[7], &leader_epoch)
        || append.size <= LOG_OVERHEAD || append.size > MAX_INT32 || append.count <= 0 || append.count > MAX_INT32
        || leader_epoch < 0 || leader_epoch > MAX_INT32 || !fits(&append, leader_epoch) || !reads_segment(&append)
        || !follows(&append, args[4], producer_epoch))
        return PyErr_Occurred() ? NULL : Py_NewRef(minus_one);
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        return Py_NewRef(minus_one);
    }
    if (view.len < STAMP_SIZE) {
        PyBuffer_Release(&view);
        return Py_NewRef(minus_one);
    }
    PyObject *result = NULL;
    /* The write runs other code. */
    hold(&append, append.segment);
    hold(&append, append.state);
    hold(&append, append.file);
    hold(&append, append.tail_offsets);
    hold(&append, append.tail_positions);
    if (append.producer != NULL)
        hold(&append, append.producer);
    if (append.adds_entry) {
        hold(&append, append.offsets);
        hold(&append, append.times);
    }
    if (make(&append, &made)) {
        stamp(view.buf, &append, leader_epoch);
        result = write_and_note(&append, &made, args, &view);
    }
    PyBuffer_Release(&view);
    Py_XDECREF(made.end);
    Py_XDECREF(made.last_offset);
    Py_XDECREF(made.position);
    Py_XDECREF(made.size);
    Py_XDECREF(made.since_entry);
    Py_XDECREF(made.offsets_size);
    Py_XDECREF(made.times_size);
    Py_XDECREF(made.batch);
    while (append.holds)
        Py_DECREF(append.held[--append.holds]);
    return result;
}

PyDoc_STRVAR(set_high_watermark_doc,
"set_high_watermark(offset)\n\
See Log.set_high_watermark in ports/logs.py.");

static PyObject *
set_high_watermark(PyObject *log, PyObject *offset)
{
    int64_t wanted, end, before, unstable;
    PyObject *is_durable = found(log, LOG_IS_DURABLE);
    if (!as_number(offset, &wanted) || !number(log, LOG_END_OFFSET, &end) || !number(log, LOG_HIGH_WATERMARK, &before)
        || !number(found(log, LOG_STATE), STATE_UNSTABLE, &unstable) || unstable >= 0 || wanted > end
        || is_durable != Py_True)
        return PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(set_high_watermark_in_python, log, offset, NULL);
    if (wanted > before)
        put(log, LOG_HIGH_WATERMARK, Py_NewRef(offset));
    Py_RETURN_NONE;
}

static PyMethodDef set_high_watermark_method = {"set_high_watermark", set_high_watermark, METH_O, set_high_watermark_doc};
static PyMethodDef append_next_method = {"append_next", (PyCFunction)(void (*)(void))append_next, METH_FASTCALL,
                                         append_next_doc};

PyDoc_STRVAR(methods_doc,
"methods_of_log(owners, batch, tail_batches, retained_batches, offset_page, time_page, set_high_watermark)\n\
The methods append_next and set_high_watermark of the first of the classes. Raises AttributeError if a class has other slots.");

static PyObject *
methods_of_log(PyObject *module, PyObject *args)
{
    PyObject *given, *batch, *usual;
    if (!PyArg_ParseTuple(args, "O!O!nnnnO", &PyTuple_Type, &given, &PyType_Type, &batch, &tail_batches, &retained_batches,
                          &offset_page, &time_page, &usual))
        return NULL;
    if (PyTuple_GET_SIZE(given) != OWNERS || !PyType_IsSubtype((PyTypeObject *)batch, &PyTuple_Type) || offset_page <= 0
        || time_page <= 0) {
        PyErr_SetString(PyExc_TypeError, "methods_of_log takes the classes of a log");
        return NULL;
    }
    for (int i = 0; i < OWNERS; i++) {
        PyObject *owner = PyTuple_GET_ITEM(given, i);
        if (!PyType_Check(owner)) {
            PyErr_SetString(PyExc_TypeError, "methods_of_log takes the classes of a log");
            return NULL;
        }
        Py_XSETREF(owners[i], (PyTypeObject *)Py_NewRef(owner));
    }
    Py_XSETREF(batch_type, (PyTypeObject *)Py_NewRef(batch));
    for (int i = 0; i < SLOTS; i++)
        if (!find_place(owners[slot_names[i].owner], slot_names[i].name, &places[i]))
            return NULL;
    Py_XSETREF(set_high_watermark_in_python, Py_NewRef(usual));
    PyObject *append = PyDescr_NewMethod(owners[LOG], &append_next_method);
    return pair_of(append, append == NULL ? NULL : PyDescr_NewMethod(owners[LOG], &set_high_watermark_method));
}

static PyMethodDef methods[] = {
    {"methods_of_log", methods_of_log, METH_VARARGS, methods_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_append", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__append(void)
{
    write_name = PyUnicode_InternFromString("write_now");
    append_name = PyUnicode_InternFromString("append");
    note_name = PyUnicode_InternFromString("note");
    minus_one = PyLong_FromLong(-1);
    if (write_name == NULL || append_name == NULL || note_name == NULL || minus_one == NULL)
        return NULL;
    return PyModule_Create(&module);
}
