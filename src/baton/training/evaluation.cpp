#include "baton/training/evaluation.h"

#include <algorithm>
#include <cmath>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/exec/engine.h"

namespace baton::training {
namespace {

/// The request of a job's forward.
strategy::Request forward_of(const Job& job, const model::Model& model) {
  const strategy::Request& trained = job.request();
  strategy::Request request{.model = model,
                            .cluster = trained.cluster,
                            .strategy = trained.strategy,
                            .step = trained.step,
                            .layout = trained.layout,
                            .target = trained.target};
  request.step.forward_only = true;
  request.step.loads_ahead = false;
  request.step.loss_scale.reset();
  request.step.label_smoothing = 0;
  request.layout.recompute = strategy::Recompute::none;
  request.layout.zero.reset();
  const strategy::NamedLayout* named = trained.strategy.layout();
  if (!trained.strategy.is_listed()) {  // one of the program's own may build nothing but training steps
    request.strategy = "single";
    request.layout = {};
  } else if (trained.strategy.has_one_owner() || (named != nullptr && named->zero > 0)) {
    request.strategy = "ddp";
  }
  return request;
}

}  // namespace

Forward::Forward(const Job& job, std::shared_ptr<const exec::Feed> feed)
    : batch_(job.request().step.global_batch),
      model_(model::for_evaluation(job.model())),
      plan_(strategy::compile(forward_of(job, model_))),
      executor_(plan_, job.cluster(), job.backend(), {.seed = job.seed(), .feed = std::move(feed)}, job.world()),
      room_(static_cast<std::size_t>(checkpoint::room_for(checkpoint::tensors_of(plan_)).count)) {}

void Forward::take_weights(const plan::Plan& plan, const exec::Executor& executor) {
  checkpoint::copy_weights(plan, executor, plan_, executor_, room_);
}

void Forward::take_weights(const checkpoint::TensorReader& source) { checkpoint::restore_weights(plan_, executor_, source, room_); }

void Forward::run() { executor_.run({.steps = 1, .warmup = 1}); }

std::vector<float> Forward::outputs() const {
  const model::Value& value = model_.output_value();
  const Shape sample = value.sample();
  const std::size_t batch_axis = value.batch_axis();
  std::vector<float> all(static_cast<std::size_t>(batch_ * sample.elements()));
  // The distance in the list between neighbouring indices of each dimension of the value.
  std::vector<std::int64_t> distance(value.dims.size(), 0);
  std::int64_t inner = 1;
  for (std::size_t d = value.dims.size(); d-- > 0;) {
    distance[d] = d == batch_axis ? sample.elements() : inner;
    inner *= d == batch_axis ? 1 : value.dims[d].extent;
  }
  for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan_.buffers()[b];
    const auto* part = std::get_if<plan::ValuePart>(&buffer.content);
    if (part == nullptr || !buffer.persistent) {
      continue;
    }
    const std::vector<double> elements = executor_.read(BufferId(b));
    std::vector<std::int64_t> at;
    for (const Range& range : part->at) {
      at.push_back(range.begin);
    }
    for (const double element : elements) {
      std::int64_t place = 0;
      for (std::size_t d = 0; d < at.size(); ++d) {
        place += at[d] * distance[d];
      }
      all[static_cast<std::size_t>(place)] = static_cast<float>(element);
      for (std::size_t d = at.size(); d-- > 0;) {
        if (++at[d] < part->at[d].end) {
          break;
        }
        at[d] = part->at[d].begin;
      }
    }
  }
  return all;
}

std::vector<float> Forward::scores_at(std::int64_t position) const {
  const Shape sample = model_.output_value().sample();
  check(sample.rank() == 2 && position < sample[0], "position {} of {}", position, to_text(sample));
  std::vector<float> row(static_cast<std::size_t>(sample.last()));
  for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan_.buffers()[b];
    const auto* part = std::get_if<plan::ValuePart>(&buffer.content);
    if (part != nullptr && buffer.persistent && buffer.dtype == DType::f32 && buffer.shape.elements() == sample.elements()) {
      executor_.read(BufferId(b), static_cast<std::size_t>(position) * row.size() * sizeof(float),
                     std::as_writable_bytes(std::span(row)));
      return row;  // one device has all of one sample
    }
  }
  const std::vector<float> all = outputs();
  std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(position) * row.size()), row.size(), row.begin());
  return row;
}

std::vector<double> Forward::losses() const {
  const auto batch = static_cast<double>(batch_);
  const exec::StepData data = exec::step_data(plan_, {});
  std::vector<double> list(static_cast<std::size_t>(batch_), 0);
  for (const BufferId id : data.losses) {
    const auto& rows = std::get<plan::BatchRows>(plan_[id].content);
    const std::vector<double> elements = executor_.read(id);
    const auto samples = static_cast<std::size_t>(rows.end - rows.begin);
    const std::size_t others = elements.size() / samples;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::size_t sample = rows.axis == 1 ? i % samples : i / others;
      list[static_cast<std::size_t>(rows.begin) + sample] += elements[i] * batch;  // each is a share of the batch's mean
    }
  }
  return list;
}

std::optional<Evaluation> evaluate(Forward& forward, const Job& job, const SampleFeed& feed,
                                   const std::function<bool(std::int64_t done, std::int64_t of)>& go_on) {
  const data::SampleOrder& order = feed.order();
  const bool labels = job.request().step.loss == strategy::Loss::cross_entropy;
  const bool one_label = labels && job.model().output().rank() == 1;
  Evaluation evaluation{.samples = order.samples()};
  const Nanoseconds begin = now();
  std::int64_t right = 0;
  forward.seek(0);
  for (std::int64_t step = 0; step < order.steps_per_epoch(); ++step) {
    if (go_on && !go_on(step, order.steps_per_epoch())) {
      return std::nullopt;
    }
    forward.run();
    const std::int64_t rows = order.rows(step);
    const std::vector<double> losses = forward.losses();
    for (std::int64_t r = 0; r < rows; ++r) {
      evaluation.loss += losses[static_cast<std::size_t>(r)];
    }
    if (one_label) {
      const std::vector<float> scores = forward.outputs();
      const std::int64_t classes = job.model().output().last();
      for (std::int64_t r = 0; r < rows; ++r) {
        std::int32_t label = 0;
        feed.target(step, r, std::span(&label, 1));
        const auto first = scores.begin() + static_cast<std::ptrdiff_t>(r * classes);
        right += std::max_element(first, first + static_cast<std::ptrdiff_t>(classes)) - first == label ? 1 : 0;
      }
    }
  }
  const auto count = static_cast<double>(evaluation.samples);
  evaluation.loss /= count;
  if (one_label) {
    evaluation.accuracy = static_cast<double>(right) / count;
  } else if (labels) {
    evaluation.perplexity = std::exp(evaluation.loss);
  }
  evaluation.time = now() - begin;
  return evaluation;
}

}  // namespace baton::training
