#include "store/checkpoint/torch_tensor.h"

#include <algorithm>

#include "store/checkpoint/numeric.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kMaxPickleBytes = std::uint64_t{256} << 20U;

/// ('storage', torch.FloatStorage, '0', 'cpu', 12)
struct StorageReference {
  const ZipRecord* record = nullptr;
  std::optional<DType> dtype;  // absent for UntypedStorage
};

Result<StorageReference> read_storage(const TorchFile& file, Pickle::NodeId node,
                                      const std::string& name) {
  const Pickle& pickle = file.pickle;
  if (pickle.kind(node) != PickleKind::kPersistent) return file.corrupt(name, "has no storage");
  const Pickle::NodeId id = pickle.persistent_id(node);
  const auto parts = pickle.items(id);
  if (pickle.kind(id) != PickleKind::kTuple || parts.size() != 5 ||
      pickle.text(parts[0]) != "storage" || pickle.kind(parts[1]) != PickleKind::kGlobal ||
      pickle.kind(parts[2]) != PickleKind::kText || pickle.kind(parts[3]) != PickleKind::kText ||
      pickle.kind(parts[4]) != PickleKind::kInteger || pickle.integer(parts[4]) < 0) {
    return file.corrupt(name, "has a storage reference of another form than torch.save writes");
  }
  StorageReference storage;
  std::uint64_t element_bytes = 1;
  if (pickle.global(parts[1]) == PickleGlobal::kTypedStorage) {
    storage.dtype = pickle.dtype(parts[1]);
    element_bytes = dtype_size(*storage.dtype);
  } else if (pickle.global(parts[1]) != PickleGlobal::kUntypedStorage) {
    return file.corrupt(name, "has a storage of no storage class");
  }
  const std::string record_name = "data/" + std::string(pickle.text(parts[2]));
  storage.record = file.zip.find(record_name);
  if (storage.record == nullptr) {
    return file.corrupt(
        name, "needs the record " + quote_name(record_name) + ", which is not in the file");
  }
  const auto bytes =
      checked_mul(static_cast<std::uint64_t>(pickle.integer(parts[4])), element_bytes);
  if (!bytes || *bytes != storage.record->size) {
    return file.corrupt(name, "has a storage of " + std::to_string(pickle.integer(parts[4])) +
                                  " × " + std::to_string(element_bytes) + " bytes, but record " +
                                  quote_name(record_name) + " has " +
                                  std::to_string(storage.record->size));
  }
  return storage;
}

/// _rebuild_from_type_v2(_rebuild_tensor_v2, torch.Tensor, (…), state): a tensor with attributes,
/// which say nothing about its elements.
struct AttributedTensor {
  bool v2 = false;
  std::span<const Pickle::NodeId> arguments;
};
std::optional<AttributedTensor> attributed_tensor(const Pickle& pickle, Pickle::NodeId node) {
  if (!pickle.is_object(node, PickleGlobal::kRebuildFromType2)) return std::nullopt;
  const auto outer = pickle.arguments(node);
  if (outer.size() != 4 || !pickle.is_global(outer[1], PickleGlobal::kTensorClass) ||
      pickle.kind(outer[2]) != PickleKind::kTuple) {
    return std::nullopt;
  }
  const bool v2 = pickle.is_global(outer[0], PickleGlobal::kRebuildTensor2);
  if (!v2 && !pickle.is_global(outer[0], PickleGlobal::kRebuildTensor3)) return std::nullopt;
  return AttributedTensor{v2, pickle.items(outer[2])};
}

/// Elements from the first to behind the last one; absent on overflow.
std::optional<std::uint64_t> span_elements(const StoredTensor& tensor) {
  std::uint64_t span = 1;
  for (std::size_t d = 0; d < tensor.size.size(); ++d) {
    const auto reach = checked_mul(static_cast<std::uint64_t>(tensor.size[d] - 1),
                                   static_cast<std::uint64_t>(tensor.stride[d]));
    const auto next = reach ? checked_add(span, *reach) : std::nullopt;
    if (!next) return std::nullopt;
    span = *next;
  }
  return span;
}

/// Whether no two indices lead to the same element: each stride clears all smaller dimensions.
bool is_free_of_overlap(const StoredTensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, size
  for (std::size_t d = 0; d < tensor.size.size(); ++d) {
    if (tensor.size[d] > 1) dimensions.emplace_back(tensor.stride[d], tensor.size[d]);
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t reach = 0;  // of the dimensions so far; cannot overflow, the span was checked
  for (const auto& [stride, size] : dimensions) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

}  // namespace

std::uint64_t TorchFile::description_bytes() const {
  const ZipRecord* const data = zip.find("data.pkl");  // read() saw it
  return data == nullptr ? 0 : data->size;
}

std::string TorchFile::place() const {
  const ZipRecord* const data = zip.find("data.pkl");  // read() saw it
  return " (by data.pkl at byte " + std::to_string(data == nullptr ? 0 : data->offset) + ")";
}

Error TorchFile::corrupt(const std::string& what, const std::string& why) const {
  return make_error(ErrorCode::kCorruption,
                    where + ": tensor " + quote_name(what) + " " + why + place());
}

Result<TorchFile> TorchFile::read(const ReadableFile& file, const std::string& where,
                                  PickleNames names) {
  EVALCAR_ASSIGN_OR_RETURN(TorchZip zip, TorchZip::read(file, where));
  const ZipRecord* const data = zip.find("data.pkl");
  if (data == nullptr) {
    return make_error(ErrorCode::kCorruption,
                      where + ": has no data.pkl, expected a torch.save file");
  }
  EVALCAR_ASSIGN_OR_RETURN(std::string bytes, zip.read_record(file, *data, kMaxPickleBytes, where));
  EVALCAR_ASSIGN_OR_RETURN(Pickle pickle,
                           Pickle::parse(std::move(bytes), where + "/data.pkl", names));
  return TorchFile{where, std::move(zip), std::move(pickle)};
}

bool is_plain_tensor(const Pickle& pickle, Pickle::NodeId node) {
  return pickle.is_object(node, PickleGlobal::kRebuildTensor2) ||
         pickle.is_object(node, PickleGlobal::kRebuildTensor3) ||
         pickle.is_object(node, PickleGlobal::kRebuildParameter) ||
         pickle.is_object(node, PickleGlobal::kRebuildParameterWithState) ||
         attributed_tensor(pickle, node).has_value();
}

std::optional<std::vector<std::int64_t>> read_sizes(const Pickle& pickle, Pickle::NodeId node,
                                                    std::size_t limit) {
  if (pickle.is_object(node, PickleGlobal::kSize)) {
    const auto arguments = pickle.arguments(node);
    if (arguments.size() != 1) return std::nullopt;
    node = arguments[0];
  }
  if (pickle.kind(node) != PickleKind::kTuple && pickle.kind(node) != PickleKind::kList) {
    return std::nullopt;
  }
  const auto items = pickle.items(node);
  if (items.size() > limit) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const Pickle::NodeId item : items) {
    if (pickle.kind(item) != PickleKind::kInteger || pickle.integer(item) < 0) return std::nullopt;
    sizes.push_back(pickle.integer(item));
  }
  return sizes;
}

