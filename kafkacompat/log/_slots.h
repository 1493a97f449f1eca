/* Slots of Python classes, read and written at their places. */

#ifndef KAFKACOMPAT_SLOTS_H
#define KAFKACOMPAT_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>

static inline PyObject **
slot_at(PyObject *object, Py_ssize_t place)
{
    return (PyObject **)((char *)object + place);
}

/* Takes over the reference to the value. */
static inline void
put_at(PyObject *object, Py_ssize_t place, PyObject *value)
{
    PyObject **slot = slot_at(object, place), *before = *slot;
    *slot = value;
    Py_XDECREF(before);
}

static inline int
as_number(PyObject *object, int64_t *value)
{
    int overflow;
    if (object == NULL || !PyLong_CheckExact(object))
        return 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

/* The place of a slot in the instances of its class. Otherwise an AttributeError. */
static int
find_place(PyTypeObject *owner, const char *name, Py_ssize_t *place)
{
    PyObject *slot = PyObject_GetAttrString((PyObject *)owner, name);
    if (slot == NULL)
        return 0;
    int is_slot = Py_IS_TYPE(slot, &PyMemberDescr_Type) && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX
                  && PyType_IsSubtype(owner, PyDescr_TYPE(slot));
    if (is_slot)
        *place = ((PyMemberDescrObject *)slot)->d_member->offset;
    else
        PyErr_Format(PyExc_AttributeError, "%s.%s is no slot", owner->tp_name, name);
    Py_DECREF(slot);
    return is_slot;
}

/* Takes over both references, of which either may be NULL with an error. */
static PyObject *
pair_of(PyObject *first, PyObject *second)
{
    PyObject *both = first == NULL || second == NULL ? NULL : PyTuple_Pack(2, first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return both;
}

#endif
