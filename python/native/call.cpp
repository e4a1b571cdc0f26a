#include "python/native/call.h"

#include <algorithm>
#include <cstdlib>

#include "python/native/error.h"

namespace nb = nanobind;

namespace saccade::python {
namespace {

const char* kOrderNames[] = {"[batch, heads, seqlen, head_dim]", "[batch, seqlen, heads, head_dim]",
                             "[total, heads, head_dim]"};

std::string text_of(const Tensor& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

void must_agree(std::int64_t a, std::int64_t b, const char* what, const Tensor& x, const char* x_name, const Tensor& y,
                const char* y_name) {
  if (a == b) return;
  raise_invalid(std::string(what) + " differ: " + x_name + " is " + text_of(x) + ", " + y_name + " is " + text_of(y));
}

/// Whether its elements fill its memory once, in whatever order of dimensions.
bool is_dense(const Tensor& tensor) {
  std::int64_t filled = 1;
  while (filled < tensor.elements()) {
    int next = -1;
    for (int i = 0; i < tensor.rank; ++i) {
      if (tensor.shape[i] > 1 && tensor.stride[i] == filled) next = i;
    }
    if (next < 0) return false;
    filled *= tensor.shape[next];
  }
  return tensor.elements() > 0;
}

/// A CPU plan's workspace: one for each thread, as large as the largest so far.
void* thread_workspace(std::size_t bytes) {
  struct Memory {
    void* data = nullptr;
    std::size_t bytes = 0;
    ~Memory() { std::free(data); }
  };
  thread_local Memory memory;
  if (memory.bytes < bytes) {
    std::free(memory.data);
    memory.bytes = 0;
    memory.data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory.data == nullptr) {
      raise(SACCADE_OUT_OF_MEMORY, "no memory for a workspace of " + std::to_string(bytes) + " bytes");
    }
    memory.bytes = bytes;
  }
  return memory.data;
}

}  // namespace

std::int64_t integer_from(nb::handle value, const char* name) {
  const long long result = PyLong_Check(value.ptr()) ? PyLong_AsLongLong(value.ptr()) : -1;
  if (result == -1 && (!PyLong_Check(value.ptr()) || PyErr_Occurred() != nullptr)) {
    PyErr_Clear();
    throw nb::type_error((std::string(name) + " must be an int of 64 bits").c_str());
  }
  return result;
}

Call::Axes Call::axes_of(Order order) {
  switch (order) {
    case Order::bhsd: return {0, 1, 2};
    case Order::bshd: return {0, 2, 1};
    case Order::thd: break;
  }
  return {-1, 1, 0};
}

Call::Call(const Operator& op, const Inputs& inputs, bool with_outputs)
    : operator_(op), inputs_(inputs), framework_(framework_of(inputs.q, "q")), axes_(axes_of(op.order())) {
  const int rank = op.order() == Order::thd ? 3 : 4;
  read_stream();
  q_ = read(inputs.q, "q", rank);
  signature_.device = q_.device;
  if (q_.device.is_cuda && framework_.exchange != nullptr && inputs.stream.is_none()) read_exchanged_stream();
  k_ = read(inputs.k, "k", rank);
  v_ = read(inputs.v, "v", rank);
  check_gradients();
  read_sizes();
  if (op.order() == Order::thd) read_sequences();
  read_declared();
  signature_.o = q_.dtype;
  if (with_outputs) {
    read_outputs();
    if (op.lse()) {
      read_lse();
    } else if (!inputs.lse.is_none()) {
      raise_invalid("lse is given, but this was made without return_lse=True");
    }
  }
  signature_.shape.alignment = alignment();
}

Tensor Call::read(nb::handle object, const char* name, int rank) {
  const Tensor tensor = reader_.read(object, name);
  if (tensor.rank != rank) {
    raise_invalid(std::string(name) + " has " + std::to_string(tensor.rank) + " dimensions: " + text_of(tensor) + "; " +
                  kOrderNames[static_cast<int>(operator_.order())] + " is wanted");
  }
  if (tensor.stride[rank - 1] != 1 && tensor.shape[rank - 1] > 1 && tensor.elements() > 0) {
    raise_invalid(std::string(name) + "'s last dimension has stride " + std::to_string(tensor.stride[rank - 1]) +
                  "; it must be 1 (make it contiguous, or let copy=True do so)");
  }
  return tensor;
}

/// Before q is read: producers that make their work wait for ours must know the stream.
void Call::read_stream() {
  if (!inputs_.stream.is_none()) {
    stream_ = integer_from(inputs_.stream, "stream");
  } else if (framework_.exchange == nullptr) {
    const nb::tuple device = nb::cast<nb::tuple>(inputs_.q.attr("__dlpack_device__")());
    const int type = nb::cast<int>(device[0]);
    if (type == dlpack::kDLCUDA || type == dlpack::kDLCUDAManaged) {
      stream_ = nb::cast<std::int64_t>(framework_.current_stream(device[1]));
    }
  }
  reader_.set_stream(stream_);
}

/// After q is read, which needs no stream then and says the device.
void Call::read_exchanged_stream() {
  void* stream = nullptr;
  if (framework_.exchange->current_work_stream(dlpack::kDLCUDA, q_.device.ordinal, &stream) != 0) {
    throw nb::python_error();
  }
  stream_ = reinterpret_cast<std::int64_t>(stream);
  reader_.set_stream(stream_);
}

void Call::check_gradients() const {
  const auto check_one = [](nb::handle tensor) {
    const Framework& framework = framework_of(tensor, "a table");
    if (framework.grad_enabled.is_none()) return;
    static PyObject* const attribute = PyUnicode_InternFromString("requires_grad");
    const nb::object wanted = nb::steal(PyObject_GetAttr(tensor.ptr(), attribute));
    if (!wanted.is_valid()) throw nb::python_error();
    if (wanted.ptr() == Py_True && nb::cast<bool>(framework.grad_enabled())) {
      raise(SACCADE_UNSUPPORTED,
            "an input requires grad, and Saccade has no backward pass yet: detach() the inputs or call it under "
            "torch.no_grad()");
    }
  };
  for (const nb::handle tensor : {inputs_.q, inputs_.k, inputs_.v}) check_one(tensor);
  for (const nb::handle table : nb::borrow<nb::tuple>(inputs_.tables)) check_one(table);
}

void Call::read_sizes() {
  const struct {
    const Tensor& tensor;
    const char* name;
  } others[] = {{k_, "k"}, {v_, "v"}};
  const int inner = q_.rank - 1;
  for (const auto& [tensor, name] : others) {
    if (!(tensor.device == q_.device)) {
      raise_invalid(std::string("q is on ") + q_.device.name() + " and " + name + " on " + tensor.device.name() +
                    "; all tensors of a call must be on one device");
    }
    must_agree(extent(q_, axes_.batch), extent(tensor, axes_.batch), "batch sizes", q_, "q", tensor, name);
  }
  must_agree(q_.shape[inner], k_.shape[inner], "head dims", q_, "q", k_, "k");
  must_agree(k_.shape[axes_.head], v_.shape[axes_.head], "head counts", k_, "k", v_, "v");
  must_agree(k_.shape[axes_.row], v_.shape[axes_.row], "lengths", k_, "k", v_, "v");

  for (const auto& [tensor, name] : others) {
    if (tensor.dtype != q_.dtype) {
      raise_invalid(std::string("q is ") + name_of(q_.dtype) + " and " + name + " is " + name_of(tensor.dtype) +
                    "; no kernel family takes different dtypes");
    }
  }
  signature_.q = q_.dtype;
  signature_.k = k_.dtype;
  signature_.v = v_.dtype;
  signature_.head_dim_qk = static_cast<int>(std::min<std::int64_t>(q_.shape[inner], 1 << 30));
  signature_.head_dim_v = static_cast<int>(std::min<std::int64_t>(v_.shape[inner], 1 << 30));
  saccade_shape& shape = signature_.shape;
  SACCADE_INIT(&shape);
  shape.batch = extent(q_, axes_.batch);
  shape.heads_q = q_.shape[axes_.head];
  shape.heads_kv = k_.shape[axes_.head];
  shape.seqlen_q = q_.shape[axes_.row];
  shape.seqlen_kv = k_.shape[axes_.row];
  if (operator_.equal_lengths() && shape.seqlen_q != shape.seqlen_kv) {
    raise_invalid("causal=True and window=... mean one thing only where the lengths are equal; q has " +
                  std::to_string(shape.seqlen_q) + " rows and k " + std::to_string(shape.seqlen_kv) +
                  ": say causal=\"top_left\" or \"bottom_right\" (for a window alone, mask=saccade.window(left, right, "
                  "align=...))");
  }
}

void Call::read_sequences() {
  const auto read_ends = [&](nb::handle object, const char* name) {
    const Tensor ends = reader_.read(object, name);
    if (ends.rank != 1 || ends.dtype != SACCADE_I32 || ends.shape[0] < 1 ||
        (ends.shape[0] > 1 && ends.stride[0] != 1)) {
      raise_invalid(std::string(name) + " is " + name_of(ends.dtype) + " " + text_of(ends) +
                    "; contiguous i32 [batch + 1] is wanted");
    }
    if (!(ends.device == q_.device)) {
      raise_invalid(std::string(name) + " is on " + ends.device.name() + ", q is on " + q_.device.name());
    }
    return ends;
  };
  cu_seqlens_q_ = read_ends(inputs_.cu_seqlens_q, "cu_seqlens_q");
  cu_seqlens_kv_ = read_ends(inputs_.cu_seqlens_kv, "cu_seqlens_kv");
  must_agree(cu_seqlens_q_.shape[0], cu_seqlens_kv_.shape[0], "batch sizes", cu_seqlens_q_, "cu_seqlens_q",
             cu_seqlens_kv_, "cu_seqlens_kv");
  saccade_shape& shape = signature_.shape;
  shape.batch = cu_seqlens_q_.shape[0] - 1;
  shape.total_q = shape.seqlen_q;
  shape.total_kv = shape.seqlen_kv;
  shape.seqlen_q = inputs_.max_seqlen_q;
  shape.seqlen_kv = inputs_.max_seqlen_kv;
}

void Call::read_declared() {
  const RuleText& rule = operator_.rule();
  const nb::tuple tables = nb::cast<nb::tuple>(inputs_.tables), scalars = nb::cast<nb::tuple>(inputs_.scalars);
  if (tables.size() != rule.tables.size() || scalars.size() != rule.scalars.size()) {
    raise(SACCADE_INTERNAL, "a call has other arguments than its rule declares");
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const RuleText::Table& declared = rule.tables[i];
    const Tensor table = reader_.read(tables[i], declared.name.c_str());
    if (!(table.device == q_.device)) {
      raise_invalid("table \"" + declared.name + "\" is on " + table.device.name() + ", q is on " + q_.device.name() +
                    "; move it to that device first");
    }
    const bool is_number = table.rank == 0 && declared.rank == 1;
    if (table.dtype != declared.dtype || (table.rank != declared.rank && !is_number)) {
      raise_invalid("table \"" + declared.name + "\" is " + name_of(table.dtype) + " " + text_of(table) +
                    "; the rule was made for " + name_of(declared.dtype) + " of " + std::to_string(declared.rank) +
                    " dimensions");
    }
    tables_[i] = {};
    tables_[i].data = table.data;
    if (is_number) tables_[i].extent[0] = 1;
    std::copy_n(table.shape, table.rank, tables_[i].extent);
    std::copy_n(table.stride, table.rank, tables_[i].stride);
  }
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (rule.scalars[i].second == SACCADE_F32) {
      scalars_[i].f = static_cast<float>(nb::cast<double>(scalars[i]));
    } else {
      scalars_[i].i = nb::cast<std::int64_t>(scalars[i]);
    }
  }
}

