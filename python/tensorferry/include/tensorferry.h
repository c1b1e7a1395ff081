/* The C table of tensorferry: tensors of every framework for extension modules.
 *
 *     const TfApi *api = tensorferry_import();          // once, in the module's initialisation
 *     if (api == NULL) return NULL;                     // ImportError: not installed, or too old
 *
 *     DLManagedTensorVersioned *tensor;
 *     TfRequest request = TENSORFERRY_REQUEST_INIT;
 *     if (api->take(object, &request, &tensor) < 0) return NULL;
 *     ...                                               // read tensor->dl_tensor
 *     if (tensor->deleter) tensor->deleter(tensor);
 *
 * Every function is called with the GIL held, in the main interpreter, and without a Python exception set; `release` alone may be called
 * with one, which stays. The functions that return int return 0, or -1 with a Python exception set. Deleters may run on any thread, with or
 * without the GIL. Those of tensors that are alive when the interpreter exits may never run.
 *
 * The limited API of Python 3.11 is enough: define Py_LIMITED_API before the header, which includes Python.h. Compile with
 * -I$(python -c "import tensorferry; print(tensorferry.get_include())"). Nothing is linked.
 *
 * Versions: a major version only appends fields to TfApi and TfRequest. A table of a later minor version serves extensions
 * that were compiled with an earlier one.
 */
#ifndef TENSORFERRY_H
#define TENSORFERRY_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TENSORFERRY_API_MAJOR 1
#define TENSORFERRY_API_MINOR 0
/* The capsule: the attribute _C_API of the module tensorferry. */
#define TENSORFERRY_CAPSULE "tensorferry._C_API"

/* The layout that a request accepts. */
typedef enum {
  TENSORFERRY_ORDER_ANY = 0, /* any strides that are multiples of the element size, also negative ones */
  TENSORFERRY_ORDER_C = 1,   /* dense, the last dimension varies fastest */
  TENSORFERRY_ORDER_F = 2    /* dense, the first dimension varies fastest */
} TfOrder;

/* The rank of a request that accepts every rank. */
#define TENSORFERRY_ANY_RANK (-1)
/* The stream of a request that is not ordered after the pending work on the tensor. */
#define TENSORFERRY_NO_STREAM (-1)

/* What an extension accepts. Start from TENSORFERRY_REQUEST_INIT. */
typedef struct TfRequest {
  /* sizeof(TfRequest). */
  size_t size;
  /* The accepted element types; NULL accepts every type. A tensor of another type is a TypeError, never a cast. */
  const DLDataType *dtypes;
  size_t dtype_count;
  /* The accepted device; the type 0 accepts every device. kDLCPU accepts all host memory. A tensor on another device is a
   * ValueError, never a transfer. */
  DLDevice device;
  /* The accepted rank, or TENSORFERRY_ANY_RANK. */
  int32_t rank;
  /* A TfOrder. */
  int32_t order;
  /* Not 0: the extension writes the tensor's own memory. Read-only and immutable tensors are refused, and so are tensors whose
   * elements overlap, and non-leaf tensors that require a gradient. Nothing is copied. */
  int32_t writable;
  /* 0: a tensor that would have to be copied is refused. Otherwise it is copied on its device, and the result has the flag
   * DLPACK_FLAG_BITMASK_IS_COPIED. Copies become necessary for another order, unaligned or byte-swapped elements, strides that
   * DLPack cannot express and values that the framework has not computed yet, such as a lazy conjugation. */
  int32_t copy_allowed;
  /* For memory of a CUDA GPU: the stream, as an integer, on which the extension uses the tensor, which waits for the work that the
   * tensor's framework has queued. 0 and 1 are the legacy default stream, 2 is the per-thread default stream.
   * TENSORFERRY_NO_STREAM orders nothing. */
  int64_t stream;
  /* Not 0: the memory is borrowed until the deleter has run, for writing if `writable` is set, and otherwise for reading. Raises BorrowError
   * if another borrow of overlapping memory excludes this one. A copy is not borrowed, and its source only while it is made. This costs less than `borrow` and `release`. If the
   * deleter runs on a thread without the GIL, the borrow ends soon afterwards. */
  int32_t borrow;
  /* 0. */
  int32_t reserved;
} TfRequest;

/* Every tensor, in place if possible. */
#ifdef __cplusplus
#define TENSORFERRY_ANY_DEVICE { static_cast<DLDeviceType>(0), 0 }
#else
#define TENSORFERRY_ANY_DEVICE { (DLDeviceType)0, 0 }
#endif
#define TENSORFERRY_REQUEST_INIT \
  { sizeof(TfRequest), NULL, 0, TENSORFERRY_ANY_DEVICE, TENSORFERRY_ANY_RANK, TENSORFERRY_ORDER_ANY, 0, 1, 0, 0, 0 }

