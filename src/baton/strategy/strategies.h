#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::plan {
struct Draft;
}

namespace baton::strategy {

struct Request;

/// The layout that a strategy's name stands for. The numbers of replicas, stages and parts of a tensor then describe the strategy
/// completely, so equal replicas can be folded.
struct NamedLayout {
  enum class Axis : std::uint8_t { dp, pp, tp };
  /// The axis over which the devices are divided that the user's --dp, --pp and --tp do not use up. nullopt: it is the pipeline if
  /// a schedule is asked for, otherwise the replicas.
  std::optional<Axis> rest = Axis::dp;
  std::string schedule = "naive";
  std::int64_t zero = 0;
};

/// A composition of passes, or a refusal (a usage error) that says what to change.
using Build = std::function<plan::Draft(const Request& request)>;

/// The devices that a strategy with a function of its own uses, for code that gives advice or evaluates.
struct BuildTraits {
  bool one_device = false;  // it uses the first device alone
  bool one_owner = false;   // one device keeps the parameters from step to step, and others get copies
};

/// A named way of splitting a step: by a function of its own, or as a layout that has a name. Copies share one content that never
/// changes. Two are equal if one is a copy of the other, as are all that are made from names of the same strategy.
class Strategy {
 public:
  /// The strategy `single`.
  Strategy();
  /// Finds one of `strategies()` by its name, by a schedule's name in PyTorch, or as people call it (naive, fsdp, tp); a usage
  /// error lists them.
  Strategy(std::string_view name);                                         // NOLINT: a name is a strategy
  Strategy(const char* name) : Strategy(std::string_view(name)) {}         // NOLINT
  Strategy(const std::string& name) : Strategy(std::string_view(name)) {}  // NOLINT
  /// One of the program's own, which no name finds.
  Strategy(std::string name, std::string summary, Build build, BuildTraits traits = {});
  Strategy(std::string name, std::string summary, NamedLayout layout);

  const std::string& name() const;
  const std::string& summary() const;
  /// nullptr if the strategy has a function of its own.
  const NamedLayout* layout() const;
  /// Calls its function. Before: it has one.
  plan::Draft build(const Request& request) const;

  /// True for one of `strategies()`; false for one of the program's own.
  bool is_listed() const;
  /// True if it leaves all devices but the first unused.
  bool uses_one_device() const;
  /// True if one device keeps the parameters from step to step, and others get copies.
  bool has_one_owner() const;
  /// True if its name says nothing about the axes, so that the user's numbers say how devices are divided.
  bool is_by_numbers() const;

  bool operator==(const Strategy&) const = default;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

/// Every strategy, in the order in which help shows them.
const std::vector<Strategy>& strategies();

}  // namespace baton::strategy