void Call::read_outputs() {
  const int inner = q_.rank - 1;
  if (!inputs_.out.is_none()) {
    o_ = read(inputs_.out, "out", q_.rank);
    if (o_.read_only || !framework_of(inputs_.out, "out").takes_out) raise_invalid("out is read-only");
    check_overlap(q_, "q");
    check_overlap(k_, "k");
    check_overlap(v_, "v");
    if (!(o_.device == q_.device)) {
      raise_invalid("out is on " + o_.device.name() + ", q is on " + q_.device.name());
    }
    for (int i = 0; i < inner; ++i) must_agree(q_.shape[i], o_.shape[i], "sizes", q_, "q", o_, "out");
    must_agree(v_.shape[inner], o_.shape[inner], "head dims of v and out", v_, "v", o_, "out");
    if (o_.dtype != q_.dtype) {
      raise_invalid(std::string("q is ") + name_of(q_.dtype) + " and out is " + name_of(o_.dtype) +
                    "; out must be as q");
    }
    for (int i = 0; i < inner; ++i) {
      if (o_.shape[i] > 1 && o_.stride[i] == 0 && o_.elements() > 0) {
        raise_invalid("out is expanded: dimension " + std::to_string(i) + " of " + text_of(o_) +
                      " has stride 0, so rows would overwrite each other");
      }
    }
    out_ = nb::borrow(inputs_.out);
    signature_.o = o_.dtype;
    return;
  }
  if (signature_.head_dim_qk == signature_.head_dim_v && is_dense(q_)) {
    out_ = framework_.empty_like(inputs_.q);  // the same as the general way, and quicker
  } else {
    out_ = framework_.empty_like_but(inputs_.q, v_.shape[inner]);
  }
  o_ = read(out_, "out", q_.rank);
}