/* The table. It is never freed. */
typedef struct TfApi {
  uint32_t major;
  uint32_t minor;
  /* The size of the table in bytes: a function exists if the table reaches its end. */
  size_t size;

  /* Reads a tensor of any framework, or any object that tensorferry.to accepts, except trees and sparse tensors. Memory that is copied
   * is borrowed for reading meanwhile: BorrowError, if an extension is writing it. The result keeps
   * the memory alive until its deleter is called. Its strides are never NULL, unless the rank is 0. A NULL request is
   * TENSORFERRY_REQUEST_INIT. */
  int (*take)(PyObject *object, const TfRequest *request, DLManagedTensorVersioned **tensor);

  /* Creates a tensor over the memory of `tensor`: of the framework with the name `like_or_name`, or of the framework of the tensor
   * `like_or_name`. An object without a framework, such as a memoryview, gives a NumPy array. The memory is copied if the framework
   * cannot use it in place, or was registered at run time. The result is a new reference, or NULL with an exception set. On success the
   * function owns `tensor`; after an error the caller still does. Nothing else may use writable memory afterwards, except that of a
   * tensor from `take`, which the result shares with its source where `tensorferry.to` would. */
  PyObject *(*wrap)(DLManagedTensorVersioned *tensor, PyObject *like_or_name);

  /* Enters the memory of `tensor` into the table of borrows, which all extensions of the process share: `exclusive` for writing,
   * and otherwise for reading. Raises BorrowError if another borrow of overlapping memory excludes this one. A borrow that lasts as long
   * as the tensor is a field of the request instead. `object` is the object that the tensor was taken from, or NULL; an array of NumPy is borrowed in the table of rust-numpy too, and other objects over the same
   * memory are not. A copy belongs to the extension and needs no borrow. In the child of a fork the borrows of other threads have ended. */
  int (*borrow)(PyObject *object, const DLTensor *tensor, int exclusive, uint64_t *borrow);

  /* Ends a borrow. */
  int (*release)(uint64_t borrow);
} TfApi;

/* Whether the exception that is set says that tensorferry itself is not installed. */
static inline int tensorferry_is_missing(void) {
  PyObject *type, *value, *traceback, *name;
  int is_missing = 0;
  if (!PyErr_ExceptionMatches(PyExc_ModuleNotFoundError)) return 0;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  name = PyObject_GetAttrString(value, "name");
  if (name != NULL) is_missing = PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "tensorferry") == 0;
  Py_XDECREF(name);
  PyErr_Restore(type, value, traceback);
  return is_missing;
}

/* Imports tensorferry and returns its table. NULL with an ImportError set, whose cause is the first error, if tensorferry is not installed
 * or has no table of this version; NULL with the error of the import, if that failed for another reason. */
static inline const TfApi *tensorferry_import(void) {
  const TfApi *api = NULL;
  PyObject *module = PyImport_ImportModule("tensorferry");
  if (module == NULL && !tensorferry_is_missing()) return NULL;
  if (module != NULL) {
    PyObject *capsule = PyObject_GetAttrString(module, "_C_API");
    Py_DECREF(module);
    /* The module keeps the capsule, and the table is never freed. */
    if (capsule != NULL) api = (const TfApi *)PyCapsule_GetPointer(capsule, TENSORFERRY_CAPSULE);
    Py_XDECREF(capsule);
  }
  if (api == NULL) {
    PyObject *type, *cause, *traceback, *value;
    PyErr_Fetch(&type, &cause, &traceback);
    PyErr_NormalizeException(&type, &cause, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    PyErr_SetString(PyExc_ImportError,
                    "this extension needs tensorferry with a C table\nhint: pip install -U tensorferry");
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyException_SetCause(value, cause);
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  if (api->major != TENSORFERRY_API_MAJOR || api->size < sizeof(TfApi)) {
    PyErr_Format(PyExc_ImportError,
                 "this extension needs version %d.%d of tensorferry's C table, and the installed one is %u.%u\n"
                 "hint: pip install -U tensorferry, or rebuild the extension",
                 TENSORFERRY_API_MAJOR, TENSORFERRY_API_MINOR, (unsigned)api->major, (unsigned)api->minor);
    return NULL;
  }
  return api;
}

#ifdef __cplusplus
}
#endif

#endif /* TENSORFERRY_H */
