#include "baton/checkpoint/pretrained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/narrow.h"
#include "baton/base/text.h"
#include "baton/checkpoint/share.h"
#include "baton/exec/rank_run.h"
#include "baton/model/huggingface.h"
#include "baton/model/names.h"
#include "baton/model/onnx.h"
#include "baton/model/parse.h"

namespace baton::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_at_a_time = std::size_t{1} << 20;  // bytes
constexpr std::string_view positions = "transformer.wpe.weight";

/// The tensors of a model's weights and statistics as files hold them.
struct Wanted {
  std::vector<model::StoredTensor> stored;
  Tensors tensors;
};
Wanted wanted_by(const model::Model& model) {
  std::map<std::string, Shape> shapes;
  std::set<std::string> counts;
  for (const model::Block& block : model.blocks()) {
    for (const model::Parameter& parameter : block.parameters) {
      shapes[parameter.name] = parameter.shape;
      if (parameter.kept == model::Kept::count) {
        counts.insert(parameter.name);
      }
    }
  }
  Wanted wanted{.stored = model::stored_tensors(shapes), .tensors = {}};
  for (const model::StoredTensor& tensor : wanted.stored) {
    wanted.tensors[tensor.name] = {counts.contains(tensor.parts[0].parameter) ? DType::i32 : DType::f32, tensor.shape};
  }
  return wanted;
}

bool is_floating(archive::ElementType type) { return type.dtype() && *type.dtype() != DType::i32; }

template <typename Element>
double load(const std::byte* at) {
  Element element;
  std::memcpy(&element, at, sizeof element);
  if constexpr (std::is_same_v<Element, Bf16> || std::is_same_v<Element, F16>) {
    return static_cast<double>(static_cast<float>(element));
  } else {
    return static_cast<double>(element);
  }
}

double load(archive::ElementType type, const std::byte* at) {
  if (type == DType::f32) {
    return load<float>(at);
  }
  if (type == DType::f64) {
    return load<double>(at);
  }
  if (type == DType::bf16) {
    return load<Bf16>(at);
  }
  if (type == DType::f16) {
    return load<F16>(at);
  }
  return type == DType::i32 ? load<std::int32_t>(at) : load<std::int64_t>(at);
}

/// Writes one element in the type of a checkpoint.
void store(archive::ElementType type, std::byte* at, double value) {
  if (type == DType::i32) {
    const auto count = static_cast<std::int32_t>(std::clamp(value, 0.0, 2147483647.0));
    std::memcpy(at, &count, sizeof count);
  } else {
    const auto number = static_cast<float>(value);
    std::memcpy(at, &number, sizeof number);
  }
}

/// "a, b, c and 4 more".
std::string few_of(const std::vector<std::string>& names) {
  constexpr std::size_t few = 3;
  std::string text = fmt::format("{}", fmt::join(std::span(names).first(std::min(few, names.size())), ", "));
  return names.size() > few ? fmt::format("{} and {} more", text, names.size() - few) : text;
}

/// The files of a folder that hold weights, and by tensor the file where an index says so.
struct WeightFiles {
  std::vector<fs::path> paths;
  std::map<std::string, std::string> index;
};
WeightFiles files_of(const fs::path& folder) {
  WeightFiles files;
  std::error_code error;
  if (const fs::path index = folder / "model.safetensors.index.json"; fs::exists(index, error)) {
    files.index = model::read_weight_map(index);
    std::set<std::string> names;
    for (const auto& [tensor, file] : files.index) {
      names.insert(file);
    }
    for (const std::string& name : names) {
      files.paths.push_back(folder / name);
    }
    return files;
  }
  if (const fs::path one = folder / "model.safetensors"; fs::exists(one, error)) {
    return {.paths = {one}, .index = {}};
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") {
      files.paths.push_back(entry.path());
    }
  }
  std::sort(files.paths.begin(), files.paths.end());
  if (files.paths.empty()) {
    throw usage_error("{} has no weights: there is no *.safetensors in it, and other formats are not read", folder.string());
  }
  return files;
}