/// The kernel reads other rows of `tensor` after it has written some of out.
void Call::check_overlap(const Tensor& tensor, const char* name) const {
  const auto* out = static_cast<const char*>(o_.data);
  const auto* other = static_cast<const char*>(tensor.data);
  if (out < other + tensor.span_bytes() && other < out + o_.span_bytes()) {
    raise_invalid(std::string("out and ") + name + " lie in the same memory; out must be apart from what is read");
  }
}

void Call::read_lse() {
  const saccade_shape& shape = signature_.shape;
  nb::list sizes;
  if (operator_.order() == Order::thd) {
    sizes.append(shape.heads_q);
    sizes.append(shape.total_q);
  } else {
    sizes.append(shape.batch);
    sizes.append(shape.heads_q);
    sizes.append(shape.seqlen_q);
  }
  if (inputs_.lse.is_none()) {
    lse_out_ = framework_.empty(inputs_.q, nb::tuple(sizes), name_of(SACCADE_F32));
  } else {
    lse_out_ = nb::borrow(inputs_.lse);
  }
  lse_ = reader_.read(lse_out_, "lse");
  bool fits = lse_.rank == static_cast<int>(sizes.size()) && lse_.dtype == SACCADE_F32 && !lse_.read_only &&
              lse_.device == q_.device;
  std::int64_t contiguous = 1;
  for (int i = lse_.rank - 1; fits && i >= 0; --i) {
    fits = lse_.shape[i] == nb::cast<std::int64_t>(sizes[static_cast<std::size_t>(i)]) &&
           (lse_.shape[i] <= 1 || lse_.stride[i] == contiguous || lse_.elements() == 0);
    contiguous *= lse_.shape[i];
  }
  if (!fits) {
    raise_invalid(std::string("lse is ") + name_of(lse_.dtype) + " " + text_of(lse_) + " on " + lse_.device.name() +
                  "; contiguous, writable f32 " + nb::str(sizes).c_str() + " on " + q_.device.name() + " is wanted");
  }
}

