// An extension with nanobind that accepts the tensors of every framework.
//
// nanobind's own nb::ndarray reads DLPack and the buffer protocol. `Tensor` below reads what tensorferry reads: tensors with a lazy
// conjugation or in another byte order, variables, columns of tables, and objects that only have an array interface. It returns
// tensors of the framework that came in.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tensorferry.h"

namespace nb = nanobind;

static const TfApi *api;

struct Delete {
  void operator()(DLManagedTensorVersioned *tensor) const {
    if (tensor->deleter) tensor->deleter(tensor);
  }
};

// A dense matrix of float32 in host memory, borrowed for reading as long as it lives.
class Matrix {
 public:
  explicit Matrix(nb::handle object) {
    const DLDataType dtype = {kDLFloat, 32, 1};
    TfRequest request = TENSORFERRY_REQUEST_INIT;
    request.dtypes = &dtype;
    request.dtype_count = 1;
    request.device.device_type = kDLCPU;
    request.rank = 2;
    request.order = TENSORFERRY_ORDER_C;
    request.borrow = 1;
    DLManagedTensorVersioned *taken;
    if (api->take(object.ptr(), &request, &taken) < 0) throw nb::python_error();
    tensor_.reset(taken);
  }

  int64_t rows() const { return tensor_->dl_tensor.shape[0]; }
  int64_t columns() const { return tensor_->dl_tensor.shape[1]; }
  const float *row(int64_t index) const {
    auto data = static_cast<const char *>(tensor_->dl_tensor.data) + tensor_->dl_tensor.byte_offset;
    return reinterpret_cast<const float *>(data) + index * columns();
  }

 private:
  std::unique_ptr<DLManagedTensorVersioned, Delete> tensor_;
};

// A vector of float32 in a managed tensor, which frees it.
struct Vector {
  DLManagedTensorVersioned managed = {};
  std::vector<float> values;
  int64_t shape, stride = 1;

  explicit Vector(int64_t length) : values(static_cast<size_t>(length)), shape(length) {
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned *self) { delete static_cast<Vector *>(self->manager_ctx); };
    managed.dl_tensor = {values.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &shape, &stride, 0};
  }
};

// The sum of each row, as a vector of the framework of the matrix.
static nb::object row_sums(nb::object x) {
  Matrix matrix(x);
  auto sums = std::make_unique<Vector>(matrix.rows());
  for (int64_t index = 0; index < matrix.rows(); index++) {
    const float *row = matrix.row(index);
    float sum = 0;
    for (int64_t column = 0; column < matrix.columns(); column++) sum += row[column];
    sums->values[static_cast<size_t>(index)] = sum;
  }
  PyObject *result = api->wrap(&sums->managed, x.ptr());
  if (result == nullptr) throw nb::python_error();
  sums.release();
  return nb::steal(result);
}

NB_MODULE(vectors_nanobind, module) {
  api = tensorferry_import();
  if (api == nullptr) throw nb::python_error();
  module.def("row_sums", &row_sums, "The sum of each row of a matrix of any framework.");
}
