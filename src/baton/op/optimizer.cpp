#include "baton/op/optimizer.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"

namespace baton::op {

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"sgd", "momentum", "adam", "adamw"};
  return names;
}

Optimizer optimizer_by_name(std::string_view name) {
  const std::string wanted = canonical(name);
  if (wanted == "sgd") {
    return Sgd{};
  }
  if (wanted == "momentum") {
    return Sgd{.momentum = 0.9};
  }
  if (wanted == "adam") {
    return Adam{};
  }
  if (wanted == "adamw") {
    return Adam{.weight_decay = 0.01, .decoupled = true};
  }
  throw unknown_name("optimizer", name, optimizer_names());
}

std::size_t state_slots(const Optimizer& optimizer) {
  const Sgd* sgd = std::get_if<Sgd>(&optimizer);
  return sgd == nullptr ? 2 : sgd->momentum != 0 ? 1 : 0;
}

std::int64_t flops_per_element(const Optimizer& optimizer) {
  const Sgd* sgd = std::get_if<Sgd>(&optimizer);
  return sgd == nullptr ? 12 : sgd->momentum != 0 ? 4 : 2;
}

Optimizer at_step(Optimizer optimizer, std::int64_t step, std::size_t axes) {
  std::visit(
      [&](auto& settings) {
        settings.rate *= rate_factor(settings.schedule, step);
        settings.schedule = {};
        settings.weight_decay = settings.decay_matrices && axes < 2 ? 0 : settings.weight_decay;
        settings.decay_matrices = false;
      },
      optimizer);
  return optimizer;
}

const RateSchedule& schedule_of(const Optimizer& optimizer) {
  return std::visit([](const auto& settings) -> const RateSchedule& { return settings.schedule; }, optimizer);
}

double clip_of(const Optimizer& optimizer) {
  return std::visit([](const auto& settings) { return settings.clip; }, optimizer);
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"constant", "linear", "cosine", "step"};
  return names;
}

RateSchedule parse_schedule(std::string_view text) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const std::size_t colon = text.find(':');
  const std::string kind = schedule_names()[index_of_name(schedule_names(), text.substr(0, colon), "--lr-schedule")];
  const bool falls = kind == "linear" || kind == "cosine";
  RateSchedule schedule;
  std::int64_t until = 0;
  if (colon != std::string_view::npos) {
    for_each_setting(text.substr(colon + 1), [&](std::string_view setting, const std::string& key, std::string_view value) {
      const std::string what = fmt::format("{} of --lr-schedule", key);
      if (key == "warmup") {
        schedule.warmup = parse_integer(value, what, 0, most);
      } else if (key == "until" && falls) {
        until = parse_integer(value, what, 1, most);
      } else if (key == "floor" && falls) {
        schedule.floor = parse_number(value, what, 0, 1);
      } else if (key == "every" && kind == "step") {
        schedule.every = parse_integer(value, what, 1, most);
      } else if (key == "gamma" && kind == "step") {
        schedule.gamma = parse_number(value, what, 0, 1);
      } else {
        throw usage_error("--lr-schedule {} has '{}', but it takes {}", text, setting,
                          falls            ? "until=N, warmup=N and floor=X"
                          : kind == "step" ? "every=N, gamma=X and warmup=N"
                                           : "warmup=N");
      }
    });
  }
  if (falls && until <= schedule.warmup) {
    throw usage_error("--lr-schedule {} needs until=N, the step from which the rate stays{}, as in {}:until=1000,warmup=100", text,
                      until > 0 ? fmt::format(", above its warmup of {}", schedule.warmup) : "", kind);
  }
  if (kind == "step" && schedule.every == 0) {
    throw usage_error("--lr-schedule {} needs every=N, the steps between two falls, as in step:every=300,gamma=0.1", text);
  }
  if (kind == "step" && text.find("gamma") == std::string_view::npos) {
    schedule.gamma = 0.1;
  }
  (kind == "linear" ? schedule.linear_until : schedule.cosine_until) = until;
  return schedule;
}

}  // namespace baton::op
