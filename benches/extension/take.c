/* take(x): reads a tensor by the C table, and releases it. */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "tensorferry.h"

static const TfApi *api;

static PyObject *take(PyObject *module, PyObject *x) {
  DLManagedTensorVersioned *tensor;
  TfRequest request = TENSORFERRY_REQUEST_INIT;
  request.device.device_type = kDLCPU;
  if (api->take(x, &request, &tensor) < 0) return NULL;
  if (tensor->deleter) tensor->deleter(tensor);
  return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {{"take", take, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "take", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_take(void) {
  api = tensorferry_import();
  return api == NULL ? NULL : PyModule_Create(&definition);
}
