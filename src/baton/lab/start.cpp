#include "baton/lab/start.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/exec/contents.h"

namespace baton::lab {
namespace {

checkpoint::Tensor samples_of(const Job& job, plan::Role role, std::int64_t rows) {
  const strategy::Step& step = job.request().step;
  const bool labels = role == plan::Role::target && step.loss == strategy::Loss::cross_entropy;
  plan::Buffer buffer{.role = role, .dtype = labels ? DType::i32 : DType::f32, .content = plan::BatchRows{0, rows}};
  std::vector<std::int64_t> extents{rows};
  if (!labels) {
    const Shape& sample = role == plan::Role::input ? job.model().input() : job.model().output();
    extents.insert(extents.end(), sample.extents().begin(), sample.extents().end());
  }
  buffer.shape = Shape(extents);
  checkpoint::Tensor tensor{buffer.dtype, buffer.shape, std::vector<std::byte>(static_cast<std::size_t>(buffer.size().count))};
  exec::fill_initial(buffer, tensor.bytes.data(), {job.seed(), job.samples(), job.model().output()[0]}, 0);
  return tensor;
}

}  // namespace

Start start_of(const Training& run, std::int64_t steps) {
  check(run.losses().empty() && run.steps_before() == 0, "a training that has begun has no start");
  Start start;
  start.weights = run.snapshot();
  std::erase_if(start.weights.tensors,
                [](const auto& tensor) { return tensor.first.starts_with("optimizer.") || tensor.first == "loss_scale"; });
  start.weights.metadata.clear();
  const std::int64_t batch = run.job().request().step.global_batch;
  const std::int64_t samples = run.job().samples();
  const std::int64_t rows = samples == 0 ? batch : std::min(samples, steps * batch);
  start.data.tensors["input"] = samples_of(run.job(), plan::Role::input, rows);
  start.data.tensors["target"] = samples_of(run.job(), plan::Role::target, rows);
  return start;
}

void write_start(const std::filesystem::path& folder, const Start& start) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw failure("cannot make the folder {}: {}", folder.string(), error.message());
  }
  checkpoint::write_archive(folder / "weights.safetensors", start.weights);
  checkpoint::write_archive(folder / "data.safetensors", start.data);
}

}  // namespace baton::lab
