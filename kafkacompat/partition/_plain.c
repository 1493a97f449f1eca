/* The compiled gait of partition/plain_appends.py: what its two walks do, each in one call.

   All state stays in the objects of the partitions, and nothing is kept between two calls but the places of their slots. What is
   appended is the log's decision. Settings are compared here as in Python, and by Python's function where they are not the usual
   numbers. Where a batch is unusual the walk ends before any effect of it. An error passes through. */

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

enum {
    TIMESTAMP_TYPE, COMPRESSION_TYPE, CLEANUP_POLICY, CONFIG_NUMBERS, FLUSH_MESSAGES = CONFIG_NUMBERS, MESSAGE_BYTES, AFTER_MS,
    BEFORE_MS, UNPACKED_BYTES, CONFIG_SLOTS
};

static const char *const config_names[CONFIG_SLOTS] = {
    "message_timestamp_type", "compression_type", "cleanup_policy", "flush_messages", "max_message_bytes",
    "message_timestamp_after_max_ms", "message_timestamp_before_max_ms", "max_decompressed_message_bytes",
};

enum { SIZE_MOST, CODECS, EARLIEST_MS, LATEST_MS, NULLS, SUMMARY };

#define NEVER_FLUSH INT64_MAX
#define NO_CODEC 1

/* What `functions` was told. */
static PyTypeObject *core_type, *traffic_type, *config_type;
static PyObject *takes_in_python, *codec_of_setting;
static long long unpacked_most;
static Py_ssize_t core_places[CORE_SLOTS], traffic_places[TRAFFIC_SLOTS], config_places[CONFIG_SLOTS];

static PyObject *compact_name, *config_name, *get_name, *name_name, *append_next_name, *has_min_isr_name, *set_high_watermark_name, *high_watermark_name,
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

enum { UNKNOWN = 2 };

/* Whether a codec is the one of compression.type: 1, 0 or UNKNOWN. */
static int
is_wanted(PyObject *setting, int64_t codecs)
{
    PyObject *codec = PyDict_GetItem(codec_of_setting, setting);
    int64_t wanted;
    if (codec == NULL)
        return 1;
    return as_number(codec, &wanted) && wanted >= 0 && wanted < 63 ? codecs == (int64_t)1 << wanted : UNKNOWN;
}

/* takes_batches_in_python, of the usual types: 1, 0, UNKNOWN, or -1 with an error. */
static int
compare(PyObject *config, PyObject *summary, PyObject *now_ms)
{
    int64_t seen[SUMMARY], most[CONFIG_SLOTS], now, first_ms, last_ms;
    if (!Py_IS_TYPE(config, config_type) || !PyTuple_CheckExact(summary) || PyTuple_GET_SIZE(summary) != SUMMARY
        || !as_number(now_ms, &now))
        return UNKNOWN;
    for (int i = 0; i < SUMMARY; i++)
        if (!as_number(PyTuple_GET_ITEM(summary, i), seen + i))
            return UNKNOWN;
    for (int i = CONFIG_NUMBERS; i < CONFIG_SLOTS; i++)
        if (!as_number(*slot_at(config, config_places[i]), most + i))
            return UNKNOWN;
    PyObject *stamp = *slot_at(config, config_places[TIMESTAMP_TYPE]), *policy = *slot_at(config, config_places[CLEANUP_POLICY]);
    PyObject *compression = *slot_at(config, config_places[COMPRESSION_TYPE]);
    if (stamp == NULL || !PyUnicode_CheckExact(stamp) || compression == NULL || !PyUnicode_CheckExact(compression)
        || policy == NULL || !PyTuple_CheckExact(policy) || __builtin_sub_overflow(now, most[BEFORE_MS], &first_ms)
        || __builtin_add_overflow(now, most[AFTER_MS], &last_ms))
        return UNKNOWN;
    if (!PyUnicode_CompareWithASCIIString(stamp, "LogAppendTime") || most[FLUSH_MESSAGES] != NEVER_FLUSH
        || seen[SIZE_MOST] > most[MESSAGE_BYTES] || seen[EARLIEST_MS] < first_ms || seen[LATEST_MS] > last_ms
        || (seen[CODECS] != NO_CODEC && most[UNPACKED_BYTES] < unpacked_most))
        return 0;
    int wanted = is_wanted(compression, seen[CODECS]);
    if (wanted != 1 || !seen[NULLS])
        return wanted;
    int is_compacted = PySequence_Contains(policy, compact_name);
    return is_compacted < 0 ? -1 : !is_compacted;
}

