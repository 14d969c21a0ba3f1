#include "baton/job/spec_text.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "baton/plan/derivations.h"

namespace baton::job {
namespace {

/// `count` in the largest of the units that it is a multiple of.
template <std::size_t size>
std::string in_units(std::int64_t count, const std::array<std::pair<std::int64_t, const char*>, size>& units) {
  for (const auto& [unit, name] : units) {
    if (count % unit == 0 && (count != 0 || unit == 1)) {
      return fmt::format("{}{}", count / unit, name);
    }
  }
  return fmt::format("{}", count);
}

std::string bandwidth_text(double bytes_per_s) {
  for (const auto& [unit, name] : {std::pair(1e9, "GB/s"), std::pair(1e6, "MB/s"), std::pair(1e3, "KB/s")}) {
    if (const double scaled = bytes_per_s / unit; scaled >= 1 && scaled * unit == bytes_per_s) {
      return fmt::format("{}{}", scaled, name);
    }
  }
  return fmt::format("{}B/s", bytes_per_s);
}

void append(std::string& list, const std::string& setting) { list += (list.empty() ? "" : ",") + setting; }

}  // namespace

std::string flag_text(const model::ModelName& model) { return model.text(); }

std::string flag_text(Bytes size) {
  constexpr std::array<std::pair<std::int64_t, const char*>, 4> units{std::pair(std::int64_t{1} << 40, "T"),
                                                                      {std::int64_t{1} << 30, "G"},
                                                                      {std::int64_t{1} << 20, "M"},
                                                                      {std::int64_t{1} << 10, "K"}};
  return in_units(size.count, units);
}

std::string flag_text(Nanoseconds time) {
  constexpr std::array<std::pair<std::int64_t, const char*>, 4> units{
      std::pair(std::int64_t{1'000'000'000}, "s"), {1'000'000, "ms"}, {1'000, "us"}, {1, "ns"}};
  return in_units(time.count, units);
}

std::string flag_text(const cluster::Link& link) {
  std::string text;
  if (link.bandwidth > 0) {
    append(text, "bandwidth=" + bandwidth_text(link.bandwidth));
  }
  if (link.latency.count > 0 || (text.empty() && link.core_share == 0)) {
    append(text, "latency=" + flag_text(link.latency));
  }
  if (link.core_share > 0) {
    append(text, fmt::format("core={}", link.core_share));
  }
  return text;
}

std::string flag_text(const strategy::DelayRequest& delay) {
  const double milliseconds = static_cast<double>(delay.duration.count) / 1e6;
  const bool exact = static_cast<std::int64_t>(milliseconds * 1e6) == delay.duration.count;
  return fmt::format("before={},device={},{}", plan::to_text(delay.before),
                     delay.device < 0 ? "all" : fmt::format("{}", delay.device),
                     exact ? fmt::format("ms={}", milliseconds) : "time=" + flag_text(delay.duration));
}

std::string flag_text(const std::vector<strategy::DelayRequest>& delays) {
  std::string text;
  for (const strategy::DelayRequest& delay : delays) {
    text += (text.empty() ? "" : ";") + flag_text(delay);
  }
  return text;
}

std::string flag_text(const op::RateSchedule& schedule) {
  if (schedule == op::RateSchedule{}) {
    return "";
  }
  std::string settings;
  std::string name = "constant";
  if (schedule.every > 0) {
    name = "step";
    append(settings, fmt::format("every={},gamma={}", schedule.every, schedule.gamma));
  } else if (schedule.linear_until > 0 || schedule.cosine_until > 0) {
    name = schedule.linear_until > 0 ? "linear" : "cosine";
    append(settings, fmt::format("until={}", schedule.linear_until > 0 ? schedule.linear_until : schedule.cosine_until));
  }
  if (schedule.warmup > 0) {
    append(settings, fmt::format("warmup={}", schedule.warmup));
  }
  if (schedule.floor > 0) {
    append(settings, fmt::format("floor={}", schedule.floor));
  }
  return name + ":" + settings;
}

std::string flag_text(const WhatIf& what_if) {
  std::string text;
  const auto factor_text = [](double factor) { return factor == 1 ? "" : fmt::format("{}x", factor); };
  const std::string longer = what_if.longer.count == 0 ? "" : "+" + flag_text(what_if.longer);
  for (const auto& [name, value] :
       {std::pair("compute", factor_text(what_if.compute)), std::pair("link", factor_text(what_if.link)),
        std::pair("latency", factor_text(what_if.latency) + longer)}) {
    if (!value.empty()) {
      append(text, fmt::format("{}={}", name, value));
    }
  }
  return text;
}

std::string flag_text(const PixelScale& scale) { return to_text(scale); }
std::string flag_text(const Augmentation& augmentation) { return to_text(augmentation); }

std::string flag_text(const LossScaling& scaling) {
  switch (scaling.mode) {
    case LossScaling::Mode::none:
      return "none";
    case LossScaling::Mode::dynamic:
      return "dynamic";
    case LossScaling::Mode::fixed:
      return fmt::format("{}", scaling.scale);
    case LossScaling::Mode::by_precision:
      break;
  }
  return "";
}

}  // namespace baton::job
