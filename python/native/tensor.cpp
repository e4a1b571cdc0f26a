#include "python/native/tensor.h"

#include <unordered_map>

#include "python/native/error.h"

namespace nb = nanobind;

namespace saccade::python {
namespace {

using namespace dlpack;

struct DtypeRow {
  saccade_dtype dtype;
  std::uint8_t code, bits;
  const char* name;
};
constexpr DtypeRow kDtypes[] = {
    {SACCADE_F32, kDLFloat, 32, "f32"},
    {SACCADE_F16, kDLFloat, 16, "f16"},
    {SACCADE_BF16, kDLBfloat, 16, "bf16"},
    {SACCADE_F64, kDLFloat, 64, "f64"},
    {SACCADE_E4M3, kDLFloat8_e4m3fn, 8, "e4m3"},
    {SACCADE_E5M2, kDLFloat8_e5m2, 8, "e5m2"},
    {SACCADE_I8, kDLInt, 8, "i8"},
    {SACCADE_I16, kDLInt, 16, "i16"},
    {SACCADE_I32, kDLInt, 32, "i32"},
    {SACCADE_I64, kDLInt, 64, "i64"},
    {SACCADE_U8, kDLUInt, 8, "u8"},
    {SACCADE_U16, kDLUInt, 16, "u16"},
    {SACCADE_U32, kDLUInt, 32, "u32"},
    {SACCADE_BOOL, kDLBool, 8, "bool"},
};

const DtypeRow& row_of(saccade_dtype dtype) {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row;
  }
  raise(SACCADE_INTERNAL, "unknown dtype");
}

saccade_dtype dtype_of(const DLDataType& type, const char* name) {
  for (const DtypeRow& row : kDtypes) {
    if (type.code == row.code && type.bits == row.bits && type.lanes == 1) return row.dtype;
  }
  raise_invalid(std::string(name) + " has elements that Saccade has no name for (DLPack code " +
                std::to_string(type.code) + ", " + std::to_string(type.bits) +
                " bits); known are f16, bf16, f32, f64, e4m3, e5m2, bool and integers of 8 to 64 bits");
}

Tensor converted(const DLTensor& given, const char* name) {
  Tensor tensor;
  switch (given.device.device_type) {
    case kDLCPU:
    case kDLCUDAHost: break;
    case kDLCUDA:
    case kDLCUDAManaged: tensor.device = {true, given.device.device_id}; break;
    default:
      raise_invalid(std::string(name) + " is neither on a CPU nor on a CUDA device (DLPack device type " +
                    std::to_string(given.device.device_type) + ")");
  }
  if (given.ndim > kMaxRank) {
    raise_invalid(std::string(name) + " has " + std::to_string(given.ndim) + " dimensions; 4 at most are possible");
  }
  tensor.dtype = dtype_of(given.dtype, name);
  tensor.rank = given.ndim;
  tensor.data = static_cast<char*>(given.data) + given.byte_offset;
  std::int64_t contiguous = 1;
  for (int i = given.ndim - 1; i >= 0; --i) {
    tensor.shape[i] = given.shape[i];
    tensor.stride[i] = given.strides != nullptr ? given.strides[i] : contiguous;
    contiguous *= given.shape[i];
  }
  return tensor;
}

/// What a producer said when it would not hand out its memory (a sparse tensor, a meta tensor, ...), without its stack.
[[noreturn]] void refuse(const nb::python_error& error, const char* name) {
  std::string text = nb::str(error.value()).c_str();
  raise_invalid(std::string(name) + " cannot be read through DLPack: " + text.substr(0, text.find('\n')));
}

const DLPackExchangeAPI* exchange_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  auto* header = static_cast<DLPackExchangeAPIHeader*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (header != nullptr && header->version.major != 1) header = header->prev_api;
  const auto* api = reinterpret_cast<const DLPackExchangeAPI*>(header);
  return api != nullptr && api->dltensor_from_py_object_no_sync != nullptr ? api : nullptr;
}

