#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The messages between the checker and a checked program: words in a text, numbers without loss. Both sides include this
/// header, and it needs nothing but the standard library.
namespace baton::exercise {

class Writer {
 public:
  Writer& add(std::int64_t number) {
    text_ += std::to_string(number) + ' ';
    return *this;
  }
  Writer& add(int number) { return add(static_cast<std::int64_t>(number)); }
  Writer& add(bool yes) { return add(static_cast<std::int64_t>(yes ? 1 : 0)); }
  Writer& add(double number) {
    char digits[64];
    std::snprintf(digits, sizeof digits, "%a ", number);
    text_ += digits;
    return *this;
  }
  Writer& add(float number) { return add(static_cast<double>(number)); }
  Writer& add(std::string_view words) {
    add(static_cast<std::int64_t>(words.size()));
    text_ += words;
    text_ += ' ';
    return *this;
  }
  Writer& add(const std::string& words) { return add(std::string_view(words)); }
  Writer& add(const char* words) { return add(std::string_view(words)); }
  template <typename T>
  Writer& add(const std::vector<T>& list) {
    add(static_cast<std::int64_t>(list.size()));
    for (const T& one : list) {
      add(one);
    }
    return *this;
  }
  Writer& append(const Writer& other) {
    text_ += other.text_;
    return *this;
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// The text is not what it should be.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads what a Writer wrote, in the same order; throws Malformed.
class Reader {
 public:
  explicit Reader(std::string text) : text_(std::move(text)) {}

  std::int64_t integer() {
    const std::string_view one = word();
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (error != std::errc() || end != one.data() + one.size()) {
      throw Malformed("expected a whole number");
    }
    return number;
  }
  double real() {
    const std::string one(word());
    char* end = nullptr;
    const double number = std::strtod(one.c_str(), &end);
    if (one.empty() || end != one.c_str() + one.size()) {
      throw Malformed("expected a number");
    }
    return number;
  }
  std::string text() {
    const std::size_t size = count();
    std::string words = text_.substr(at_, size);
    at_ += size + 1;
    return words;
  }
  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> list(count());
    std::generate(list.begin(), list.end(), [&] { return integer(); });
    return list;
  }
  std::vector<double> reals() {
    std::vector<double> list(count());
    std::generate(list.begin(), list.end(), [&] { return real(); });
    return list;
  }
  std::vector<float> floats() {
    std::vector<float> list(count());
    std::generate(list.begin(), list.end(), [&] { return static_cast<float>(real()); });
    return list;
  }
  /// The number of entries that follow: each takes a character at least.
  std::size_t count() {
    const std::int64_t number = integer();
    if (number < 0 || static_cast<std::size_t>(number) > text_.size() - std::min(at_, text_.size())) {
      throw Malformed("it ends too early");
    }
    return static_cast<std::size_t>(number);
  }

 private:
  std::string_view word() {
    const std::size_t end = at_ < text_.size() ? text_.find(' ', at_) : std::string::npos;
    if (end == std::string::npos) {
      throw Malformed("it ends too early");
    }
    const std::string_view one = std::string_view(text_).substr(at_, end - at_);
    at_ = end + 1;
    return one;
  }

  std::string text_;
  std::size_t at_ = 0;
};

/// The open file over which a checked program is asked and answers. A message is its length in decimal digits, a line break, and
/// its text.
constexpr int channel = 3;
/// The most bytes that a message may have.
constexpr std::size_t most_message = std::size_t{16} << 20;

/// The first word of what a checked program says: its answer to the case; that its function threw; a question to the checker, which
/// only some exercises allow; or what it wants of the other ranks, if it is one of several.
namespace verb {
constexpr const char* answer = "answer";
constexpr const char* threw = "threw";
constexpr const char* question = "question";
constexpr const char* send = "send";
constexpr const char* receive = "receive";
constexpr const char* all_reduce = "all_reduce";
}  // namespace verb

}  // namespace baton::exercise
