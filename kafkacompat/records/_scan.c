/* The compiled gait of records/scan.py: the grammar of a record of magic 2, over a buffer, without objects.

   It never says what is wrong with a record. It stops in front of one that is malformed or beyond the limits, and scan.py asks
   its Python gait about that one. Every read is bounded by the end of the record or of the body. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
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

PyDoc_STRVAR(scan_doc,
"scan(data, position, end, first_offset, most, units, headers_a_record, with_rows)\n\
As scan_in_python, but it returns a count of 0 where that raises.");

static PyObject *
scan(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    long long given[6];
    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "scan takes 8 arguments");
        return NULL;
    }
    for (int i = 0; i < 6; i++) {
        given[i] = PyLong_AsLongLong(args[i + 1]);
        if (given[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    int64_t position = given[0], end = given[1], expected = given[2], most = given[3];
    int64_t units = given[4], headers_a_record = given[5];
    int with_rows = PyObject_IsTrue(args[7]);
    if (with_rows < 0)
        return NULL;
    Py_buffer data;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (position < 0 || end < position || end > data.len) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "positions outside the data");
        return NULL;
    }
    int64_t room = (end - position) / LEAST_RECORD;
    if (most > room)
        most = room;
    PyObject *rows = NULL;
    int64_t *row, spare[FIELDS];
    if (with_rows) {
        rows = PyBytes_FromStringAndSize(NULL, (most > 0 ? most : 0) * (Py_ssize_t)sizeof spare);
        if (rows == NULL) {
            PyBuffer_Release(&data);
            return NULL;
        }
    }
    const uint8_t *base = data.buf;
    Cursor body = {base + position, base + end};
    int64_t work_most = units > INT64_MAX / PER_UNIT ? INT64_MAX : units * PER_UNIT;
    int64_t count = 0, headers = 0, least = 0, greatest = INT64_MIN, nulls = 0;
    while (count < most && count + headers < work_most) {
        row = rows == NULL ? spare : (int64_t *)PyBytes_AS_STRING(rows) + count * FIELDS;
        int64_t wanted = expected == ANY_OFFSET ? ANY_OFFSET : expected + count;
        int64_t found = read_record(&body, base, wanted, headers_a_record, row);
        if (found < 0)
            break;
        headers += found;
        if (row[TIMESTAMP] < least)
            least = row[TIMESTAMP];
        if (row[TIMESTAMP] > greatest)
            greatest = row[TIMESTAMP];
        nulls |= (row[KEY_END] < 0 ? NULL_KEYS : 0) | (row[VALUE_END] < 0 ? NULL_VALUES : 0);
        position = row[END];
        count++;
    }
    PyBuffer_Release(&data);
    if (rows != NULL && _PyBytes_Resize(&rows, count * (Py_ssize_t)sizeof spare) < 0)
        return NULL;
    if (rows == NULL)
        rows = Py_NewRef(Py_None);
    return Py_BuildValue(
        "LLLLLLLN", (long long)position, (long long)count, (long long)((count + headers) / PER_UNIT),
        (long long)headers, (long long)least, (long long)greatest, (long long)nulls, rows);
}

PyDoc_STRVAR(find_doc,
"find(data, position, end, most, timestamp, offset)\n\
As find_in_python, but it returns a count of 0 where that raises. Other threads run meanwhile.");

static PyObject *
find(PyObject *module, PyObject *args)
{
    Py_buffer data;
    long long position, end, most, timestamp, offset;
    if (!PyArg_ParseTuple(args, "y*LLLLL", &data, &position, &end, &most, &timestamp, &offset))
        return NULL;
    if (position < 0 || end < position || end > data.len) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "positions outside the data");
        return NULL;
    }
    const uint8_t *base = data.buf;
    Cursor body = {base + position, base + end};
    int64_t row[FIELDS];
    long long count = 0;
    int is_found = 0;
    Py_BEGIN_ALLOW_THREADS
    while (count < most && !is_found) {
        if (read_record(&body, base, ANY_OFFSET, HEADERS_UNSEEN, row) < 0)
            break;
        is_found = row[TIMESTAMP] >= timestamp && row[OFFSET] >= offset;
        position = row[END];
        count++;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    if (!is_found)
        return Py_BuildValue("LLO", position, count, Py_None);
    return Py_BuildValue("LL(LL)", position, count, (long long)row[TIMESTAMP], (long long)row[OFFSET]);
}

PyDoc_STRVAR(cut_doc, "cut(data, rows, first, last)\nAs cut_in_python.");

static PyObject *
cut(PyObject *module, PyObject *args)
{
    Py_buffer data, rows;
    int first, last;
    if (!PyArg_ParseTuple(args, "y*y*ii", &data, &rows, &first, &last))
        return NULL;
    PyObject *list = NULL;
    if (first < 0 || first >= FIELDS || last < 0 || last >= FIELDS) {
        PyErr_SetString(PyExc_ValueError, "no such field");
        goto done;
    }
    int64_t row[FIELDS];
    Py_ssize_t count = rows.len / (Py_ssize_t)sizeof row;
    list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *part;
        memcpy(row, (const char *)rows.buf + i * sizeof row, sizeof row);
        int64_t from = row[first], to = row[last];
        if (to < 0)
            part = Py_NewRef(Py_None);
        else if (from < 0 || from > to || to > data.len) {
            PyErr_SetString(PyExc_ValueError, "a row outside the data");
            part = NULL;
        } else
            part = PyBytes_FromStringAndSize((const char *)data.buf + from, to - from);
        if (part == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, part);
    }
done:
    PyBuffer_Release(&rows);
    PyBuffer_Release(&data);
    return list;
}

static PyMethodDef methods[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, scan_doc},
    {"find", find, METH_VARARGS, find_doc},
    {"cut", cut, METH_VARARGS, cut_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_scan", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__scan(void)
{
    return PyModuleDef_Init(&module);
}