/// Types stay alive with their entry. The interpreter lock guards the map.
std::unordered_map<PyTypeObject*, Framework>& frameworks() {
  static auto* known = new std::unordered_map<PyTypeObject*, Framework>;  // Python objects may not outlive Python
  return *known;
}

}  // namespace

std::int64_t Tensor::elements() const {
  std::int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= shape[i];
  return count;
}

std::int64_t Tensor::span_bytes() const {
  if (elements() == 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < rank; ++i) last += (shape[i] - 1) * stride[i];
  return (last + 1) * size_of(dtype);
}

const char* name_of(saccade_dtype dtype) { return row_of(dtype).name; }
int size_of(saccade_dtype dtype) { return row_of(dtype).bits / 8; }

const Framework& framework_of(nb::handle object, const char* name) {
  PyTypeObject* type = Py_TYPE(object.ptr());
  static PyTypeObject* last_type = nullptr;  // the tensors of a call are mostly of one type
  static const Framework* last = nullptr;
  if (type == last_type) return *last;
  const auto found = frameworks().find(type);
  if (found != frameworks().end()) {
    last_type = type;
    last = &found->second;
    return *last;
  }
  const nb::handle type_object(reinterpret_cast<PyObject*>(type));
  if (!nb::hasattr(type_object, "__dlpack__")) {
    throw nb::type_error((std::string(name) + " is a " + nb::type_name(type_object).c_str() +
                          "; a tensor that speaks DLPack is wanted (PyTorch, NumPy, JAX, CuPy, ...)")
                             .c_str());
  }
  const nb::object adapter = nb::module_::import_("saccade._frameworks").attr("adapter_of")(type_object);
  Framework framework{exchange_of(type_object),
                      adapter.attr("empty_like"),
                      adapter.attr("empty_like_but"),
                      adapter.attr("empty"),
                      nb::cast<bool>(adapter.attr("takes_out")),
                      adapter.attr("grad_enabled"),
                      adapter.attr("current_stream")};
  Py_INCREF(type_object.ptr());
  return frameworks().emplace(type, std::move(framework)).first->second;
}

TensorReader::~TensorReader() {
  for (int i = 0; i < count_; ++i) Py_DECREF(held_[i]);
}

Tensor TensorReader::read(nb::handle object, const char* name) {
  const Framework& framework = framework_of(object, name);
  if (framework.exchange != nullptr) {
    DLTensor view{};
    if (framework.exchange->dltensor_from_py_object_no_sync(object.ptr(), &view) != 0) refuse(nb::python_error(), name);
    return converted(view, name);
  }
  // The producer orders its own work before ours, on the stream that it is told. The capsule is kept, not consumed:
  // its destructor gives the tensor back.
  nb::dict keywords;
  const nb::tuple device = nb::cast<nb::tuple>(object.attr("__dlpack_device__")());
  const int device_type = nb::cast<int>(device[0]);
  if (device_type == kDLCUDA || device_type == kDLCUDAManaged)
    keywords["stream"] = stream_ == 0 ? 1 : stream_;  // 1: the legacy default
  nb::object capsule;
  try {
    nb::dict versioned;
    for (const auto& [key, value] : keywords) versioned[key] = value;
    versioned["max_version"] = nb::make_tuple(1, 0);
    capsule = object.attr("__dlpack__")(**versioned);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) refuse(error, name);
    capsule = object.attr("__dlpack__")(**keywords);  // a producer from before DLPack 1.0
  }
  if (count_ == kMost) raise(SACCADE_INTERNAL, "too many tensors in one call");
  held_[count_++] = nb::object(capsule).release().ptr();
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    Tensor tensor = converted(managed->dl_tensor, name);
    tensor.read_only = (managed->flags & kFlagReadOnly) != 0;
    return tensor;
  }
  const auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw nb::python_error();
  return converted(managed->dl_tensor, name);
}

}  // namespace saccade::python
