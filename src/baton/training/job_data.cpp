#include "baton/training/job_data.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/base/hash.h"
#include "baton/model/huggingface.h"
#include "baton/model/zoo.h"
#include "baton/op/traits.h"

namespace baton::training {
namespace {

data::Preparation preparation_of(const JobSpec& spec, std::uint64_t seed, SampleFeed::Use use) {
  data::Preparation preparation{.scale = spec.normalize};
  if (use == SampleFeed::Use::training) {
    preparation.augmentation = spec.augment;
    preparation.augmentation.seed = seed;
  }
  return preparation;
}

data::SampleOrder order_of(std::int64_t samples, std::int64_t batch, std::uint64_t seed, SampleFeed::Use use) {
  return use == SampleFeed::Use::training ? data::SampleOrder::training(samples, batch, seed)
                                          : data::SampleOrder::evaluation(samples, batch);
}

}  // namespace

std::int64_t tokens_of(const model::Model& model) {
  const model::Block& first = model.blocks().front();
  for (const model::Node& node : first.nodes) {
    for (std::size_t i = 0; i < node.reads.size() && first.values.front().integers; ++i) {
      if (node.reads[i] == 0) {
        std::vector<op::Operand> operands(node.reads.size());
        for (const std::size_t parameter : node.parameters) {
          operands.push_back({first.parameters[parameter].shape});
        }
        return op::integer_limit(node.op, operands, {}, i);
      }
    }
  }
  return 1;
}

data::Form form_of(const model::Model& model, strategy::Loss loss) {
  const bool integers = model.blocks().front().values.front().integers;
  data::Form form{
      .input = model.input(), .integers = integers, .vocabulary = integers ? tokens_of(model) : 0, .target = model.output()};
  if (loss == strategy::Loss::cross_entropy) {
    const auto extents = form.target.extents();
    form.classes = extents.back();
    form.target = Shape(std::vector<std::int64_t>(extents.begin(), extents.end() - 1));
  }
  return form;
}

JobSpec with_pixel_scale(JobSpec spec, const data::Source& source) {
  const std::optional<model::ModelPath> path = model::path_of(spec.model);
  if (!spec.normalize && source.description().kind == data::ContentType::images && path && !path->onnx) {
    spec.normalize = model::read_pixel_scale(path->path);
  }
  return spec;
}

SampleFeed::SampleFeed(std::shared_ptr<const data::Source> source, const JobSpec& spec, const data::Form& form, std::int64_t batch,
                       std::uint64_t seed, Use use)
    : source_(std::move(source)),
      form_(form),
      use_(use),
      samples_(source_->samples(form, preparation_of(spec, seed, use))),
      order_(order_of(samples_->count(), batch, seed, use)) {}

template <typename Read>
void SampleFeed::read(std::int64_t step, std::int64_t row, const Read& read) const {
  const data::Draw draw = order_.at(step, row);
  try {
    read(draw);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("sample {} of the {} data cannot be used: {}", draw.sample,
                                          use_ == Use::training ? "training" : "evaluation", error.what()));
  }
}

void SampleFeed::input(std::int64_t step, std::int64_t row, std::span<float> out) const {
  read(step, row, [&](data::Draw draw) { samples_->input(draw, out); });
}
void SampleFeed::input(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const {
  read(step, row, [&](data::Draw draw) { samples_->input(draw, out); });
}
void SampleFeed::target(std::int64_t step, std::int64_t row, std::span<float> out) const {
  read(step, row, [&](data::Draw draw) { samples_->target(draw, out); });
}
void SampleFeed::target(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const {
  read(step, row, [&](data::Draw draw) { samples_->target(draw, out); });
}

/// The hash of the source's description and of its first and last sample.
std::uint64_t SampleFeed::fingerprint() const {
  Hash hash;
  hash.add(source_->description().format);
  hash.add(static_cast<std::uint64_t>(samples_->count()));
  const auto add = [&](auto element, std::int64_t elements, auto read) {
    std::vector<decltype(element)> sample(static_cast<std::size_t>(elements));
    for (const std::int64_t number : {std::int64_t{0}, samples_->count() - 1}) {
      read(data::Draw{number, 0}, std::span(sample));
      hash.add(std::string_view(reinterpret_cast<const char*>(sample.data()), sample.size() * sizeof element));
    }
  };
  const auto input = [this](data::Draw draw, auto out) { samples_->input(draw, out); };
  const auto target = [this](data::Draw draw, auto out) { samples_->target(draw, out); };
  form_.integers ? add(std::int32_t{}, input_elements(), input) : add(0.0F, input_elements(), input);
  form_.classes > 0 ? add(std::int32_t{}, target_elements(), target) : add(0.0F, target_elements(), target);
  return hash.value();
}

JobData::JobData(const JobSpec& spec, const model::Model& model, strategy::Loss loss, std::int64_t batch, std::uint64_t seed,
                 const std::optional<data::Parts>& own)
    : spec_(spec),
      form_(form_of(model, loss)),
      batch_(batch),
      parts_(own ? *own
                 : data::open(spec.data, {.tokenizer = spec.tokenizer,
                                          .given_tokenizer = {},
                                          .token_type = spec.token_type,
                                          .type_of_other_data = false})) {
  if (!parts_.train) {
    throw usage_error("{} holds only a test part, which is not for training: give a folder or file with training data", spec.data);
  }
  training_ = std::make_shared<const SampleFeed>(parts_.train, with_pixel_scale(spec, *parts_.train), form_, batch, seed,
                                                 SampleFeed::Use::training);
}

std::shared_ptr<const SampleFeed> JobData::evaluation(const std::string& text) const {
  const auto open = [&] {
    try {
      return data::open(text, {.tokenizer = spec_.tokenizer,
                               .given_tokenizer = parts_.train->tokenizer(),
                               .token_type = spec_.token_type,
                               .type_of_other_data = true})
          .for_evaluation();
    } catch (const Error& error) {
      const std::string why = error.what();
      throw why.starts_with("--data ") ? usage_error("--eval-{}", why.substr(2)) : error;
    }
  };
  const std::shared_ptr<const data::Source> source = text.empty() ? parts_.test : open();
  if (!source) {
    return nullptr;
  }
  try {
    return std::make_shared<const SampleFeed>(source, spec_, form_, batch_, 0, SampleFeed::Use::evaluation);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("the evaluation data {}: {}", text.empty() ? "in " + spec_.data : text, error.what()));
  }
}

}  // namespace baton::training
