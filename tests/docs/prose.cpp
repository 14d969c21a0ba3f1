#include "docs/prose.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <sstream>

#include "support/contents.h"

namespace baton::test {
namespace {

enum class Language { c, script, hashed, shell };

const std::map<std::string, Language>& languages() {
  static const std::map<std::string, Language> list{
      {".h", Language::c},       {".cpp", Language::c},       {".cu", Language::c},
      {".cuh", Language::c},     {".js", Language::script},   {".mjs", Language::script},
      {".py", Language::hashed}, {".toml", Language::hashed}, {".sh", Language::shell}};
  return list;
}

std::ptrdiff_t words(const std::string& text) {
  std::istringstream stream(text);
  return std::distance(std::istream_iterator<std::string>(stream), {});
}

/// Walks over a file once. Of code only the ends of lines stay.
class Reader {
 public:
  Reader(const std::string& code, Language language) : code_(code), language_(language) {}

  Prose read() {
    while (at_ < code_.size()) {
      if (is_comment("//", language_ == Language::c || language_ == Language::script) ||
          is_comment("#", language_ == Language::hashed)) {
        take_comment(code_.find('\n', at_));
      } else if (is_comment("/*", language_ == Language::c || language_ == Language::script)) {
        take_comment(code_.find("*/", at_ + 2));
      } else if (is_character()) {
        at_ = code_[at_ + 1] == '\\' ? code_.find('\'', at_ + 3) + 1 : at_ + 3;
        end_literal();
      } else if (const std::string end = end_of_literal(); !end.empty()) {
        take_literal(end);
      } else {
        take_code();
      }
    }
    end_literal();
    return prose_;
  }

 private:
  bool is_comment(const char* sign, bool has_sign) const {
    return has_sign && code_.compare(at_, std::string(sign).size(), sign) == 0;
  }

  bool is_character() const {
    return language_ == Language::c && code_[at_] == '\'' && at_ + 2 < code_.size() &&
           (code_[at_ + 2] == '\'' || code_[at_ + 1] == '\\');
  }

  /// What ends the literal that begins here, moving past its beginning; empty if none does.
  std::string end_of_literal() {
    if (language_ == Language::c && code_.compare(at_, 2, "R\"") == 0) {
      const std::size_t bracket = code_.find('(', at_);
      const std::string end = ")" + code_.substr(at_ + 2, bracket - at_ - 2) + "\"";
      at_ = bracket + 1;
      return end;
    }
    if (language_ == Language::hashed && code_.compare(at_, 3, "\"\"\"") == 0) {
      at_ += 3;
      return "\"\"\"";
    }
    const char sign = code_[at_];
    if (sign == '"' || (sign == '\'' && language_ != Language::c) || (sign == '`' && language_ == Language::script)) {
      ++at_;
      return std::string(1, sign);
    }
    return {};
  }

  void take_comment(std::size_t end) {
    end = std::min(end, code_.size());
    std::size_t begin = at_;
    while (begin < end && (code_[begin] == '/' || code_[begin] == '#' || code_[begin] == '*')) {
      ++begin;
    }
    prose_.comments.append(code_, begin, end - begin);
    add_lines(
        std::count(code_.begin() + static_cast<std::ptrdiff_t>(begin), code_.begin() + static_cast<std::ptrdiff_t>(end), '\n'),
        pending_);
    at_ = end;
  }

  void take_literal(const std::string& end) {
    const bool long_one = end.size() > 1 || end == "`";
    open_ = true;
    while (at_ < code_.size() && code_.compare(at_, end.size(), end) != 0 && (long_one || code_[at_] != '\n')) {
      if (code_[at_] == '\n') {
        prose_.comments += '\n';
        pending_ += '\n';
      } else if (code_[at_] == '\\' && end.front() != ')') {
        ++at_;
        pending_ += at_ < code_.size() && code_[at_] == 'n' ? ' ' : code_[std::min(at_, code_.size() - 1)];
      } else {
        pending_ += code_[at_];
      }
      ++at_;
    }
    at_ += at_ < code_.size() && code_[at_] == '\n' ? 0 : end.size();
  }

  void take_code() {
    const char sign = code_[at_++];
    if (sign == '\n') {
      prose_.comments += '\n';
      pending_ += '\n';
    } else if (std::isspace(static_cast<unsigned char>(sign)) == 0 && open_) {
      end_literal();
    }
  }

  /// Long literals stay, with a bar after them: phrases do not run from one literal to the next.
  void end_literal() {
    if (words(pending_) >= 5) {
      prose_.literals += pending_ + "|";
    } else {
      add_lines(std::count(pending_.begin(), pending_.end(), '\n'), prose_.literals);
    }
    pending_.clear();
    open_ = false;
  }

  static void add_lines(std::ptrdiff_t count, std::string& text) { text.append(static_cast<std::size_t>(count), '\n'); }

  const std::string& code_;
  Language language_;
  std::size_t at_ = 0;
  std::string pending_;  // literals that are adjacent so far
  bool open_ = false;
  Prose prose_;
};

std::string comments_of_shell(const std::string& code) {
  std::string text;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.starts_with("#") ? 0 : line.find(" # ");
    text += (at == std::string::npos ? "" : line.substr(at)) + "\n";
  }
  return text;
}

}  // namespace

bool has_prose(const std::filesystem::path& file) { return languages().contains(file.extension()); }

Prose prose_of(const std::filesystem::path& file) {
  const Language language = languages().at(file.extension());
  const std::string code = contents(file);
  if (language == Language::shell) {
    return {comments_of_shell(code), ""};
  }
  return Reader(code, language).read();
}

}  // namespace baton::test
