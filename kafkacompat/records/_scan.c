/* The compiled gait of records/scan.py: the grammar of a record of magic 2, over a buffer, without objects.

   It never says what is wrong with a record. It stops in front of one that is malformed or beyond the limits, and scan.py asks
   its Python gait about that one. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "_record.h"

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
    int64_t work_most = units > INT64_MAX / PER_UNIT ? INT64_MAX : units * PER_UNIT;
    if (most > room)
        most = room;
    if (most > work_most)
        most = work_most;
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