saccade_strides Call::strides_of(const Tensor& tensor) const {
  return {axes_.batch < 0 ? 0 : tensor.stride[axes_.batch], tensor.stride[axes_.head], tensor.stride[axes_.row]};
}

/// Bytes (2 to 16) that divide every pointer and stride.
int Call::alignment() const {
  std::uint64_t bits = 16;
  for (const Tensor* tensor : {&q_, &k_, &v_, &o_}) {
    if (tensor->rank == 0 || tensor->elements() == 0) continue;
    bits |= reinterpret_cast<std::uintptr_t>(tensor->data);
    for (int i = 0; i + 1 < tensor->rank; ++i) {
      if (tensor->shape[i] > 1) bits |= static_cast<std::uint64_t>(tensor->stride[i] * size_of(tensor->dtype));
    }
  }
  return std::max(static_cast<int>(bits & (~bits + 1)), 2);
}

void* Call::workspace_of(const saccade_plan* plan, nb::object& keeper) {
  std::int64_t bytes = 0;
  check(saccade_plan_workspace_bytes(plan, &bytes));
  if (bytes == 0) return nullptr;
  if (!q_.device.is_cuda) return thread_workspace(static_cast<std::size_t>(bytes));
  keeper = framework_.empty(inputs_.q, nb::make_tuple(bytes), name_of(SACCADE_U8));
  return reader_.read(keeper, "workspace").data;
}

void Call::run(const saccade_plan* plan) {
  saccade_run_arguments arguments;
  SACCADE_INIT(&arguments);
  nb::object keeper;
  arguments.q = q_.data;
  arguments.k = k_.data;
  arguments.v = v_.data;
  arguments.o = o_.data;
  arguments.lse = static_cast<float*>(lse_.data);
  arguments.q_stride = strides_of(q_);
  arguments.k_stride = strides_of(k_);
  arguments.v_stride = strides_of(v_);
  arguments.o_stride = strides_of(o_);
  arguments.cu_seqlens_q = static_cast<const std::int32_t*>(cu_seqlens_q_.data);
  arguments.cu_seqlens_kv = static_cast<const std::int32_t*>(cu_seqlens_kv_.data);
  arguments.tables = tables_;
  arguments.scalars = scalars_;
  arguments.workspace = workspace_of(plan, keeper);
  arguments.stream = reinterpret_cast<void*>(stream_);
  arguments.has_scale = inputs_.scale.has_value() ? 1 : 0;
  arguments.scale = inputs_.scale.value_or(0);
  // A launch is over in microseconds, less than the other threads' hunt for the lock would take.
  if (q_.device.is_cuda) return check(saccade_plan_run(plan, &arguments));
  note_cpu_run();
  saccade_status status = SACCADE_OK;
  {
    const Unlocked unlocked;
    status = saccade_plan_run(plan, &arguments);
  }
  check(status);
}

nb::object Call::result() const { return operator_.lse() ? nb::make_tuple(out_, lse_out_) : out_; }

}  // namespace saccade::python