class FolderReader final : public TensorReader {
 public:
  FolderReader(const fs::path& folder, const model::Model& model) : folder_(folder), wanted_(wanted_by(model)) {
    const WeightFiles files = files_of(folder);
    std::map<std::string, TensorLocation> there;
    for (const fs::path& path : files.paths) {
      archives_.push_back(std::make_unique<ArchiveReader>(path, "the file"));
      for (const auto& [tensor, info] : archives_.back()->tensors()) {
        const auto listed = files.index.find(tensor);
        if (!files.index.empty() && (listed == files.index.end() || listed->second != path.filename())) {
          throw usage_error("{} holds {}, which its index does not say", path.string(), tensor);
        }
        const std::string name = model::with_base_name(model, tensor);
        if (!model::is_no_weight(model, name) && !there.emplace(name, TensorLocation{archives_.back().get(), tensor}).second) {
          throw usage_error("{} holds {} twice", folder.string(), tensor);
        }
      }
    }
    match(model, there);
  }

  const Tensors& tensors() const override { return wanted_.tensors; }
  const Metadata& metadata() const override { return metadata_; }

  void read(const std::string& name, std::span<std::byte> into) const override {
    const TensorInfo& info = wanted_.tensors.at(name);
    const auto found = places_.find(name);
    if (found == places_.end()) {
      std::fill(into.begin(), into.end(), std::byte{0});
      return;
    }
    const auto& [archive, tensor] = found->second;
    const archive::ElementType type = archive->tensors().at(tensor).dtype;
    const auto size = static_cast<std::size_t>(size_of(type));
    const auto own_size = static_cast<std::size_t>(size_of(info.dtype));
    const std::size_t count = into.size() / own_size;
    std::vector<std::byte> run;
    for (std::size_t first = 0; first < count; first += run.size() / size) {
      run.resize(std::min(most_at_a_time, (count - first) * size));
      archive->read(tensor, first * size, run);
      for (std::size_t i = 0; i < run.size() / size; ++i) {
        store(info.dtype, into.data() + (first + i) * own_size, load(type, run.data() + i * size));
      }
    }
  }

 private:
  struct TensorLocation {
    const ArchiveReader* archive;
    std::string tensor;
  };

  /// Finds each tensor of the model among those that are there.
  void match(const model::Model& model, std::map<std::string, TensorLocation>& there) {
    std::vector<std::string> missing;
    for (const auto& [name, info] : wanted_.tensors) {
      const std::string in_folder = model::name_in_folder(model, name);
      const auto found = there.find(in_folder);
      if (found != there.end()) {
        require_fit(name, info, found->second);
        places_.emplace(name, found->second);
        there.erase(found);
      } else if (info.dtype != DType::i32) {  // a count of batches begins at zero
        missing.push_back(in_folder);
      }
    }
    if (!missing.empty()) {
      throw usage_error("the weights in {} have no {}, which its config.json asks for", folder_.string(), few_of(missing));
    }
    there.erase("lm_head.weight");  // files may repeat the embedding that scores are made with
    if (!there.empty()) {
      std::vector<std::string> names;
      for (const auto& [name, place] : there) {
        names.push_back(place.tensor);
      }
      throw usage_error("the weights in {} hold {}, which the model of its config.json has no place for", folder_.string(),
                        few_of(names));
    }
  }

  void require_fit(const std::string& name, const TensorInfo& wanted, const TensorLocation& place) const {
    const TensorInfo& info = place.archive->tensors().at(place.tensor);
    const bool count = wanted.dtype == DType::i32;
    const bool type_fits = count ? info.dtype == DType::i32 || info.dtype.name() == "I64" : is_floating(info.dtype);
    const bool longer = name == positions && info.shape.rank() == 2 && info.shape[1] == wanted.shape[1] &&
                        info.shape[0] > wanted.shape[0];
    if (!type_fits) {
      throw usage_error("{} in {} is of the type {}, but must be F32, F16, BF16 or F64", place.tensor, folder_.string(),
                        info.dtype.name());
    }
    if (info.shape != wanted.shape && !longer && !(count && info.shape.elements() == 1)) {
      throw usage_error("{} in {} is {}, but its config.json asks for {}", place.tensor, folder_.string(), to_text(info.shape),
                        to_text(wanted.shape));
    }
  }

  fs::path folder_;
  Wanted wanted_;
  Metadata metadata_;
  std::vector<std::unique_ptr<ArchiveReader>> archives_;
  std::map<std::string, TensorLocation> places_;  // by tensor of the model
};

class OnnxReader final : public TensorReader {
 public:
  explicit OnnxReader(const fs::path& path) : onnx_(model::open_onnx(path)), wanted_(wanted_by(onnx_.model)) {}

