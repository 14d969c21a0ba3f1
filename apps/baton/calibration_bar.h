#pragma once

#include <fmt/format.h>

#include <optional>

#include "signals.h"
#include "terminal.h"

namespace baton::app {

/// Shows what is being timed; an interrupt ends it, keeping what there is.
class CalibrationBar {
 public:
  explicit CalibrationBar(const Interrupt& interrupt) : interrupt_(interrupt) {}

  bool operator()(std::size_t done, std::size_t total, const std::string&) {
    if (!bar_) {
      fmt::print(stderr, "timing {} task{} of the plan by themselves; the times are kept for the next call\n", total,
                 total == 1 ? "" : "s");
      bar_.emplace("timing", static_cast<std::int64_t>(total), true, "tasks");
    }
    bar_->show(static_cast<std::int64_t>(done));
    return !interrupt_.asked();
  }

 private:
  const Interrupt& interrupt_;
  std::optional<ProgressBar> bar_;
};

}  // namespace baton::app