/* 1, 0, or -1 with an error. */
static int
settings_take(PyObject *config, PyObject *summary, PyObject *now_ms)
{
    int found = compare(config, summary, now_ms);
    PyObject *args[] = {config, summary, now_ms};
    return found == UNKNOWN ? truth(PyObject_Vectorcall(takes_in_python, args, 3, NULL)) : found;
}

PyDoc_STRVAR(takes_batches_doc, "takes_batches(config, summary, now_ms)\nSee takes_batches_in_python of plain_appends.py.");

static PyObject *
takes_batches(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "takes_batches takes settings, a summary and a time");
        return NULL;
    }
    int takes = settings_take(args[0], args[1], args[2]);
    return takes < 0 ? NULL : PyBool_FromLong(takes);
}

/* What is the same for all batches of a request, and the settings that take the batches of the topic, owned. */
typedef struct {
    PyObject *by_name, *by_id, *refused, *now_ms, *cores, *config;
    int waits;
} Finding;

/* Whether the settings of the partition's log take the batches of its topic: 1, 0, or -1 with an error. */
static int
log_takes(Finding *finding, PyObject *core, PyObject *summary)
{
    PyObject *log = Py_NewRef(of_core(core, CORE_LOG)), *config = PyObject_GetAttr(log, config_name);
    Py_DECREF(log);
    if (config == NULL)
        return -1;
    if (config == finding->config) {
        Py_DECREF(config);
        return 1;
    }
    Py_XSETREF(finding->config, config);
    return settings_take(config, summary, finding->now_ms);
}

