/* An extension in plain C that accepts the tensors of every framework, under the limited API of Python 3.11.
 *
 *     cc -shared -fPIC -O2 $(python3-config --includes) -I$(python -c "import tensorferry; print(tensorferry.get_include())") \
 *         vectors.c -o vectors.abi3.so
 */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdlib.h>

#include "tensorferry.h"

static const TfApi *api;

static const DLDataType FLOAT32 = {kDLFloat, 32, 1};
static const DLDataType FLOAT64 = {kDLFloat, 64, 1};

static void release_tensor(DLManagedTensorVersioned *tensor) {
  if (tensor->deleter) tensor->deleter(tensor);
}

/* total(x): the sum of a tensor of float32 or float64, of any rank and with any strides. */
static double add_up(const DLTensor *tensor, int axis, const char *data) {
  int64_t size = tensor->dtype.bits / 8;
  if (axis == tensor->ndim) return size == 4 ? *(const float *)data : *(const double *)data;
  double total = 0;
  for (int64_t index = 0; index < tensor->shape[axis]; index++)
    total += add_up(tensor, axis + 1, data + index * tensor->strides[axis] * size);
  return total;
}

static PyObject *total(PyObject *module, PyObject *x) {
  const DLDataType accepted[] = {FLOAT32, FLOAT64};
  TfRequest request = TENSORFERRY_REQUEST_INIT;
  request.dtypes = accepted;
  request.dtype_count = 2;
  request.device.device_type = kDLCPU;
  request.borrow = 1;
  DLManagedTensorVersioned *taken;
  if (api->take(x, &request, &taken) < 0) return NULL;

  const DLTensor *tensor = &taken->dl_tensor;
  double result = add_up(tensor, 0, (const char *)tensor->data + tensor->byte_offset);
  release_tensor(taken);
  return PyFloat_FromDouble(result);
}

/* scale(x, factor): multiplies a dense vector of float32 in place. */
static PyObject *scale(PyObject *module, PyObject *args) {
  PyObject *x;
  double factor;
  if (!PyArg_ParseTuple(args, "Od", &x, &factor)) return NULL;
  TfRequest request = TENSORFERRY_REQUEST_INIT;
  request.dtypes = &FLOAT32;
  request.dtype_count = 1;
  request.device.device_type = kDLCPU;
  request.rank = 1;
  request.order = TENSORFERRY_ORDER_C;
  request.writable = 1;
  request.borrow = 1;
  DLManagedTensorVersioned *taken;
  if (api->take(x, &request, &taken) < 0) return NULL;
  float *data = (float *)((char *)taken->dl_tensor.data + taken->dl_tensor.byte_offset);
  int64_t length = taken->dl_tensor.shape[0];
  /* Nobody else writes this memory through an extension, so the GIL can be released. */
  Py_BEGIN_ALLOW_THREADS
  for (int64_t index = 0; index < length; index++) data[index] *= (float)factor;
  Py_END_ALLOW_THREADS
  release_tensor(taken);
  Py_INCREF(Py_None);
  return Py_None;
}

/* ramp(length, like): the numbers 0, 1, 2... as a tensor of the framework of `like`, which is a name or a tensor. */
typedef struct {
  DLManagedTensorVersioned managed;
  int64_t shape[1];
  int64_t strides[1];
} Ramp;

static void delete_ramp(DLManagedTensorVersioned *managed) {
  free(managed->dl_tensor.data);
  free(managed);
}

static PyObject *ramp(PyObject *module, PyObject *args) {
  Py_ssize_t length;
  PyObject *like;
  if (!PyArg_ParseTuple(args, "nO", &length, &like)) return NULL;
  if (length < 1 || length > PY_SSIZE_T_MAX / 64) {
    PyErr_Format(PyExc_ValueError, "length is %zd, and must be positive", length);
    return NULL;
  }
  Ramp *made = calloc(1, sizeof(Ramp));
  /* Memory that is aligned to 64 bytes is shared with JAX and TensorFlow too. */
  size_t bytes = ((size_t)length * sizeof(float) + 63) / 64 * 64;
  float *data = aligned_alloc(64, bytes);
  if (made == NULL || data == NULL) {
    free(made);
    free(data);
    return PyErr_NoMemory();
  }
  for (Py_ssize_t index = 0; index < length; index++) data[index] = (float)index;
  made->shape[0] = length;
  made->strides[0] = 1;
  made->managed.version.major = DLPACK_MAJOR_VERSION;
  made->managed.version.minor = DLPACK_MINOR_VERSION;
  made->managed.deleter = delete_ramp;
  made->managed.dl_tensor.data = data;
  made->managed.dl_tensor.device.device_type = kDLCPU;
  made->managed.dl_tensor.ndim = 1;
  made->managed.dl_tensor.dtype = FLOAT32;
  made->managed.dl_tensor.shape = made->shape;
  made->managed.dl_tensor.strides = made->strides;
  PyObject *result = api->wrap(&made->managed, like);
  if (result == NULL) delete_ramp(&made->managed);
  return result;
}

static PyMethodDef methods[] = {
    {"total", total, METH_O, "The sum of a tensor of any framework."},
    {"scale", scale, METH_VARARGS, "Multiplies a vector in place."},
    {"ramp", ramp, METH_VARARGS, "The numbers from 0 on, as a tensor of any framework."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "vectors", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_vectors(void) {
  api = tensorferry_import();
  return api == NULL ? NULL : PyModule_Create(&definition);
}
