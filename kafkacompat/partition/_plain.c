/* The compiled gait of partition/plain_appends.py: what its two walks do, each in one call.

   All state stays in the objects of the partitions, and nothing is kept between two calls but the places of their slots. Each
   decision is the log's or that of Python's functions: what is appended, and what a topic's settings take. Where a batch is
   unusual the walk ends before any effect of it. An error passes through. */

#include "../log/_slots.h"

#define FACTS 12

enum { FACT_INDEX, FACT_START, FACT_END, FACT_SIZE, FACT_CODEC, FACT_COUNT, FACT_BASE_MS, FACT_LATEST_MS, FACT_PRODUCER };

enum {
    IS_LEADER, IS_READ_ONLY, IS_ENDING_MIRROR, IS_HELD_BACK, ALONE, ISR, REPLICAS, LEADER_EPOCH, CORE_LOG, CORE_TRAFFIC,
    TOPIC_PARTITION, CORE_SLOTS
};

static const char *const core_names[CORE_SLOTS] = {
    "is_leader", "is_read_only", "is_ending_mirror", "is_held_back", "alone", "isr", "replicas", "leader_epoch", "log",
    "traffic", "topic_partition",
};

enum { PRODUCES, MESSAGES_IN, BYTES_IN, TRAFFIC_SLOTS };

static const char *const traffic_names[TRAFFIC_SLOTS] = {"produces", "messages_in", "bytes_in"};

/* What `functions` was told. */
static PyTypeObject *core_type, *traffic_type;
static PyObject *takes_batches;
static Py_ssize_t core_places[CORE_SLOTS], traffic_places[TRAFFIC_SLOTS];

static PyObject *config_name, *append_next_name, *has_min_isr_name, *set_high_watermark_name, *high_watermark_name,
    *log_start_offset_name, *one;

/* Borrowed. */
static inline PyObject *
of_core(PyObject *core, int slot)
{
    return *slot_at(core, core_places[slot]);
}

/* Borrowed. NULL with a TypeError if there are no facts at this place. */
static PyObject *
facts_at(PyObject *batches, Py_ssize_t at)
{
    PyObject *facts = at < PyList_GET_SIZE(batches) ? PyList_GET_ITEM(batches, at) : NULL;
    if (facts != NULL && PyTuple_CheckExact(facts) && PyTuple_GET_SIZE(facts) == FACTS)
        return facts;
    PyErr_SetString(PyExc_TypeError, "the facts of a batch are a tuple of twelve");
    return NULL;
}

/* 1, 0, or -1 with an error. */
static int
truth(PyObject *result)
{
    int is_true = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    return is_true;
}

static int
is_sized(PyObject *tuple)
{
    return tuple != NULL && PyTuple_Check(tuple);
}

/* Whether a partition takes records now: 1, 0, or -1 with an error. */
static int
takes_records(PyObject *core, int waits)
{
    if (of_core(core, IS_LEADER) != Py_True || of_core(core, IS_READ_ONLY) != Py_False
        || of_core(core, IS_ENDING_MIRROR) != Py_False || of_core(core, CORE_LOG) == NULL)
        return 0;
    if (!waits)
        return 1;
    PyObject *isr = of_core(core, ISR), *replicas = of_core(core, REPLICAS);
    if (!is_sized(isr) || !is_sized(replicas))
        return 0;
    return PyTuple_GET_SIZE(isr) >= PyTuple_GET_SIZE(replicas) ? 1 : truth(PyObject_CallMethodNoArgs(core, has_min_isr_name));
}

/* Whether the settings of the partition's log take the batches of the topic: 1, 0, or -1 with an error. `config`: those that
   do, owned. */
static int
settings_take(PyObject *core, PyObject **config, PyObject *summary, PyObject *now_ms)
{
    PyObject *log = Py_NewRef(of_core(core, CORE_LOG)), *its_config = PyObject_GetAttr(log, config_name);
    Py_DECREF(log);
    if (its_config == NULL)
        return -1;
    if (its_config == *config) {
        Py_DECREF(its_config);
        return 1;
    }
    Py_XSETREF(*config, its_config);
    PyObject *args[] = {its_config, summary, now_ms};
    return truth(PyObject_Vectorcall(takes_batches, args, 3, NULL));
}

