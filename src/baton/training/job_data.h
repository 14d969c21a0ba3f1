#pragma once

#include <memory>
#include <optional>
#include <string>

#include "baton/data/open.h"
#include "baton/data/order.h"
#include "baton/data/source.h"
#include "baton/exec/feed.h"
#include "baton/job/spec.h"
#include "baton/model/model.h"
#include "baton/strategy/step.h"

namespace baton::training {

using job::JobSpec;

/// The form of one sample of a model, and of the target that its output is compared with, for a source of data.
data::Form form_of(const model::Model& model, strategy::Loss loss);

/// The specification with --normalize set as the folder of its model prepares images. It is unchanged if the folder does not say
/// that, if the source holds no images, or if --normalize is given. A usage error names what such a folder asks for and Baton does
/// not do.
JobSpec with_pixel_scale(JobSpec spec, const data::Source& source);

/// The samples of a source in an order, as rows of batches.
class SampleFeed final : public exec::Feed {
 public:
  /// Training takes samples in another order per epoch and augments them; evaluation takes them in the order of the source as they
  /// are. A usage error says why the source does not fit the model.
  enum class Use : std::uint8_t { training, evaluation };
  SampleFeed(std::shared_ptr<const data::Source> source, const JobSpec& spec, const data::Form& form, std::int64_t batch,
             std::uint64_t seed, Use use);

  const data::Source& source() const { return *source_; }
  const data::SampleOrder& order() const { return order_; }

  std::int64_t input_elements() const override { return form_.input.elements(); }
  std::int64_t target_elements() const override { return form_.target.elements(); }
  void input(std::int64_t step, std::int64_t row, std::span<float> out) const override;
  void input(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const override;
  void target(std::int64_t step, std::int64_t row, std::span<float> out) const override;
  void target(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const override;
  std::uint64_t fingerprint() const override;

 private:
  /// An error while a sample is read names the sample.
  template <typename Read>
  void read(std::int64_t step, std::int64_t row, const Read& read) const;

  std::shared_ptr<const data::Source> source_;
  data::Form form_;
  Use use_;
  std::unique_ptr<data::Samples> samples_;
  data::SampleOrder order_;
};

/// The data that --data and the other flags of data name, opened.
class JobData {
 public:
  /// Opens what the specification names. If `own` is given, takes its data and opens nothing.
  JobData(const JobSpec& spec, const model::Model& model, strategy::Loss loss, std::int64_t batch, std::uint64_t seed,
          const std::optional<data::Parts>& own = {});

  const std::shared_ptr<const SampleFeed>& training() const { return training_; }
  /// The data to evaluate on: what `text` names, or the test part of the data if that is empty. Null if there is none.
  std::shared_ptr<const SampleFeed> evaluation(const std::string& text) const;

 private:
  JobSpec spec_;
  data::Form form_;
  std::int64_t batch_;
  data::Parts parts_;
  std::shared_ptr<const SampleFeed> training_;
};

/// The tokens that a model reads are below this; 1 where it reads none.
std::int64_t tokens_of(const model::Model& model);

}  // namespace baton::training
