#include "baton/training/start.h"

#include <algorithm>
#include <optional>

#include "baton/base/error.h"
#include "baton/checkpoint/checkpoint.h"
#include "baton/exec/contents.h"
#include "baton/op/traits.h"

namespace baton::training {
namespace {

/// The batches of many steps as one.
class Unrolled final : public exec::Feed {
 public:
  Unrolled(const exec::Feed& feed, std::int64_t batch) : feed_(feed), batch_(batch) {}

  std::int64_t input_elements() const override { return feed_.input_elements(); }
  std::int64_t target_elements() const override { return feed_.target_elements(); }
  void input(std::int64_t, std::int64_t row, std::span<float> out) const override { feed_.input(row / batch_, row % batch_, out); }
  void input(std::int64_t, std::int64_t row, std::span<std::int32_t> out) const override {
    feed_.input(row / batch_, row % batch_, out);
  }
  void target(std::int64_t, std::int64_t row, std::span<float> out) const override {
    feed_.target(row / batch_, row % batch_, out);
  }
  void target(std::int64_t, std::int64_t row, std::span<std::int32_t> out) const override {
    feed_.target(row / batch_, row % batch_, out);
  }
  std::uint64_t fingerprint() const override { return feed_.fingerprint(); }

 private:
  const exec::Feed& feed_;
  std::int64_t batch_;
};

bool is_parameter(const std::string& name) { return !name.starts_with("optimizer.") && name != "loss_scale"; }

plan::Buffer samples_of(const Job& job, plan::Role role, std::int64_t rows) {
  const strategy::Step& step = job.request().step;
  const bool labels = role == plan::Role::target && step.loss == strategy::Loss::cross_entropy;
  const bool tokens = role == plan::Role::input && job.model().blocks().front().values.front().integers;
  plan::Buffer buffer{.role = role, .dtype = labels || tokens ? DType::i32 : DType::f32, .content = plan::BatchRows{0, rows}};
  const Shape sample = role == plan::Role::input ? job.model().input() : job.model().output();
  std::vector<std::int64_t> extents{rows};
  extents.insert(extents.end(), sample.extents().begin(),
                 sample.extents().end() - (labels ? 1 : 0));  // one label per row of scores
  buffer.shape = Shape(extents);
  return buffer;
}

void write_weights(const std::filesystem::path& path, const Training& run, bool writes) {
  checkpoint::Tensors all = run.tensors();
  checkpoint::Tensors parameters = all;
  std::erase_if(parameters, [](const auto& tensor) { return !is_parameter(tensor.first); });
  std::optional<checkpoint::ArchiveWriter> writer;
  if (writes) {
    writer.emplace(path, parameters, checkpoint::Metadata());
  }
  auto next = all.begin();
  run.save([&](std::span<const std::byte> tensor) {
    if (writer && is_parameter((next++)->first)) {
      writer->append(tensor);
    }
  });
  if (writer) {
    writer->commit();
  }
}

void write_samples(const std::filesystem::path& path, const Job& job, std::int64_t rows) {
  const plan::Buffer input = samples_of(job, plan::Role::input, rows);
  const plan::Buffer target = samples_of(job, plan::Role::target, rows);
  checkpoint::ArchiveWriter writer(path, {{"input", {input.dtype, input.shape}}, {"target", {target.dtype, target.shape}}}, {});
  for (const plan::Buffer& buffer : {input, target}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.size().count));
    if (job.data() != nullptr) {  // batch after batch, as the training takes them
      exec::fill_rows(buffer, bytes.data(), Unrolled(*job.data()->training(), job.request().step.global_batch), 0);
      writer.append(bytes);
      continue;
    }
    exec::fill_initial(
        buffer, bytes.data(),
        {.seed = job.seed(), .samples = job.samples(), .classes = job.model().output().last(), .tokens = tokens_of(job.model())}, 0,
        {});
    writer.append(bytes);
  }
  writer.commit();
}

}  // namespace

void write_start(const std::filesystem::path& folder, const Training& run, std::int64_t steps, bool writes) {
  check(run.losses().empty() && run.steps_before() == 0, "a training that has begun has no start");
  if (writes) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      throw failure("cannot make the folder {}: {}", folder.string(), error.message());
    }
  }
  write_weights(folder / "weights.safetensors", run, writes);
  const std::int64_t batch = run.job().request().step.global_batch;
  const std::int64_t samples = run.job().samples();
  if (writes) {
    write_samples(folder / "data.safetensors", run.job(),
                  run.job().data() != nullptr ? steps * batch
                  : samples == 0              ? batch
                                              : std::min(samples, steps * batch));
  }
}

}  // namespace baton::training