  const Tensors& tensors() const override { return wanted_.tensors; }
  const Metadata& metadata() const override { return metadata_; }

  void read(const std::string& name, std::span<std::byte> into) const override {
    const TensorInfo& info = wanted_.tensors.at(name);
    const auto own_size = static_cast<std::size_t>(size_of(info.dtype));
    const auto stored = std::find_if(wanted_.stored.begin(), wanted_.stored.end(),
                                     [&](const model::StoredTensor& one) { return one.name == name; });
    std::fill(into.begin(), into.end(), std::byte{0});
    for (std::size_t part = 0; part < stored->parts.size(); ++part) {
      const auto weight = onnx_.weights.find(stored->parts[part].parameter);
      if (weight == onnx_.weights.end()) {
        continue;  // a count of batches begins at zero, and so does a bias that the file does not have
      }
      const model::OnnxTensor& tensor = weight->second.tensor;
      const auto size = static_cast<std::size_t>(size_of(tensor.dtype));
      for (std::int64_t element = 0; element < tensor.shape.elements(); ++element) {
        const auto from = static_cast<std::size_t>(weight->second.place(element)) * size;
        store(info.dtype, into.data() + static_cast<std::size_t>(stored->place(part, element)) * own_size,
              load(tensor.dtype, reinterpret_cast<const std::byte*>(tensor.bytes.data()) + from));
      }
    }
  }

 private:
  model::OnnxModel onnx_;
  Wanted wanted_;
  Metadata metadata_;
};

class ShortenedReader final : public TensorReader {
 public:
  ShortenedReader(std::shared_ptr<const TensorReader> source, const model::Model& model)
      : source_(std::move(source)), tensors_(source_->tensors()) {
    const Tensors wanted = wanted_by(model).tensors;
    const auto own = wanted.find(std::string(positions));
    if (own != wanted.end() && tensors_.contains(own->first)) {
      tensors_[own->first] = own->second;
    }
  }

  const Tensors& tensors() const override { return tensors_; }
  const Metadata& metadata() const override { return source_->metadata(); }
  void read(const std::string& name, std::span<std::byte> into) const override {
    const std::size_t whole = source_->tensors().at(name).size();
    if (whole == into.size()) {
      source_->read(name, into);
      return;
    }
    check(whole > into.size(), "{} has {} bytes, not {}", name, whole, into.size());
    std::vector<std::byte> all(whole);
    source_->read(name, all);
    std::copy_n(all.begin(), into.size(), into.begin());
  }

 private:
  std::shared_ptr<const TensorReader> source_;
  Tensors tensors_;
};

}  // namespace

std::unique_ptr<TensorReader> open_pretrained(const model::ModelPath& path, const model::Model& model) {
  if (path.onnx) {
    return std::make_unique<OnnxReader>(path.path);
  }
  return std::make_unique<FolderReader>(path.path, model);
}

void load_pretrained(const model::ModelPath& path, const model::Model& model, const plan::Plan& plan, exec::Executor& executor,
                     const std::shared_ptr<ranks::World>& world) {
  std::vector<std::byte> room(static_cast<std::size_t>(room_for(tensors_of(plan)).count));
  if (world == nullptr) {
    restore_weights(plan, executor, *open_pretrained(path, model), room);
    return;
  }
  std::shared_ptr<const TensorReader> source;
  ranks::on_rank_0(*world, [&] { source = open_pretrained(path, model); });
  restore_weights(plan, executor, SharedReader(world, std::move(source)), room);
}

FoundCheckpoint open_checkpoint(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (std::optional<FoundCheckpoint> found = newest_in(path)) {
      return std::move(*found);
    }
    throw usage_error("there is no checkpoint in {}", path.string());
  }
  return {path, std::make_unique<ArchiveReader>(path), ""};
}

model::Model model_of(const TensorReader& checkpoint) {
  const auto found = checkpoint.metadata().find("model");
  if (found == checkpoint.metadata().end()) {
    throw usage_error("the checkpoint does not say its model, so it is not one of a training run");
  }
  return model::parse_model(found->second);
}

std::string kept_name(const std::string& model) {
  const std::optional<model::ModelPath> path = model::path_of(model);
  return path && path->onnx ? fs::absolute(path->path).lexically_normal().string() : model;
}

