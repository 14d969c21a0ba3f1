#include "baton/data/pre_tokens.h"

#include <array>

#include "baton/data/unicode.h"

namespace baton::data {
namespace {

enum class Class : std::uint8_t { letter, number, space, other, end };

/// A place in a text, with the character there.
class Cursor {
 public:
  Cursor(std::string_view text, std::size_t at) : text_(text), at_(at) { look(); }

  std::size_t at() const { return at_; }
  Class what() const { return class_; }
  char32_t point() const { return point_; }
  bool is_line_end() const { return class_ != Class::end && (point_ == '\r' || point_ == '\n'); }
  void advance() {
    at_ += length_;
    look();
  }
  Cursor next() const {
    Cursor after = *this;
    after.advance();
    return after;
  }
  /// Over all characters of one class.
  void pass(Class one) {
    while (class_ == one) {
      advance();
    }
  }

 private:
  void look() {
    length_ = 0;
    if (at_ >= text_.size()) {
      class_ = Class::end;
      return;
    }
    const Character character = character_at(text_, at_);
    point_ = character.point;
    length_ = character.length;
    class_ = is_letter(point_) ? Class::letter : is_number(point_) ? Class::number : is_space(point_) ? Class::space : Class::other;
  }

  std::string_view text_;
  std::size_t at_;
  std::size_t length_ = 0;
  char32_t point_ = 0;
  Class class_ = Class::end;
};

/// The length of 's, 't, 're, 've, 'm, 'll or 'd; 0 if there is none.
std::size_t contraction(std::string_view text, bool any_case) {
  constexpr std::array<std::string_view, 7> endings{"s", "t", "re", "ve", "m", "ll", "d"};
  if (text.empty() || text[0] != '\'') {
    return 0;
  }
  for (const std::string_view ending : endings) {
    bool same = text.size() > ending.size();
    for (std::size_t i = 0; same && i < ending.size(); ++i) {
      const char c = text[i + 1];
      same = (any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) == ending[i];
    }
    if (same) {
      return 1 + ending.size();
    }
  }
  return 0;
}

/// All of the spaces, if nothing follows; all but the last, which goes with what follows; or the only one.
std::size_t end_of_spaces(Cursor cursor) {
  std::size_t last = cursor.at();
  const std::size_t begin = cursor.at();
  while (cursor.what() == Class::space) {
    last = cursor.at();
    cursor.advance();
  }
  return cursor.what() == Class::end || last == begin ? cursor.at() : last;
}

std::size_t end_as_gpt2(Cursor cursor) {
  const Cursor begin = cursor;
  if (cursor.point() == ' ' && cursor.next().what() != Class::space && cursor.next().what() != Class::end) {
    cursor.advance();
  }
  if (cursor.what() == Class::space) {
    return end_of_spaces(begin);
  }
  cursor.pass(cursor.what());
  return cursor.at();
}

std::size_t end_as_cl100k(Cursor cursor, int most_digits) {
  if (cursor.what() == Class::letter ||
      (cursor.what() != Class::number && !cursor.is_line_end() && cursor.next().what() == Class::letter)) {
    cursor.advance();
    cursor.pass(Class::letter);
    return cursor.at();
  }
  if (cursor.what() == Class::number) {
    for (int digits = 0; digits < most_digits && cursor.what() == Class::number; ++digits) {
      cursor.advance();
    }
    return cursor.at();
  }
  if (cursor.what() == Class::other || (cursor.point() == ' ' && cursor.next().what() == Class::other)) {
    cursor.advance();
    cursor.pass(Class::other);
    while (cursor.is_line_end()) {
      cursor.advance();
    }
    return cursor.at();
  }
  std::size_t after_line = 0;
  Cursor ahead = cursor;
  while (ahead.what() == Class::space) {
    const bool line_end = ahead.is_line_end();
    ahead.advance();
    after_line = line_end ? ahead.at() : after_line;
  }
  return after_line > 0 ? after_line : end_of_spaces(cursor);
}

}  // namespace

std::size_t end_of_pre_token(std::string_view text, std::size_t at, Splitting splitting) {
  if (const std::size_t length = contraction(text.substr(at), splitting != Splitting::gpt2); length > 0) {
    return at + length;
  }
  const Cursor cursor(text, at);
  return splitting == Splitting::gpt2 ? end_as_gpt2(cursor) : end_as_cl100k(cursor, splitting == Splitting::cl100k ? 3 : 1);
}

}  // namespace baton::data
