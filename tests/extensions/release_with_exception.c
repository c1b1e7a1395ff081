/* A module that releases a borrow while it cleans up after an error. */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "tensorferry.h"

static const TfApi *api;

static PyObject *release(PyObject *module, PyObject *borrow) {
  uint64_t identifier = PyLong_AsUnsignedLongLong(borrow);
  if (PyErr_Occurred()) return NULL;
  PyErr_SetString(PyExc_KeyError, "kept");
  api->release(identifier);
  return NULL;
}

static PyMethodDef methods[] = {{"release", release, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "release_with_exception", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_release_with_exception(void) {
  api = tensorferry_import();
  return api == NULL ? NULL : PyModule_Create(&definition);
}
