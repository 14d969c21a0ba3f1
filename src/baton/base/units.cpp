#include "baton/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "baton/base/error.h"

namespace baton {
namespace {

struct Scale {
  double factor;
  std::string_view unit;
};

/// The largest unit that keeps the figure, as it is shown, at one or above.
template <std::size_t N>
std::string scaled(double value, const std::array<Scale, N>& scales) {
  const double size = std::abs(value);
  for (const Scale& scale : scales) {
    if (size >= 0.9995 * scale.factor || &scale == &scales.back()) {
      const double shown = value / scale.factor;
      const bool whole = scale.factor == 1.0;
      const int decimals = whole ? 0 : std::abs(shown) >= 99.95 ? 0 : std::abs(shown) >= 9.995 ? 1 : 2;
      return fmt::format("{:.{}f} {}", shown, decimals, scale.unit);
    }
  }
  return {};
}

constexpr std::array<Scale, 4> time_scales{{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}}};
constexpr std::array<Scale, 5> byte_scales{
    {{1099511627776.0, "TiB"}, {1073741824.0, "GiB"}, {1048576.0, "MiB"}, {1024.0, "KiB"}, {1, "B"}}};
constexpr std::array<Scale, 5> flop_scales{{{1e12, "TFLOP"}, {1e9, "GFLOP"}, {1e6, "MFLOP"}, {1e3, "kFLOP"}, {1, "FLOP"}}};

/// Powers of ten, as on data sheets; 0 if the prefix is unknown.
double decimal_scale(std::string_view scale) {
  return scale.empty() ? 1 : scale == "K" || scale == "k" ? 1e3 : scale == "M" ? 1e6 : scale == "G" ? 1e9 : scale == "T" ? 1e12 : 0;
}

/// "us", or "µs" with either of the two Greek letters that keyboards write: the micro sign and the small mu.
bool is_micro(std::string_view unit) { return unit == "us" || unit == "\u00b5s" || unit == "\u03bcs"; }

/// Splits "1.5GB" into 1.5 and "GB".
bool split_number(std::string_view text, double& number, std::string_view& unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) {
    return false;
  }
  unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') {
    unit.remove_prefix(1);
  }
  return true;
}

}  // namespace

std::string to_text(Nanoseconds time) { return scaled(static_cast<double>(time.count), time_scales); }
std::string to_text(Bytes size) { return scaled(static_cast<double>(size.count), byte_scales); }
std::string to_text(Flops work) { return scaled(static_cast<double>(work.count), flop_scales); }

Bytes parse_bytes(std::string_view text, std::string_view what) {
  double number = 0;
  std::string_view unit;
  if (split_number(text, number, unit) && number >= 0) {
    double factor = 0;
    const std::string_view scale = unit.substr(0, unit.find_first_of("iB"));
    const std::string_view rest = unit.substr(scale.size());
    if (rest.empty() || rest == "B" || rest == "iB") {
      factor = scale.empty()                  ? 1.0
               : scale == "K" || scale == "k" ? 1024.0
               : scale == "M"                 ? 1048576.0
               : scale == "G"                 ? 1073741824.0
               : scale == "T"                 ? 1099511627776.0
                                              : 0.0;
    }
    if (factor > 0 && number * factor < 9e18) {
      return Bytes(static_cast<std::int64_t>(std::llround(number * factor)));
    }
  }
  throw usage_error("{} is '{}', but a size looks like 8, 64KiB, 128MiB or 1GiB", what, text);
}

Nanoseconds parse_time(std::string_view text, std::string_view what) {
  double number = 0;
  std::string_view unit;
  if (split_number(text, number, unit) && number >= 0) {
    const double factor = unit == "ns" ? 1 : is_micro(unit) ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
    if (factor > 0 && number * factor <= longest_duration) {
      return Nanoseconds(std::llround(number * factor));
    }
  }
  throw usage_error("{} is '{}', but a time looks like 200ns, 50us, 10ms or 1.5s", what, text);
}

double parse_bandwidth(std::string_view text, std::string_view what) {
  double number = 0;
  std::string_view unit;
  if (split_number(text, number, unit) && number > 0 && unit.ends_with("/s") && unit.size() >= 3) {
    const char kind = unit[unit.size() - 3];
    const double factor = decimal_scale(unit.substr(0, unit.size() - 3));
    if (factor > 0 && std::isfinite(number * factor) && (kind == 'B' || kind == 'b')) {
      return number * factor / (kind == 'b' ? 8 : 1);
    }
  }
  throw usage_error("{} is '{}', but a bandwidth looks like 1GB/s, 500MB/s or 25Gb/s", what, text);
}

double parse_rate(std::string_view text, std::string_view what) {
  constexpr std::string_view ending = "flop/s";
  double number = 0;
  std::string_view unit;
  if (split_number(text, number, unit) && number > 0 && (unit.ends_with(ending) || unit.ends_with("FLOP/s"))) {
    if (const double factor = decimal_scale(unit.substr(0, unit.size() - ending.size()));
        factor > 0 && std::isfinite(number * factor)) {
      return number * factor;
    }
  }
  throw usage_error("{} is '{}', but a rate looks like 100GFLOP/s or 19.5TFLOP/s", what, text);
}

std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    if (high == std::numeric_limits<std::int64_t>::max()) {
      throw usage_error("{} is '{}', but must be a whole number of at least {}", what, text, low);
    }
    throw usage_error("{} is '{}', but must be a whole number from {} to {}", what, text, low, high);
  }
  return value;
}

double parse_number(std::string_view text, std::string_view what, double low, double high) {
  double value = 0;
  std::string_view rest;
  if (!split_number(text, value, rest) || !rest.empty() || text.back() == ' ' || value < low || value > high) {
    throw usage_error("{} is '{}', but must be a number from {} to {}", what, text, low, high);
  }
  return value;
}

}  // namespace baton