Result<StoredTensor> read_stored_tensor(const TorchFile& file, Pickle::NodeId node,
                                        const std::string& name) {
  const Pickle& pickle = file.pickle;
  // (data, requires_grad, hooks[, the attributes that somebody gave it, which are not looked at])
  const bool marked = pickle.is_object(node, PickleGlobal::kRebuildParameterWithState);
  if (marked || pickle.is_object(node, PickleGlobal::kRebuildParameter)) {
    const auto arguments = pickle.arguments(node);
    const std::size_t expected = marked ? 4 : 3;
    if (arguments.size() != expected) {
      return file.corrupt(name, "is a Parameter of " + std::to_string(arguments.size()) +
                                    " arguments, expected " + std::to_string(expected));
    }
    node = arguments[0];
  }
  bool v2 = pickle.is_object(node, PickleGlobal::kRebuildTensor2);
  bool v3 = pickle.is_object(node, PickleGlobal::kRebuildTensor3);
  const auto attributed = attributed_tensor(pickle, node);
  if (attributed) {
    v2 = attributed->v2;
    v3 = !v2;
  }
  if (!v2 && !v3) return file.corrupt(name, "is not a tensor");

  // v2: (storage, offset, size, stride, requires_grad, hooks[, metadata])
  // v3: (storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])
  const auto arguments = attributed ? attributed->arguments : pickle.arguments(node);
  const std::size_t required = v2 ? 6 : 7;
  if (arguments.size() != required && arguments.size() != required + 1) {
    return file.corrupt(name, "has " + std::to_string(arguments.size()) + " arguments, expected " +
                                  std::to_string(required));
  }
  if (arguments.size() > required && !pickle.items(arguments[required]).empty()) {
    return make_error(ErrorCode::kUnsupported, file.where + ": tensor " + quote_name(name) +
                                                   " is a lazy conjugate or negative view" +
                                                   file.place());
  }
  EVALCAR_ASSIGN_OR_RETURN(const StorageReference storage, read_storage(file, arguments[0], name));
  StoredTensor tensor;
  if (v3) {
    if (!pickle.is_global(arguments[6], PickleGlobal::kDType)) {
      return file.corrupt(name, "has no dtype");
    }
    tensor.dtype = pickle.dtype(arguments[6]);
  } else if (storage.dtype) {
    tensor.dtype = *storage.dtype;
  } else {
    return file.corrupt(name, "has an untyped storage and no dtype");
  }
  const auto size = read_sizes(pickle, arguments[2], kMaxDimensions);
  const auto stride = read_sizes(pickle, arguments[3], kMaxDimensions);
  if (!size || !stride || size->size() != stride->size() ||
      pickle.kind(arguments[1]) != PickleKind::kInteger || pickle.integer(arguments[1]) < 0) {
    return file.corrupt(name, "has a negative or malformed offset, size or stride");
  }
  tensor.size = *size;
  tensor.stride = *stride;
  const auto elements = checked_elements(tensor.size);
  if (!elements) return file.corrupt(name, "has too large a size " + shape_text(tensor.size));
  const std::uint64_t element_bytes = dtype_size(tensor.dtype);
  const std::uint64_t available = storage.record->size / element_bytes;
  const auto offset = static_cast<std::uint64_t>(pickle.integer(arguments[1]));
  if (*elements > 0) {
    const auto span = span_elements(tensor);
    const auto end = span ? checked_add(offset, *span) : std::nullopt;
    if (!end || *end > available) {
      return file.corrupt(name, "of size " + shape_text(tensor.size) + ", stride " +
                                    shape_text(tensor.stride) + ", offset " +
                                    std::to_string(offset) + " reaches beyond its storage of " +
                                    std::to_string(available) + " elements");
    }
    if (!is_free_of_overlap(tensor)) {
      return make_error(ErrorCode::kUnsupported,
                        file.where + ": tensor " + quote_name(name) +
                            " is a view that overlaps itself (an expanded tensor?)" + file.place());
    }
  }
  tensor.record = *storage.record;
  tensor.file_offset = storage.record->offset + (*elements > 0 ? offset * element_bytes : 0);
  return tensor;
}

}  // namespace evalcar::checkpoint
