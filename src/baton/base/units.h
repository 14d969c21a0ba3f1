#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

/// A whole number of something, so that bytes are not added to nanoseconds.
template <typename Tag>
struct Quantity {
  std::int64_t count = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t n) : count(n) {}

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) {
    count += other.count;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.count + b.count); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.count - b.count); }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity(a.count * n); }
};

using Bytes = Quantity<struct BytesTag>;
using Flops = Quantity<struct FlopsTag>;
/// Time, always in integer nanoseconds: on the measured clock and on the simulated one.
using Nanoseconds = Quantity<struct NanosecondsTag>;

/// The longest time that one task or message may take, so that sums of times cannot overflow.
inline constexpr double longest_duration = 1e17;  // nanoseconds: three years

/// "9.00 ms", "12.3 µs", "1.50 GiB", "12.3 GFLOP": three significant figures and the largest unit that keeps the figure at 1 or
/// above.
std::string to_text(Nanoseconds time);
std::string to_text(Bytes size);
std::string to_text(Flops work);

/// The inverse, for sizes as people write them: `8`, `64K`, `128M`, `1G`, `25MB`, `1GiB`. K, KB and KiB are 1024 bytes, and so on.
/// `what` names the value in the error message.
Bytes parse_bytes(std::string_view text, std::string_view what);
/// `50us` or `50µs`, `10ms`, `1.5s`, `200ns`; a bare number is refused, because its unit would be a guess.
Nanoseconds parse_time(std::string_view text, std::string_view what);
/// `1GB/s`, `25Gb/s`, `500MB/s`, in bytes per second; here G is 10^9 and b is bits, as on data sheets.
double parse_bandwidth(std::string_view text, std::string_view what);
/// `19.5TFLOP/s`, `100GFLOP/s` or `100Gflop/s`, in FLOP per second.
double parse_rate(std::string_view text, std::string_view what);

/// A whole number and nothing else, within [low, high].
std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t low, std::int64_t high);
/// A finite number and nothing else, within [low, high].
double parse_number(std::string_view text, std::string_view what, double low, double high);

}  // namespace baton
