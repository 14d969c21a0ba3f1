#include "baton/training/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "baton/base/error.h"
#include "baton/base/random.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/model/parse.h"
#include "baton/model/settings.h"
#include "baton/model/zoo.h"

namespace baton::training {
namespace {

/// The same model with this many positions.
model::ModelName with_positions(const model::Model& model, std::int64_t positions) {
  const model::ModelName recipe = model::recipe_of(model.name());
  return recipe.with(model::ModelSettings().add(recipe.kind() == "tokens" ? "sequence" : "context", positions));
}

/// The random number of a position.
std::uint32_t random_word(std::uint64_t seed, std::int64_t position) {
  constexpr std::uint32_t draws_of_tokens = 0x746f6b65;  // apart from what else is drawn from the seed
  const auto where = static_cast<std::uint64_t>(position);
  return philox({static_cast<std::uint32_t>(where), static_cast<std::uint32_t>(where >> 32), 0, draws_of_tokens},
                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)})[0];
}

}  // namespace

std::int32_t draw_token(std::span<const float> scores, const Drawing& drawing, std::int64_t position) {
  check(!scores.empty(), "no scores to draw from");
  const auto highest = std::max_element(scores.begin(), scores.end());
  if (drawing.temperature == 0) {
    return static_cast<std::int32_t>(highest - scores.begin());
  }
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  if (drawing.top_k > 0 && drawing.top_k < static_cast<std::int64_t>(order.size())) {
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
    order.resize(static_cast<std::size_t>(drawing.top_k));
  }
  std::vector<double> sums;
  double sum = 0;
  for (const std::int32_t token : order) {
    sum += std::exp((static_cast<double>(scores[static_cast<std::size_t>(token)]) - static_cast<double>(*highest)) /
                    drawing.temperature);
    sums.push_back(sum);
  }
  const double place = static_cast<double>(random_word(drawing.seed, position)) * 0x1p-32 * sum;
  const auto found = std::upper_bound(sums.begin(), sums.end(), place);
  return order[std::min(static_cast<std::size_t>(found - sums.begin()), order.size() - 1)];
}

void require_token_model(const model::Model& model) {
  const model::Value& in = model.blocks().front().values.front();
  if (!in.integers || model.output_kind() != model::Output::scores || model.output().rank() != 2) {
    throw usage_error("{} does not continue texts: that takes a model that reads tokens and gives scores of tokens, such as gpt2",
                      model.name());
  }
}

std::int64_t context_of(const model::Model& model) { return model.input()[0]; }

/// The last tokens of a text, and after them zeros, which no position before them sees.
class Sampler::Window final : public exec::Feed {
 public:
  explicit Window(std::int64_t size) : tokens_(static_cast<std::size_t>(size), 0) {}

  /// Returns the position of the last token.
  std::int64_t show(std::span<const std::int32_t> tokens) {
    const std::size_t count = std::min(tokens.size(), tokens_.size());
    std::copy_n(tokens.end() - static_cast<std::ptrdiff_t>(count), count, tokens_.begin());
    std::fill(tokens_.begin() + static_cast<std::ptrdiff_t>(count), tokens_.end(), 0);
    return static_cast<std::int64_t>(count) - 1;
  }

  std::int64_t input_elements() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t target_elements() const override { return input_elements(); }
  void input(std::int64_t, std::int64_t, std::span<float>) const override { check(false, "tokens are integers"); }
  void input(std::int64_t, std::int64_t, std::span<std::int32_t> out) const override {
    std::copy_n(tokens_.begin(), out.size(), out.begin());
  }
  void target(std::int64_t, std::int64_t, std::span<float>) const override { check(false, "tokens are integers"); }
  void target(std::int64_t, std::int64_t, std::span<std::int32_t> out) const override { std::fill(out.begin(), out.end(), 0); }
  std::uint64_t fingerprint() const override { return 0; }

 private:
  std::vector<std::int32_t> tokens_;
};

Sampler::Sampler(JobSpec spec, std::shared_ptr<const checkpoint::TensorReader> weights, std::int64_t longest,
                 const cluster::Machine& machine) {
  const model::Model whole = model::parse_model(spec.model);
  require_token_model(whole);
  window_ = std::clamp<std::int64_t>(longest, 1, context_of(whole));
  spec.model = with_positions(whole, window_);
  spec.batch = 1;
  spec.loss = strategy::Loss::cross_entropy;
  job_ = std::make_unique<Job>(spec, machine);
  feed_ = std::make_shared<Window>(window_);
  forward_ = std::make_unique<Forward>(*job_, feed_);
  forward_->take_weights(*checkpoint::shortened(std::move(weights), job_->model()));
}

Sampler::~Sampler() = default;

std::vector<float> Sampler::next_scores(std::span<const std::int32_t> tokens) {
  check(!tokens.empty(), "a text without a token");
  const std::int64_t last = feed_->show(tokens);
  forward_->run();
  return forward_->scores_at(last);
}

}  // namespace baton::training