static int
find_core(Finding *finding, PyObject *name, PyObject *facts, PyObject *summary)
{
    PyObject *key = PyTuple_Pack(2, name, PyTuple_GET_ITEM(facts, FACT_INDEX));
    if (key == NULL)
        return -1;
    PyObject *core = PyDict_GetItemWithError(finding->by_name, key);
    Py_DECREF(key);
    if (core == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (!PyObject_TypeCheck(core, core_type))
        return 0;
    Py_INCREF(core);
    int found = takes_records(core, finding->waits);
    if (found > 0)
        found = log_takes(finding, core, summary);
    if (found > 0 && PyList_Append(finding->cores, core) < 0)
        found = -1;
    Py_DECREF(core);
    return found;
}

/* Owned. NULL with or without an error if there is no such topic. */
static PyObject *
name_of(Finding *finding, PyObject *name_or_id)
{
    if (finding->by_id == Py_None)
        return Py_NewRef(name_or_id);
    PyObject *topic = PyObject_CallMethodOneArg(finding->by_id, get_name, name_or_id), *name = NULL;
    if (topic != NULL && topic != Py_None)
        name = PyObject_GetAttr(topic, name_name);
    Py_XDECREF(topic);
    return name;
}

/* The partitions of a topic's batches. */
static int
find_of_topic(Finding *finding, PyObject *topic)
{
    if (!PyTuple_CheckExact(topic) || PyTuple_GET_SIZE(topic) != 3 || !PyList_CheckExact(PyTuple_GET_ITEM(topic, 1))) {
        PyErr_SetString(PyExc_TypeError, "a topic is a tuple of its name, a list and a summary");
        return -1;
    }
    PyObject *batches = PyTuple_GET_ITEM(topic, 1), *name = name_of(finding, PyTuple_GET_ITEM(topic, 0));
    if (name == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int is_refused = PySet_Contains(finding->refused, name), found = is_refused < 0 ? -1 : !is_refused;
    for (Py_ssize_t at = 0; found > 0 && at < PyList_GET_SIZE(batches); at++) {
        PyObject *facts = facts_at(batches, at);
        if (facts == NULL) {
            found = -1;
            break;
        }
        Py_INCREF(facts);
        found = find_core(finding, name, facts, PyTuple_GET_ITEM(topic, 2));
        Py_DECREF(facts);
    }
    Py_DECREF(name);
    Py_CLEAR(finding->config);
    return found;
}

PyDoc_STRVAR(find_cores_doc,
"find_cores(by_name, by_id, topics, refused, waits, now_ms, cores)\n\
See find_cores_in_python of plain_appends.py.");

static PyObject *
find_cores(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 7 || !PyDict_Check(args[0]) || !PyList_CheckExact(args[2]) || !PyFrozenSet_CheckExact(args[3])
        || !PyBool_Check(args[4]) || !PyList_CheckExact(args[6])) {
        PyErr_SetString(PyExc_TypeError, "find_cores takes a dict, a mapping, a list, a set, a bool, a time and a list");
        return NULL;
    }
    Finding finding = {args[0], args[1], args[3], args[5], args[6], NULL, args[4] == Py_True};
    int found = 1;
    for (Py_ssize_t at = 0; found > 0 && at < PyList_GET_SIZE(args[2]); at++) {
        PyObject *topic = Py_NewRef(PyList_GET_ITEM(args[2], at));
        found = find_of_topic(&finding, topic);
        Py_DECREF(topic);
    }
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
            Py_RETURN_NONE;
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
    if (outcome == STOPPED)
        Py_RETURN_NONE;
    return outcome == FAILED ? NULL : PyBool_FromLong(are_done);
}

static PyMethodDef of_classes[] = {
    {"find_cores", (PyCFunction)(void (*)(void))find_cores, METH_FASTCALL, find_cores_doc},
    {"append_known", (PyCFunction)(void (*)(void))append_known, METH_FASTCALL, append_known_doc},
    {"takes_batches", (PyCFunction)(void (*)(void))takes_batches, METH_FASTCALL, takes_batches_doc},
};

static int
find_places(PyObject *owner, const char *const *names, int count, Py_ssize_t *places)
{
    for (int i = 0; i < count; i++)
        if (!find_place((PyTypeObject *)owner, names[i], &places[i]))
            return 0;
    return 1;
}

PyDoc_STRVAR(functions_doc,
"functions(partition, traffic, config, takes_batches, codec_of_setting, unpacked_most)\n\
find_cores, append_known and takes_batches for these classes. Raises AttributeError if a class has other slots.");

static PyObject *
functions(PyObject *module, PyObject *args)
{
    PyObject *partition, *traffic, *config, *takes, *codecs;
    long long most;
    if (!PyArg_ParseTuple(args, "O!O!O!OO!L", &PyType_Type, &partition, &PyType_Type, &traffic, &PyType_Type, &config, &takes,
                          &PyDict_Type, &codecs, &most))
        return NULL;
    if (!find_places(partition, core_names, CORE_SLOTS, core_places)
        || !find_places(traffic, traffic_names, TRAFFIC_SLOTS, traffic_places)
        || !find_places(config, config_names, CONFIG_SLOTS, config_places))
        return NULL;
    Py_XSETREF(core_type, (PyTypeObject *)Py_NewRef(partition));
    Py_XSETREF(traffic_type, (PyTypeObject *)Py_NewRef(traffic));
    Py_XSETREF(config_type, (PyTypeObject *)Py_NewRef(config));
    Py_XSETREF(takes_in_python, Py_NewRef(takes));
    Py_XSETREF(codec_of_setting, Py_NewRef(codecs));
    unpacked_most = most;
    PyObject *made = PyTuple_New(3);
    for (int i = 0; made != NULL && i < 3; i++) {
        PyObject *function = PyCFunction_New(&of_classes[i], NULL);
        if (function == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, i, function);
    }
    return made;
}

static PyMethodDef methods[] = {
    {"functions", functions, METH_VARARGS, functions_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_plain", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__plain(void)
{
    compact_name = PyUnicode_InternFromString("compact");
    config_name = PyUnicode_InternFromString("_config");
    get_name = PyUnicode_InternFromString("get");
    name_name = PyUnicode_InternFromString("name");
    append_next_name = PyUnicode_InternFromString("append_next");
    has_min_isr_name = PyUnicode_InternFromString("has_min_isr");
    set_high_watermark_name = PyUnicode_InternFromString("set_high_watermark");
    high_watermark_name = PyUnicode_InternFromString("high_watermark");
    log_start_offset_name = PyUnicode_InternFromString("log_start_offset");
    one = PyLong_FromLong(1);
    if (compact_name == NULL || get_name == NULL || name_name == NULL || config_name == NULL || append_next_name == NULL || has_min_isr_name == NULL || set_high_watermark_name == NULL
        || high_watermark_name == NULL || log_start_offset_name == NULL || one == NULL)
        return NULL;
    return PyModule_Create(&module);
}