static int
find_core(PyObject *const *args, PyObject *facts, PyObject **config)
{
    PyObject *key = PyTuple_Pack(2, args[1], PyTuple_GET_ITEM(facts, FACT_INDEX));
    if (key == NULL)
        return -1;
    PyObject *core = PyDict_GetItemWithError(args[0], key);
    Py_DECREF(key);
    if (core == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (!PyObject_TypeCheck(core, core_type))
        return 0;
    Py_INCREF(core);
    int found = takes_records(core, args[3] == Py_True);
    if (found > 0)
        found = settings_take(core, config, args[4], args[5]);
    if (found > 0 && PyList_Append(args[6], core) < 0)
        found = -1;
    Py_DECREF(core);
    return found;
}

PyDoc_STRVAR(find_cores_doc,
"find_cores(by_name, name, batches, waits, summary, now_ms, cores)\n\
See find_cores_in_python of plain_appends.py.");

static PyObject *
find_cores(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 7 || !PyDict_Check(args[0]) || !PyList_CheckExact(args[2]) || !PyBool_Check(args[3])
        || !PyList_CheckExact(args[6])) {
        PyErr_SetString(PyExc_TypeError, "find_cores takes a dict, a name, a list, a bool, a summary, a time and a list");
        return NULL;
    }
    PyObject *config = NULL;
    int found = 1;
    for (Py_ssize_t at = 0; found > 0 && at < PyList_GET_SIZE(args[2]); at++) {
        PyObject *facts = facts_at(args[2], at);
        if (facts == NULL) {
            found = -1;
            break;
        }
        Py_INCREF(facts);
        found = find_core(args, facts, &config);
        Py_DECREF(facts);
    }
    Py_XDECREF(config);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* Log.append_next. */
static PyObject *
append_next(PyObject *core, PyObject *log, PyObject *frame, PyObject *facts)
{
    PyObject *range = PySlice_New(PyTuple_GET_ITEM(facts, FACT_START), PyTuple_GET_ITEM(facts, FACT_END), NULL);
    PyObject *batch = range == NULL ? NULL : PyObject_GetItem(frame, range);
    Py_XDECREF(range);
    if (batch == NULL)
        return NULL;
    PyObject *leader_epoch = Py_NewRef(of_core(core, LEADER_EPOCH));
    PyObject *args[] = {
        log,
        batch,
        PyTuple_GET_ITEM(facts, FACT_SIZE),
        PyTuple_GET_ITEM(facts, FACT_COUNT),
        PyTuple_GET_ITEM(facts, FACT_LATEST_MS),
        PyTuple_GET_ITEM(facts, FACT_PRODUCER),
        PyTuple_GET_ITEM(facts, FACT_PRODUCER + 1),
        PyTuple_GET_ITEM(facts, FACT_PRODUCER + 2),
        leader_epoch,
    };
    PyObject *first_offset = PyObject_VectorcallMethod(append_next_name, args, 9 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(leader_epoch);
    Py_DECREF(batch);
    return first_offset;
}

static int
add(PyObject *traffic, int slot, PyObject *more)
{
    PyObject *before = *slot_at(traffic, traffic_places[slot]), *sum = before == NULL ? NULL : PyNumber_Add(before, more);
    if (sum == NULL) {
        if (before == NULL)
            PyErr_SetString(PyExc_AttributeError, traffic_names[slot]);
        return 0;
    }
    put_at(traffic, traffic_places[slot], sum);
    return 1;
}

static int
count(PyObject *traffic, PyObject *facts)
{
    return add(traffic, PRODUCES, one) && add(traffic, MESSAGES_IN, PyTuple_GET_ITEM(facts, FACT_COUNT))
           && add(traffic, BYTES_IN, PyTuple_GET_ITEM(facts, FACT_SIZE));
}

/* Move the high watermark, or have it moved. */
static int
advance(PyObject *core, PyObject *log, PyObject *end, PyObject *held, PyObject *tell_of)
{
    PyObject *result;
    if (of_core(core, ALONE) != Py_True) {
        PyObject *args[] = {core, Py_False};
        result = PyObject_Vectorcall(tell_of, args, 2, NULL);
        Py_XDECREF(result);
        return result != NULL;
    }
    if (of_core(core, IS_HELD_BACK) != Py_False)
        return 1;
    result = PyObject_CallMethodOneArg(log, set_high_watermark_name, end);
    Py_XDECREF(result);
    return result != NULL && PyDict_SetItem(held, of_core(core, TOPIC_PARTITION), core) == 0;
}

/* Whether the high watermark has reached an offset: 1, 0, or -1 with an error. */
static int
has_reached(PyObject *log, PyObject *end)
{
    PyObject *high_watermark = PyObject_GetAttr(log, high_watermark_name);
    int found = high_watermark == NULL ? -1 : PyObject_RichCompareBool(high_watermark, end, Py_GE);
    Py_XDECREF(high_watermark);
    return found;
}

static int
add_result(PyObject *results, PyObject *log, PyObject *first_offset)
{
    PyObject *log_start = PyObject_GetAttr(log, log_start_offset_name);
    PyObject *pair = pair_of(Py_NewRef(first_offset), log_start);
    int added = pair != NULL && PyList_Append(results, pair) == 0;
    Py_XDECREF(pair);
    return added;
}

enum { FAILED = -1, STOPPED, APPENDED };

/* The next batch, with references that are held. */
static int
append_one(PyObject *core, PyObject *log, PyObject *traffic, PyObject *facts, PyObject *const *args, int *are_done)
{
    PyObject *first_offset = append_next(core, log, args[0], facts), *end = NULL;
    int64_t offset;
    int outcome = FAILED, reached;
    if (first_offset == NULL)
        return FAILED;
    if (!as_number(first_offset, &offset) || offset < 0)
        outcome = STOPPED;
    else if ((end = PyNumber_Add(first_offset, PyTuple_GET_ITEM(facts, FACT_COUNT))) != NULL && count(traffic, facts)
             && advance(core, log, end, args[4], args[5]) && (reached = has_reached(log, end)) >= 0
             && add_result(args[3], log, first_offset)) {
        *are_done &= reached;
        outcome = APPENDED;
    }
    Py_DECREF(first_offset);
    Py_XDECREF(end);
    return outcome;
}

static int
may_append(PyObject *core)
{
    if (!PyObject_TypeCheck(core, core_type) || of_core(core, IS_LEADER) != Py_True)
        return 0;
    PyObject *traffic = of_core(core, CORE_TRAFFIC);
    return of_core(core, CORE_LOG) != NULL && traffic != NULL && PyObject_TypeCheck(traffic, traffic_type)
           && of_core(core, LEADER_EPOCH) != NULL && of_core(core, TOPIC_PARTITION) != NULL;
}

PyDoc_STRVAR(append_known_doc,
"append_known(frame, cores, batches, results, held, tell_of)\n\
See append_known_in_python of plain_appends.py.");

static PyObject *
append_known(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6 || !PyList_CheckExact(args[1]) || !PyList_CheckExact(args[2]) || !PyList_CheckExact(args[3])
        || !PyDict_CheckExact(args[4])) {
        PyErr_SetString(PyExc_TypeError, "append_known takes a frame, three lists, a dict and a function");
        return NULL;
    }
    int are_done = 1, outcome = APPENDED;
    while (outcome == APPENDED && PyList_GET_SIZE(args[3]) < PyList_GET_SIZE(args[1])) {
        Py_ssize_t at = PyList_GET_SIZE(args[3]);
        PyObject *core = PyList_GET_ITEM(args[1], at), *facts = facts_at(args[2], at);
        if (facts == NULL)
            return NULL;
        if (!may_append(core))
            break;
        PyObject *log = of_core(core, CORE_LOG), *traffic = of_core(core, CORE_TRAFFIC);
        Py_INCREF(core);
        Py_INCREF(facts);
        Py_INCREF(log);
        Py_INCREF(traffic);
        outcome = append_one(core, log, traffic, facts, args, &are_done);
        Py_DECREF(core);
        Py_DECREF(facts);
        Py_DECREF(log);
        Py_DECREF(traffic);
    }
    return outcome == FAILED ? NULL : PyBool_FromLong(are_done);
}

static PyMethodDef find_cores_method = {"find_cores", (PyCFunction)(void (*)(void))find_cores, METH_FASTCALL, find_cores_doc};
static PyMethodDef append_known_method = {"append_known", (PyCFunction)(void (*)(void))append_known, METH_FASTCALL,
                                          append_known_doc};

PyDoc_STRVAR(functions_doc,
"functions(partition, traffic, takes_batches)\n\
find_cores and append_known for these classes. Raises AttributeError if a class has other slots.");

static PyObject *
functions(PyObject *module, PyObject *args)
{
    PyObject *partition, *traffic, *takes;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyType_Type, &partition, &PyType_Type, &traffic, &takes))
        return NULL;
    for (int i = 0; i < CORE_SLOTS; i++)
        if (!find_place((PyTypeObject *)partition, core_names[i], &core_places[i]))
            return NULL;
    for (int i = 0; i < TRAFFIC_SLOTS; i++)
        if (!find_place((PyTypeObject *)traffic, traffic_names[i], &traffic_places[i]))
            return NULL;
    Py_XSETREF(core_type, (PyTypeObject *)Py_NewRef(partition));
    Py_XSETREF(traffic_type, (PyTypeObject *)Py_NewRef(traffic));
    Py_XSETREF(takes_batches, Py_NewRef(takes));
    PyObject *find = PyCFunction_New(&find_cores_method, NULL);
    return pair_of(find, find == NULL ? NULL : PyCFunction_New(&append_known_method, NULL));
}

static PyMethodDef methods[] = {
    {"functions", functions, METH_VARARGS, functions_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_plain", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__plain(void)
{
    config_name = PyUnicode_InternFromString("config");
    append_next_name = PyUnicode_InternFromString("append_next");
    has_min_isr_name = PyUnicode_InternFromString("has_min_isr");
    set_high_watermark_name = PyUnicode_InternFromString("set_high_watermark");
    high_watermark_name = PyUnicode_InternFromString("high_watermark");
    log_start_offset_name = PyUnicode_InternFromString("log_start_offset");
    one = PyLong_FromLong(1);
    if (config_name == NULL || append_next_name == NULL || has_min_isr_name == NULL || set_high_watermark_name == NULL
        || high_watermark_name == NULL || log_start_offset_name == NULL || one == NULL)
        return NULL;
    return PyModule_Create(&module);
}