void require_model(const TensorReader& checkpoint, const model::Model& model) {
  const auto found = checkpoint.metadata().find("model");
  const std::string then = found == checkpoint.metadata().end() ? "" : kept_name(found->second);
  const Tensors wanted = wanted_by(model).tensors;
  std::size_t there = 0;
  std::string other;  // the first that the model does not have, or has in another shape
  for (const auto& [name, info] : checkpoint.tensors()) {
    if (is_weight(name)) {
      const auto own = wanted.find(name);
      const bool fits = own != wanted.end() && own->second.shape == info.shape;
      there += fits ? 1 : 0;
      other = other.empty() && !fits ? name : other;
    }
  }
  const bool renamed = !then.empty() && canonical(then) != canonical(kept_name(model.name()));
  bool same = other.empty() && there == wanted.size();
  if (!renamed) {
    if (!other.empty() && !wanted.contains(other)) {
      throw usage_error("the checkpoint holds {}, which {} has no place for", other, model.name());
    }
    return;  // what is missing or of another shape is named where it is read
  }
  if (same) {
    try {
      same = model::is_same_network(model::parse_model(then), model);
    } catch (const Error&) {
      return;  // a model of a program, or of a file that is gone: its weights fit
    }
  }
  if (!same) {
    throw usage_error("the checkpoint is of {}, but this run is of {}: a checkpoint belongs to a model, so give --model {}", then,
                      model.name(), then);
  }
}

std::unique_ptr<TensorReader> shortened(std::shared_ptr<const TensorReader> source, const model::Model& model) {
  return std::make_unique<ShortenedReader>(std::move(source), model);
}

std::vector<std::string> class_names_of(const TensorReader& checkpoint) {
  std::vector<std::string> names;
  if (const auto found = checkpoint.metadata().find(class_names_key); found != checkpoint.metadata().end()) {
    for (const std::string_view name : split(found->second, '\n')) {
      names.emplace_back(name);
    }
  }
  return names;
}

void export_folder(const TensorReader& checkpoint, const model::Model& model, const fs::path& folder, const PixelScale& scale) {
  const std::string config = model::config_of(model, class_names_of(checkpoint));
  std::map<std::string, std::string> origin;  // by name in the folder
  Tensors tensors;
  std::size_t largest = 0;
  const Tensors wanted = wanted_by(model).tensors;
  for (const auto& [name, info] : checkpoint.tensors()) {
    if (!is_weight(name)) {
      continue;
    }
    const auto known = wanted.find(name);
    if (known == wanted.end() || known->second != info) {
      throw usage_error("the checkpoint holds {} as {} of {}, which {} has no place for", name, to_text(info.shape),
                        to_text(info.dtype), model.name());
    }
    const std::string renamed = model::name_in_folder(model, name);
    origin[renamed] = name;
    tensors[renamed] = info;
    if (info.dtype == DType::i32) {
      tensors[renamed].dtype = *archive::ElementType::by_name("I64");
    }
    largest = std::max(largest, tensors[renamed].size());
  }
  for (const auto& [name, info] : wanted) {
    if (!checkpoint.tensors().contains(name)) {
      throw usage_error("the checkpoint has no {}, which {} has", name, model.name());
    }
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    throw failure("the folder {} cannot be made: {}", folder.string(), error ? error.message() : "a file is in its place");
  }
  ArchiveWriter writer(folder / "model.safetensors", tensors, {{"format", "pt"}});
  std::vector<std::byte> room(largest);
  for (const auto& [renamed, name] : origin) {
    const std::span<std::byte> tensor = std::span(room).first(checkpoint.tensors().at(name).size());
    checkpoint.read(name, tensor);
    if (tensors[renamed].size() == tensor.size()) {
      writer.append(tensor);
      continue;
    }
    std::vector<std::int64_t> counts;
    for (std::size_t i = 0; i < tensor.size(); i += sizeof(std::int32_t)) {
      counts.push_back(static_cast<std::int64_t>(load<std::int32_t>(tensor.data() + i)));
    }
    writer.append(std::as_bytes(std::span(counts)));
  }
  writer.commit();
  if (const std::string preprocessor = model::preprocessor_of(model, scale); !preprocessor.empty()) {
    write_whole(folder / "preprocessor_config.json", preprocessor);
  }
  write_whole(folder / "config.json", config);
}

}  // namespace baton::checkpoint
