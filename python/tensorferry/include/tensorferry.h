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
 * Every function is called with the GIL held. The functions that return int return 0, or -1 with a Python exception set.
 * Deleters may run on any thread, with or without the GIL.
 *
 * The header needs Python.h before it, or after it, of Python 3.11 or later; the limited API is enough. Compile with
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
} TfRequest;

/* Every tensor, in place if possible. */
#define TENSORFERRY_REQUEST_INIT \
  { sizeof(TfRequest), NULL, 0, { (DLDeviceType)0, 0 }, TENSORFERRY_ANY_RANK, TENSORFERRY_ORDER_ANY, 0, 1, 0 }

/* The table. It is never freed. */
typedef struct TfApi {
  uint32_t major;
  uint32_t minor;
  /* The size of the table in bytes: a function exists if the table reaches its end. */
  size_t size;

  /* Reads a tensor of any framework, or any object that tensorferry.to accepts, except trees and sparse tensors. The result keeps
   * the memory alive until its deleter is called. Its strides are never NULL, unless the rank is 0. A NULL request is
   * TENSORFERRY_REQUEST_INIT. */
  int (*take)(PyObject *object, const TfRequest *request, DLManagedTensorVersioned **tensor);

  /* Creates a tensor over the memory of `tensor`: of the framework with the name `like_or_name`, or of the framework of the tensor
   * `like_or_name`. An object without a framework, such as a memoryview, gives a NumPy array. The memory is copied if the framework
   * cannot use it in place. The result is a new reference, or NULL with an exception set. On success the function owns `tensor`;
   * after an error the caller still does. Nothing else may use the memory afterwards. */
  PyObject *(*wrap)(DLManagedTensorVersioned *tensor, PyObject *like_or_name);

  /* Enters the memory of `tensor` into the table of borrows, which all extensions of the process share: `exclusive` for writing,
   * and otherwise for reading. Raises BorrowError if another borrow of overlapping memory excludes this one. `object` is the object that
   * the tensor was taken from, or NULL; an array of NumPy is borrowed in the table of rust-numpy too. Copies need no borrow. */
  int (*borrow)(PyObject *object, const DLTensor *tensor, int exclusive, uint64_t *borrow);

  /* Ends a borrow. */
  int (*release)(uint64_t borrow);
} TfApi;

/* Imports tensorferry and returns its table, or NULL with an ImportError set. */
static inline const TfApi *tensorferry_import(void) {
  const TfApi *api = (const TfApi *)PyCapsule_Import(TENSORFERRY_CAPSULE, 0);
  if (api == NULL) {
    PyErr_Clear();
    PyErr_SetString(PyExc_ImportError,
                    "this extension needs tensorferry with a C table\nhint: pip install -U tensorferry");
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
